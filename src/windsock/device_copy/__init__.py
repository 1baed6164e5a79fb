"""Copies from an accelerator to the host that nothing waits for, and launches of kernels."""
