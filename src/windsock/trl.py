"""``import windsock.trl`` makes ``report_to="windsock"`` known to transformers and TRL."""

from windsock.integrations.transformers import WindsockCallback, source_of
from windsock.integrations.trl import watch

__all__ = ["WindsockCallback", "source_of", "watch"]
