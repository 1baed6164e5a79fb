"""Reading at scale: every row of the table in docs/performance.md, measured at several sizes.

A row is made and measured in processes of their own, barograph first, then TensorBoard and trackio where they can do
the same. A number at the largest size is compared with what it should be, and growth with that of the size.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from reading_rows.table import PEAK, Bar, Numbers, Row, Subject, peak_mebibytes

MODULES = ("views", "index", "list", "bounded")  # of reading_rows; one that is missing has no rows
PACKAGES = {"TensorBoard": "tensorboard", "trackio": "trackio"}
OURS = "barograph"
MAX_SECONDS = 1800.0  # of one measurement


def all_rows() -> list[Row]:
    """Return the rows of all modules."""
    names = [f"reading_rows.{module}" for module in MODULES]
    return [row for name in names if find_spec(name) is not None for row in import_module(name).ROWS]


def subjects(row: Row, alone: bool) -> Iterator[tuple[str, Subject]]:
    """Yield barograph and the trackers that it is compared with, unless they are not installed."""
    yield OURS, row.barograph
    for name, subject in {} if alone else row.peers.items():
        if find_spec(PACKAGES[name]) is None:
            print(f"  {name} is not installed", file=sys.stderr)
            continue
        yield name, subject


def measured(row: Row, who: str, size: int, dir: Path) -> Numbers:
    """Make and measure a size of a row in new processes; remove what was made."""
    folder = dir / f"{row.name}-{who}-{size}"
    folder.mkdir(parents=True)
    environment = {**os.environ, "TMPDIR": str(folder), "HOME": str(folder)}
    try:
        for what in ("make", "measure"):
            print(f"  {row.name}: {what} {size:,} {row.unit} of {who} …", file=sys.stderr, flush=True)
            command = [sys.executable, __file__, "--work", what, row.name, who, str(size), str(folder)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment, timeout=MAX_SECONDS)
        numbers: Numbers = json.loads(done.stdout.splitlines()[-1])
        return numbers
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def work(what: str, name: str, who: str, size: str, folder: str) -> None:
    """Make or measure in this process; print the numbers."""
    row = next(row for row in all_rows() if row.name == name)
    subject = row.barograph if who == OURS else row.peers[who]
    if what == "make":
        subject.make(int(size), Path(folder))
        return
    numbers = subject.measure(int(size), Path(folder))
    peak = {PEAK: peak_mebibytes()} if any(bar.number == PEAK for bar in row.should_be) else {}
    print(json.dumps({**numbers, **peak}))


def report(row: Row, options: argparse.Namespace) -> bool:
    """Measure a row and print it; return whether everything is as it should be."""
    sizes = options.sizes or (options.full and row.full) or row.sizes
    print(f"\n{row.what}", flush=True)
    holds = True
    for who, _ in subjects(row, options.alone):
        found = {size: measured(row, who, size, options.dir) for size in sorted(sizes)}
        bars = row.should_be if who == OURS else ()
        print_numbers(who, row.unit, found, bars)
        holds = holds and all(bar.holds(found) for bar in bars)
    return holds


def print_numbers(who: str, unit: str, found: dict[int, Numbers], bars: Sequence[Bar]) -> None:
    """Print the numbers by size, and behind each what it should be."""
    print(f"  {who + ', ' + unit:32}" + "".join(f"{size:>12,}" for size in found))
    for name in dict.fromkeys(name for numbers in found.values() for name in numbers):
        cells = "".join(f"{_rounded(numbers.get(name, float('nan'))):>12}" for numbers in found.values())
        verdicts = [f"{bar} {'holds' if bar.holds(found) else 'DOES NOT HOLD'}" for bar in bars if bar.number == name]
        print(f"    {name:30}{cells}   {', '.join(verdicts)}".rstrip())


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure reading at scale, and compare it with what it should be.",
        epilog="example: reading.py --only phases --sizes 1000 2000 --alone",
    )
    parser.add_argument("--only", action="append", metavar="ROW", help="one row; may be given several times")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    parser.add_argument("--sizes", type=int, nargs="+", help="other sizes than those of the rows")
    parser.add_argument("--full", action="store_true", help="the largest sizes: some rows take many minutes")
    parser.add_argument("--alone", action="store_true", help="without TensorBoard and trackio")
    parser.add_argument("--dir", type=Path, help="where data is made and removed (default: a temporary directory)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 unless all is as it should be")
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)  # run as a measuring process
    return parser.parse_args()


def chosen(names: Sequence[str] | None) -> list[Row]:
    rows = all_rows()
    known = [row.name for row in rows]
    if unknown := [name for name in names or () if name not in known]:
        raise SystemExit(f"reading: no row {', '.join(unknown)}; rows: {', '.join(known)}")
    return [row for row in rows if not names or row.name in names]


def main() -> int:
    options = arguments()
    if options.work:
        work(*options.work)
        return 0
    rows = chosen(options.only)
    if options.list:
        print("\n".join(f"{row.name:20}{row.what}" for row in rows))
        return 0
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.platform()}")
    with tempfile.TemporaryDirectory(prefix="reading-") as scratch:
        options.dir = options.dir or Path(scratch)
        kept = [report(row, options) for row in rows]
    return int(options.strict and not all(kept))


if __name__ == "__main__":
    sys.exit(main())
