"""The doctor: rules that read a run and say what is wrong, since when, and what to look at next.

`rules` knows nothing of `diagnose`; `watch` and the lists of verdicts use both.
"""
