"""Other people's logs, read with the interface of our own runs: one module per format."""
