"""The tracker for ROLL: importing this module makes ``track_with: barograph`` known."""

from barograph.integrations.frameworks.roll import RollTracker

__all__ = ["RollTracker"]
