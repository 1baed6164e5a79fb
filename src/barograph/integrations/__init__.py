"""Frameworks, trackers and notebooks; only the module of a package imports it.

`guard` and `notebook` know nothing of `frameworks` and `drop_ins`, and these nothing of each other.
"""
