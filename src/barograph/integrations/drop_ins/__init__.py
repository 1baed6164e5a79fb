"""Modules with the interface of a tracker, recorded by barograph.

`recorded_run` and `media` know nothing of the trackers.
"""
