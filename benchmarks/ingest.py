"""Send runs to a server over bad links, and from a thousand writers.

``rounds [N]``: two nodes train, one machine serves. Links are cut and slowed, and both sides are killed with SIGKILL at
random. In the end every segment on the server must be equal to what was recorded, without a missing or doubled step.

``writers [N]``: so many writers send 50 values a second each into one server, for barograph, MLflow and Trackio.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from ingest_parts import rounds, writers


def main() -> int:
    """Run one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rounds", "writers"))
    parser.add_argument("number", type=int, nargs="?", help="rounds (default 200) or writers (default 1000)")
    parser.add_argument("--dir", type=Path, help="directory for everything that is written (default: a temporary one)")
    parser.add_argument("--proxies", action="store_true", help="rounds over loopback, not in network namespaces")
    parser.add_argument("--seed", type=int, default=25, help="of the rounds")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the writers")
    parser.add_argument("--server", choices=sorted(writers.SERVERS), default="barograph", help="that the writers use")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir, prefix="ingest-") as folder:
        if options.what == "rounds":
            return rounds.run(options.number or 200, Path(folder), options.seed, options.proxies)
        return writers.run(options.server, options.number or 1000, options.seconds, Path(folder))


if __name__ == "__main__":
    sys.exit(main())
