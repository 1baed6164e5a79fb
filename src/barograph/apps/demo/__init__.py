"""A real PPO training in NumPy, small enough to read, recorded with everything that barograph has.

`frozen_lake` and `ppo` know nothing of runs; `recording` has the calls that record, and `trainer` the loop.
"""
