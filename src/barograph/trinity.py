"""The monitor for Trinity-RFT: ``monitor_type: barograph.trinity.Monitor``."""

from barograph.integrations.frameworks.trinity import Monitor

__all__ = ["Monitor"]
