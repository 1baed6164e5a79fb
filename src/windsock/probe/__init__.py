"""Time and memory of a step: phases, devices, throughput and system metrics.

A training loop enters ``phases``. ``probe`` writes their spans to the journal and sums them per step (``step_totals``).
``memory`` and ``devices`` take the readings. ``report`` and ``trace`` present the spans of a recorded run.
"""
