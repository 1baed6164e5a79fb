"""The process of a run: what identifies it, how it ends, the thread beside it, the machine it runs on, and the group
it exchanges with.

`identity` knows nothing of the others; the others know nothing of each other.
"""
