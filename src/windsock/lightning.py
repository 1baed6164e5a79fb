"""The logger for a Trainer of Lightning."""

from windsock.integrations.lightning import WindsockLogger

__all__ = ["WindsockLogger"]
