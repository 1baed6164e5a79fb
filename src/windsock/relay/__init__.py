"""The relay: carries rows from the journal to trackers, outside the training process.

``supervisor`` is the relay's process, one for each run; it keeps a ``courier`` process for each tracker, which follows
the journal from a cursor of its own. ``desk`` is where a courier's cursor and state lie. ``link`` is what the training
process holds of it: it starts the relay, sees that it lives, and waits for the last rows at the end. ``ranks`` merges
rows of several ranks on the way; ``spool`` carries segments to a directory on another machine.
"""
