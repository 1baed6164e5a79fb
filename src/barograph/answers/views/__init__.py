"""What the page shows of one run, one module for each view.

`charts` and `curves` know nothing of the other views, and these nothing of each other.
"""
