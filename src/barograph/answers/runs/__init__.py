"""The runs of a directory: which exist, which are open, their list, table and annotations.

`folders` and `listed_run` know nothing of `open_runs`; `listing` puts all of it together.
"""
