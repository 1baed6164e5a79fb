"""The journal: append-only segments of checksummed frames.

The training writes it, everything else reads it. `format` knows nothing of `segments` and `write`; these know
nothing of `read`; `read` knows nothing of `merge` and `samples`; `view` and the list of runs stand on all.
"""
