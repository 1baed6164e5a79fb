"""Mergeable partial results: `kinds` knows nothing, `layout` puts states of all kinds into one vector.

A state is a few float64 numbers that summarise the data of a metric. Two states of one kind merge into the state of
both data sets together, in any order, and only a merged state is turned into a value. States are merged over the
micro-batches and ranks of one step, never over steps: a mean over a hundred steps is a smoothing, and the reader of
a chart chooses it.
"""
