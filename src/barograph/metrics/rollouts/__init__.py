"""Rollouts and evaluations: experiences of runs, runs of tasks, tasks of a step, reduced level by level.

`gathering` collects reports, `plan` says how they are reduced, `statistics` reduces them, `wire` packs them.
"""
