"""Builder of the compiled file and the reference pages from the text files: needed by ``python -m`` alone.

`entries` makes metrics of the entries of a family and of a framework, `declarations` reads all files and encodes what
they declare, `reference_pages` writes docs/metrics*.md.
"""
