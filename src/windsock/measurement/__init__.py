"""From a trainer's arrays to metrics.

``batch`` describes what a trainer has, ``quantities`` binds it to statistics and states, ``parts`` measures a part of a
step and turns merged states into named values.
"""
