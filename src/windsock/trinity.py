"""The monitor for Trinity-RFT: ``monitor_type: windsock.trinity.Monitor``."""

from windsock.integrations.trinity import Monitor

__all__ = ["Monitor"]
