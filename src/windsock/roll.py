"""The tracker for ROLL: importing this module makes ``track_with: windsock`` known."""

from windsock.integrations.roll import RollTracker

__all__ = ["RollTracker"]
