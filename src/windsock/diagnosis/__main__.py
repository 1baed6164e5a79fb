"""Command for people who edit the rules: ``python -m windsock.diagnosis`` writes docs/doctor.md."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from windsock.diagnosis.reference_page import write


def main(arguments: list[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m windsock.diagnosis", description=__doc__)
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the pages (default: docs)")
    print(write(parser.parse_args(arguments).docs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
