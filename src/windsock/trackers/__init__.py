"""Trackers: places where rows are shown or kept.

``protocol`` says what a tracker is, ``registry`` finds one by name. ``forms``, ``packages``, ``events`` and ``crc32c``
are what trackers are made with; every other file is one tracker.
"""
