"""Entry point of the relay's processes, which read their options from standard input.

``python -m barograph.delivery.relay FOLDER [TRACKER RESTARTS]``, or ``--copy SPOOL FOLDER`` or ``--send FOLDER``. Each
imports only what it needs.
"""

import sys
from pathlib import Path

from barograph.delivery.processes import given_options


def main(arguments: list[str]) -> int:
    """Run the relay of a run; with a tracker's name, one of its deliveries; with an option, the copying or sending."""
    options = given_options()
    if arguments[0] == "--copy":
        from barograph.delivery.transfer.spool import copy_until_ended

        return copy_until_ended(Path(arguments[1]), Path(arguments[2]))
    if arguments[0] == "--send":
        from barograph.delivery.transfer.sending import send_until_ended

        return send_until_ended(Path(arguments[1]), options)
    from barograph.delivery.relay.supervisor import deliver, supervise

    folder = Path(arguments[0])
    if len(arguments) == 1:
        return supervise(folder, options)
    return deliver(folder, arguments[1], options, int(arguments[2]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
