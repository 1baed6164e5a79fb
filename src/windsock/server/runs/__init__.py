"""The runs of a directory: which exist, which are open, their list, live updates and annotations."""
