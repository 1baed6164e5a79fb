"""The exceptions of windsock.

::

    WindsockError
    ├── SettingsError      a setting, in YAML, keyword or environment, that is wrong
    ├── TrackerError       a tracker that is unknown, not installed or given wrong arguments
    ├── JournalError       a file that is no journal, or one of a newer format
    ├── RunNotFoundError   no run by that name, or several
    └── MetricNotFoundError  a run that has no metric by that name

Every message says what was expected, what came and what to do. None of these is ever raised inside a training
loop: they come out of ``init``, ``open`` and the command line.
"""


class WindsockError(Exception):
    """The base of all errors that windsock raises."""


class SettingsError(WindsockError, ValueError):
    """A setting is unknown, of the wrong type or contradicts another."""


class TrackerError(WindsockError):
    """A tracker cannot be used as configured."""


class JournalError(WindsockError):
    """A file cannot be read as a journal."""


class RunNotFoundError(WindsockError, LookupError):
    """A reference names no run, or more than one."""


class MetricNotFoundError(WindsockError, LookupError):
    """A run has no metric of that name."""
