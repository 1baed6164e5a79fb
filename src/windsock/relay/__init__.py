"""The relay: delivers rows from the journal to trackers, outside the training process.

``supervisor`` is the relay's process, one for each run, which starts a delivery process for each tracker. ``delivery``
delivers to one tracker; ``delivery_state`` is the file with its cursor and state. ``merged_rows`` follows the journal
and merges the values of several ranks. ``client`` is the training process's side: it starts the relay, restarts it and
waits for the last rows. ``spool`` copies segments to a run directory on a network mount, ``sending`` sends them to a
server; ``transfer_client`` is the training process's side of both. ``ray_sending`` sends them to the node of
a Ray cluster where the run began, and ``ray_nodes`` is the side of that node.
"""
