"""Everything that is drawn on a terminal, with rich: on a pipe the same without colour.

`output`, `layout` and `sparkline` know nothing of runs; the other modules draw one answer each.
"""
