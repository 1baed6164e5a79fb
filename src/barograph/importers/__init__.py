"""Logs of other programs, read as runs.

Each becomes a journal in a cache, which everything that reads runs can open; no log is executed or trusted.
`recorder` writes that journal and knows nothing of logs; `reading` knows nothing of `formats`; `logs`, `imported`
and `opening` know no single format.
"""
