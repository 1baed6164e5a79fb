"""Show one run: the doctor's verdict and the vital signs first, then warnings, facts, configuration and metrics.

Of a run with many metrics their number is said by family: --metrics shows the last values of some, with units, extremes
and sparklines that keep spikes, and --all shows everything.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from windsock.cli.arguments import add_json, add_language, add_metrics, add_run, run_view
from windsock.cli.json_output import print_document
from windsock.formatting import json_number
from windsock.relay.delivery_state import DeliveryState, read_delivery_states
from windsock.view import View

HELP = "show a run: verdict, vital signs, config, last values"
EXAMPLE = "windsock show @last\n  windsock show @last --metrics 'critic/*'"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``windsock show``."""
    add_run(parser)
    add_metrics(parser)
    parser.add_argument("--source", metavar="SOURCE", help="framework that wrote the names, such as trl/rloo")
    parser.add_argument("--all", action="store_true", help="show all metrics and settings")
    add_language(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print the run."""
    view = run_view(options, options.source)
    names = view.names(options.metrics or "*")
    if options.json:
        print_document("show", _record(view, names))
        return 0
    from windsock.terminal.output import make_console
    from windsock.terminal.show import Shown, show

    show(make_console(), view, Shown(options.run_reference, names, bool(options.metrics), options.all, options.lang))
    return 0


def _record(view: View, names: list[str]) -> dict[str, object]:
    from windsock.diagnosis.doctor import Visit
    from windsock.moments import moments
    from windsock.summary import run_names, run_warnings
    from windsock.terminal.run_facts import open_phases
    from windsock.terminal.values import unit_of

    status, meanings = view.status, run_names(view)
    diagnosis = Visit().diagnose(view, meanings)
    return {
        **asdict(view.info),
        "status": status.word,
        "reason": status.reason,
        "verdict": diagnosis.verdict,
        "findings": [finding.record() for finding in diagnosis.findings],
        "steps": view.steps,
        "span": view.span,
        "writers": {str(writer): status.word for writer, status in view.writer_statuses().items()},
        "path": str(view.location),
        "origin": None if view.origin is None else asdict(view.origin),
        "trackers": [_delivery(state) for state in read_delivery_states(view.path)],
        "open_phases": open_phases(view),
        "moments": [asdict(moment) for moment in moments(view)],
        "config": view.config,
        "environment": view.environment,
        "notices": run_warnings(view),
        "source": meanings.source,
        "unknown": meanings.unknown,
        "ambiguous": {name: meanings.resolve(name).meanings for name in meanings.ambiguous},
        "crucial": [
            {"key": sign.key, "name": sign.name, "verdict": sign.word, "text": sign.text.en} for sign in diagnosis.signs
        ],
        "last": {name: _last(view, name, unit_of(meanings.match(name))) for name in names},
    }


def _delivery(state: DeliveryState) -> dict[str, object]:
    return {key: value for key, value in asdict(state).items() if key not in ("places", "mark", "session")}


def _last(view: View, name: str, unit: str) -> dict[str, object]:
    series = view.series(name)
    return {"step": int(series.steps[-1]), "value": json_number(series.last), "points": len(series), "unit": unit}
