"""How often the doctor is right, on real runs that people have judged and on runs of the demo; and how fast it is.

    scripts/bench doctor judge FOLDER --demos DIR           # tables; DIR keeps the demo's runs
    scripts/bench doctor judge FOLDER --demos DIR --write   # also the figures of docs/doctor.md
    scripts/bench doctor speed

FOLDER has a truth.json and a folder per run with its log ($BAROGRAPH_REALRUNS if not given). truth.json is a list with
id, framework, verdict (healthy, mixed, plateau or unhealthy), expected_findings (rules, with ~ if info is enough) and
must_not_fire of each run.

A rule is right if it fires where it is expected, with at least its severity (hit), and gives no warning on a healthy
run, neither at its end nor at 10, 25 and 50 % of it, nor where it must not fire (silent). Other findings on runs that
are not healthy are not counted: what people wrote need not be all that is wrong. When the demo's faults begin, and when
they are named, is measured by benchmarks/demo_diagnoses.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from judged_runs import rates_file, speed
from judged_runs.outcomes import EARLY, END, Answers, Rates, alarms, answers, rates_of_rule, rates_of_runs, run_outcome
from judged_runs.outcomes import said_enough as is_found
from judged_runs.runs import CRITICAL, HEALTHY, JudgedRun, demo_runs, make_demos, real_runs
from judged_runs.thresholds import FACTORS, LeftOut, left_out, scaled_rules
from peers import rlwatch

from barograph.diagnosis.rules import RULES

OUTCOMES = ("hit", "miss", "false alarm", "silent", "cannot judge")
TIMES = (*EARLY, END)
Row = Sequence[object]
Found = Mapping[str, Answers]


def print_table(title: str, rows: Iterable[Row]) -> None:
    """Print a table with aligned columns."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    print(f"\n{title}")
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def rule_rows(runs: Sequence[JudgedRun], found: Found) -> Iterator[Row]:
    """Yield a row per rule with its outcomes, and its alarms on healthy runs by the share that it has seen."""
    yield ("", *OUTCOMES, *(f"alarm at {share:.0%}" for share in TIMES))
    for rule in RULES:
        yield (rule, *_cells(rates_of_rule(rule, runs, found)))
    yield ("all, by run", *_cells(rates_of_runs(runs, found)))


def _cells(rates: Rates) -> list[object]:
    return [count or "." for count in (*(rates[outcome] for outcome in OUTCOMES), *rates.early.values())]


def wrong_rows(runs: Sequence[JudgedRun], found: Found) -> Iterator[Row]:
    """Yield the runs about which something is wrong."""
    yield ("run", "verdict", "outcome", "expected and not found", "found and not expected")
    for run in runs:
        missing = [rule for rule in run.expected if not is_found(rule, run, found[run.id])]
        said = {rule for share in found[run.id] for rule in alarms(found[run.id], share)}
        wrong = sorted(said if run.verdict == HEALTHY else said & run.forbidden)
        if missing or wrong:
            yield run.id, run.verdict, run_outcome(run, found[run.id]), ", ".join(missing), ", ".join(wrong)


def peer_rows(runs: Sequence[JudgedRun], found: Found, sent: rates_file.Sent) -> Iterator[Row]:
    """Yield on how many runs the doctor and rlwatch warn, whatever the cause; on healthy ones also before the end."""
    yield ("", "runs", "who", *(f"at {share:.0%}" for share in TIMES), "critical")
    for verdict in dict.fromkeys(run.verdict for run in runs):
        own = [run for run in runs if run.verdict == verdict]
        times = TIMES if verdict == HEALTHY else (END,)
        blank = [""] * (len(TIMES) - len(times))
        ours = [sum(bool(alarms(found[run.id], share)) for run in own) for share in times]
        grave = sum(any(said.now == CRITICAL for said in found[run.id][END].values()) for run in own)
        yield verdict, len(own), "doctor", *blank, *ours, grave
        theirs = [sum(any(alert.step <= upto(run, share) for alert in sent[run.id]) for run in own) for share in times]
        grave = sum(any(alert.severity == "critical" for alert in sent[run.id]) for run in own)
        yield "", "", "rlwatch", *blank, *theirs, grave


