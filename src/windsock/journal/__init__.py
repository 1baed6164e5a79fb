"""The journal: append-only segments of checksummed frames, written by the training, read by everyone else.

``frames`` is the format on disk, ``writer`` appends, ``reader`` follows and survives damage, ``folder`` knows the
files of a run, ``series`` turns columns into something to look at, ``status`` tells who is still alive.
"""
