"""Rollouts and evaluations: experiences of runs, runs of tasks, tasks of a step, reduced level by level.

A user reports to ``handles``; ``gathering`` stores the reports as one state per run and metric (``columns``);
``statistics`` reduces them to named values; ``wire`` packs them for other processes; ``plan`` describes the
reports and their reductions; ``collector`` opens, closes and writes them for a run.
"""
