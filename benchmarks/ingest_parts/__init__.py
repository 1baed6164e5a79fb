"""Parts of ``benchmarks/ingest.py``: links between nodes, nodes that train, and writers against three servers."""
