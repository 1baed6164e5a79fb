"""Reading one segment: its frames, rows and records, the steps of its commits, and the side index that keeps what was
read.

`framing`, `contents` and `steps` know nothing of `reader`; `indexed_reader` stands on all.
"""
