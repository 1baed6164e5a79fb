"""Reading attempts and runs: columns over the segments of an attempt, spans, series, the status of writers, a glance
at both ends, and rows for those who follow.

`status` and `series` know nothing of the others.
"""
