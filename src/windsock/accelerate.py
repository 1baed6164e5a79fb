"""``import windsock.accelerate`` makes ``log_with="windsock"`` known to Accelerate."""

from windsock.integrations.accelerate import WindsockTracker

__all__ = ["WindsockTracker"]
