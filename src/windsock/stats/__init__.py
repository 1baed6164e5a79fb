"""Statistics of arrays and masks: pure functions, without metric names and without logging."""
