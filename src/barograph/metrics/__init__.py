"""Numbers from arrays and reports, mergeable over batches and processes.

Order: `formulas` and `states`, then `batch`, whose `step` alone imports `gpu`; `rollouts` and `comparison` know
nothing of `batch`. No metric is looked up in a journal here.
"""
