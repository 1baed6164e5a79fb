"""The journal: append-only segments of checksummed frames. The training writes it, everything else reads it.

``frames`` is the format on disk and ``folder`` the files of a run. ``writer`` and ``segment`` write; ``reader`` reads a
segment, past damage. ``steps`` has the rule of steps. ``columns``, ``series``, ``span_rows`` and ``spans`` serve views;
``segment_follower`` and ``follow`` emit rows to trackers. ``status`` and ``glance`` tell whether a run is alive.
"""
