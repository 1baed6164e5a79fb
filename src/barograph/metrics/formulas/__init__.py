"""Statistics of arrays and masks: pure functions, without metric names and without logging.

`channels` and `sequences` know nothing of each other; `table` lays out what a device computes of both.
"""
