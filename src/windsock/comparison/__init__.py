"""Comparison of runs as groups of seeds: intervals, curves with bands, and whether one group beats another."""
