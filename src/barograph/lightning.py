"""The logger for a Trainer of Lightning."""

from barograph.integrations.frameworks.lightning import BarographLogger

__all__ = ["BarographLogger"]
