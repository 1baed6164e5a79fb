"""Files and directories: mounts and the local spool, changes of directories, bounded compression, checksums.

`directory_watch` imports `mounts`; the others know nothing of each other.
"""
