"""Rollouts and evaluations: experiences of runs, runs of tasks, tasks of a step, reduced level by level.

``handles`` is what a user reports to; ``gathering`` stores the reports as one state per run and metric (``columns``);
``statistics`` reduces them to named values; ``wire`` packs them for other processes; ``plan`` describes what is
reported and how it is reduced; ``collector`` opens, closes and writes them for a run.
"""
