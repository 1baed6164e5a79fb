"""The doctor: rules that read a run and say what is wrong, since when, and what to look at next.

`rule` and `rules` know nothing of `diagnose`; `watch` and the lists of verdicts use both.
"""
