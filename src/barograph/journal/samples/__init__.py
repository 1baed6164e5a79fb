"""Search of samples: an index in SQLite, made from the journal, of blocks of samples.

`transcript` and `columns` know nothing of `query`; `blocks` nothing of `search`; `index` stands on all.
"""
