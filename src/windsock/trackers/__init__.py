"""Trackers: destinations of rows, one module each.

``protocol`` is their interface and ``registry`` finds them by name. ``rows``, ``tables``, ``params``, ``dependencies``,
``tensorboard_events`` and ``crc32c`` are shared by several of them.
"""
