"""Samples: the choice of those that are stored (``choice``), and their search (``index``, ``query``)."""
