"""Entry point of the relay's processes, which read their options from standard input.

``python -m windsock.relay FOLDER [TRACKER RESTARTS]``, or ``--copy SPOOL FOLDER``, ``--send FOLDER`` or ``--claim``.
"""

import sys

from windsock.relay.supervisor import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
