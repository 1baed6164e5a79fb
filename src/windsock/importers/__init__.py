"""Logs of other programs, read as runs: each becomes a journal in a cache, which everything that reads runs can open.

A format is one module. It recognises its logs (``matches`` for a file, ``logs_in`` for a directory) and has a
``Reader``, which gives a ``Recorder`` what is new in the log. No log is executed or trusted.
"""
