"""Batches measured on an accelerator.

`passes` queues the work, by the Triton kernels or by `torch_pass`; `outline` and `results` are what it needs on the
device; `selection` computes the metrics on the host. The kernels know nothing of the other modules.
"""
