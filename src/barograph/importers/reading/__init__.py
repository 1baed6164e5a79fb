"""What the formats share: a log and its lines, values, rows, rollouts, and the containers of trackers.

`log` and `values` know nothing of the recorder; `lines`, `rows`, `rollouts`, `block_records` and `sqlite` give it
what they read.
"""
