"""Other code that computes the metrics of a step, to compare with."""
