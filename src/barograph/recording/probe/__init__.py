"""Time and memory of a step: phases, devices, throughput and system metrics.

`devices` and `phases` know nothing of `step_totals`, and `engine_metrics` nothing of `engines`; `recorder` stands
on all.
"""
