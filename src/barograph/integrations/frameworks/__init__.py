"""Hooks for training frameworks, one module each. `run` knows nothing of the others."""
