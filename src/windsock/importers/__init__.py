"""Logs of other programs, with the interface of a run: one module per format."""
