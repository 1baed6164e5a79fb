"""Copies of a run's segments on other machines: a server, or a folder on a network mount.

`destination`, `pieces` and `state` know nothing of the two sides, `receiver` and `sending`; `claiming` takes a rank
on a destination; `spool` copies to a mount.
"""
