"""The process of a run: what identifies it, what it runs in, how it ends, the thread beside it, and the group
it exchanges with.

`identity` knows nothing of the others; the others know nothing of each other.
"""
