"""The runs of a directory as a data set of Parquet files, for questions about many runs (``docs/fleet.md``)."""
