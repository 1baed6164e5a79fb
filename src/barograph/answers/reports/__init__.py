"""Reports on runs.

`notes` knows nothing of `written`; `embedded` makes the data of a file that has no server to ask.
"""
