"""Trackers: destinations of rows, one module each.

`registry` finds them by name and `payload` has what they show; both know nothing of a single tracker.
"""
