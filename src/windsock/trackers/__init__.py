"""Trackers: places where rows are shown or kept.

``protocol`` says what a tracker is, ``registry`` finds one by name, ``feed`` hands it the rows of the journal from a
thread of its own; every other file is one tracker.
"""
