"""Delivery of a run's rows to trackers, and of its bytes to other machines, outside the training process.

`processes` has the helper processes; `trackers` knows nothing of `relay`; `transfer` knows nothing of either; `ray`
builds on `transfer`. Only the entry point of the processes, `relay.__main__`, knows all.
"""