def upto(run: JudgedRun, share: float) -> float:
    """Return the last step of a share of a run."""
    ends = [int(track.steps[place]) for track in run.case.tracks.values() if len(track) for place in (0, -1)]
    return min(ends) + share * (max(ends) - min(ends))


def detector_rows(runs: Sequence[JudgedRun], sent: rates_file.Sent) -> Iterator[Row]:
    """Yield on how many runs of a kind each detector of rlwatch sends an alert."""
    verdicts = list(dict.fromkeys(run.verdict for run in runs))
    yield ("rlwatch's detector", *verdicts)
    for detector in sorted({alert.detector for run in runs for alert in sent[run.id]}):
        kinds = Counter(run.verdict for run in runs if any(alert.detector == detector for alert in sent[run.id]))
        yield (detector, *(kinds[verdict] for verdict in verdicts))


def left_out_rows(left: Iterable[LeftOut]) -> Iterator[Row]:
    """Yield a row per framework that is left out."""
    yield [field.name.replace("_", " ") for field in fields(LeftOut)]
    yield from (astuple(one) for one in left)


def judge(options: argparse.Namespace) -> int:
    """Print the tables."""
    folder = options.folder or os.environ.get("BAROGRAPH_REALRUNS")
    if folder is None and options.demos is None:
        print("give FOLDER, $BAROGRAPH_REALRUNS or --demos")
        return 2
    if options.demos is not None and not options.known:
        make_demos(options.demos, options.seeds)
    runs = [*(real_runs(Path(folder)) if folder else ()), *(demo_runs(options.demos) if options.demos else ())]
    by_factor = {factor: _all_answers(runs, factor) for factor in FACTORS}
    found = by_factor[1.0]
    sent = {run.id: rlwatch.alerts(run.case, run.id) for run in runs}
    for origin in dict.fromkeys(run.origin for run in runs):
        own = [run for run in runs if run.origin == origin]
        kinds = ", ".join(
            f"{sum(run.verdict == kind for run in own)} {kind}" for kind in dict.fromkeys(r.verdict for r in own)
        )
        print_table(f"{origin} runs ({kinds})", rule_rows(own, found))
        print_table(f"{origin} runs about which something is wrong", wrong_rows(own, found))
        print_table(f"{origin} runs with a warning or worse", peer_rows(own, found, sent))
        print_table(f"{origin} runs with an alert, by detector", detector_rows(own, sent))
    left = left_out(runs, by_factor)
    print_table("thresholds chosen on the other frameworks", left_out_rows(left))
    if options.write:
        rates_file.write(runs, found, left, sent)
        print(f"\nwrote {rates_file.PATH}; now run python -m barograph.diagnosis")
    return 0


def _all_answers(runs: Iterable[JudgedRun], factor: float) -> dict[str, Answers]:
    rules = RULES if factor == 1.0 else scaled_rules(factor)
    return {run.id: answers(run, rules) for run in runs}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    judging = commands.add_parser("judge", help="compare with what is known about runs")
    judging.add_argument("folder", type=Path, nargs="?", help="folder with truth.json ($BAROGRAPH_REALRUNS)")
    judging.add_argument("--demos", type=Path, metavar="DIR", help="runs of the demo; those that it lacks are trained")
    judging.add_argument("--seeds", type=int, default=8, help="healthy runs of the demo (default %(default)s)")
    judging.add_argument("--known", action="store_true", help="train nothing: only the demo's runs that are there")
    judging.add_argument("--write", action="store_true", help="write the figures of docs/doctor.md")
    judging.set_defaults(run=judge)
    speed.add_arguments(commands.add_parser("speed", help="time the command and a live step"))
    return parser.parse_args()


def main() -> int:
    options = arguments()
    return int(options.run(options))


if __name__ == "__main__":
    sys.exit(main())
