"""Experience, run, task, step: what explorers report, gathered and reduced level by level.

``gathering`` takes in what arrives, in any order, from any thread or process, and holds it as states of runs;
``levels`` reduces runs to tasks and tasks to a step; ``handles`` are what a user holds; ``books`` keeps them for a run.
"""
