"""Numbers from arrays and masks: pure functions that return plain tuples, without names and without logging."""
