"""The relay: delivers rows from the journal to trackers, outside the training process.

`state` and `merged_rows` know nothing of `delivery`, which delivers to one tracker; `supervisor` is the relay's
process, which has a delivery process for each tracker; `client` is the training process's side of both.
"""
