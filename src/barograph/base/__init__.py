"""What every other room uses: errors, records, settings, scalars, redaction, expressions, the guard around the
training loop, and what the process, the files and the devices of a run are.

Modules outside of folders import from `process`, `files` and `device_copy`; these import `errors`, `model`,
`formatting` and `redaction` only.
"""

__version__ = "0.3.0"
