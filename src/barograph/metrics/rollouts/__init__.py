"""Rollouts and evaluations: experiences of runs, runs of tasks, tasks of a step, reduced level by level.

`columns` and `plan` know nothing of reports; `gathering` collects them, `statistics` reduces them, `wire` packs
them.
"""
