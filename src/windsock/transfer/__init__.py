"""Copies of a run's segments in other places: what a piece of a segment is, who takes it, and who may give it."""
