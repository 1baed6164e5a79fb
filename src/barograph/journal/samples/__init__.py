"""Search of samples: an index in SQLite, made from the journal, of blocks of samples.

`transcript` knows nothing of `query`, `query` nothing of `blocks`, and `blocks` nothing of `search`; `index` stands on
all.
"""
