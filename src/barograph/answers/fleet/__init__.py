"""The runs of a directory as a data set of Parquet files (``docs/fleet.md``).

`schema` and `tables` know nothing of `files`; `export` uses all of it.
"""
