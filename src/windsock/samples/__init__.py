"""Samples: which of a step are kept, and finding them again."""
