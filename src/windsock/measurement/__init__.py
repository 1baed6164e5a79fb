"""Metrics of a trainer's batches.

``batch`` has the arrays, ``quantities`` declares the states and the metrics of each, ``selection`` and ``device``
compute the states on the host and on an accelerator, ``step`` merges the states of a step, and ``values`` turns merged
states into named values.
"""
