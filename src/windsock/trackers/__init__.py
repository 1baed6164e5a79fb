"""Trackers: places where rows are shown or kept.

``protocol`` says what a tracker is, ``registry`` finds one by name, ``feed`` hands it the rows of the journal from a
thread of its own. ``forms``, ``packages``, ``events`` and ``crc32c`` are what trackers are made with; every other
file is one tracker.
"""
