"""Hooks for training frameworks and trackers, one module each; only that module imports the package."""
