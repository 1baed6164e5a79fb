"""``import barograph.trl`` makes ``report_to="barograph"`` known to transformers and TRL."""

from barograph.integrations.frameworks.transformers import BarographCallback, source_of
from barograph.integrations.frameworks.trl import watch

__all__ = ["BarographCallback", "source_of", "watch"]
