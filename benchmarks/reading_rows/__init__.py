"""Rows of the benchmark ``reading``: each module measures some, and ``table`` has what a row is."""
