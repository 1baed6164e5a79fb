"""Writing segments: bytes that survive the process, rows and records as frames, and the claim of a rank.

Nothing here reads a segment, but for the owner of a claimed rank.
"""
