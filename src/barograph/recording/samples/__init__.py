"""Submitted samples: parsed, chosen and written. `choice`, `parsing` and `tokens` know nothing of the collector."""
