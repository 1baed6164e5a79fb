"""Metrics of a trainer's batches.

``batch`` has the arrays, ``quantities`` declares the states and the metrics of each, and a ``plan`` says which of them
some arrays give. ``host_batches`` and ``device`` take batches in, ``selection`` and ``device_selection`` compute the
states of them, ``step`` merges the states of a step, and ``values`` turns merged states into named values. What a
device has summed over a whole batch becomes states in ``reduced_states``; ``packed_states`` has them in one vector.
"""
