"""The format on disk: frames and their contents, the files of a run, samples and tokens as JSON.

Nothing here reads or writes a segment.
"""
