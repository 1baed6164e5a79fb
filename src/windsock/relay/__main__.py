"""The relay's processes: ``python -m windsock.relay FOLDER [TRACKER RESTARTS]``, their orders on standard input."""

import sys

from windsock.relay.supervisor import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
