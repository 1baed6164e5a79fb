"""Metrics of a trainer's batches.

Order: `arrays` and `inputs`, then `quantities` and `host`, then `plan`, then `values`, `step_states` and
`token_rows`; `step` puts them together, with `gpu` for batches on an accelerator.
"""
