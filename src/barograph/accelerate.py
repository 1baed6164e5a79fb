"""``import barograph.accelerate`` makes ``log_with="barograph"`` known to Accelerate."""

from barograph.integrations.frameworks.accelerate import BarographTracker

__all__ = ["BarographTracker"]
