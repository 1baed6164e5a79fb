"""Recording a run: the run that a training loop uses, the collectors behind it, and the ticket by which other
processes join.

`context` knows nothing of collectors; `probe` and `samples` nothing of `collectors`; `run` stands on all. Nothing
here knows who reads.
"""
