"""The figures of docs/doctor.md: how often each rule is right, in src/barograph/diagnosis/rates.toml."""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from peers.rlwatch import Alert

from barograph.diagnosis.rules import RULES
from judged_runs.outcomes import Answers, Rates, rates_of_rule, rates_of_runs
from judged_runs.runs import HEALTHY, UNHEALTHY, JudgedRun
from judged_runs.thresholds import LeftOut

PATH = Path(__file__).parents[2] / "src" / "barograph" / "diagnosis" / "rates.toml"
HEAD = "# How often the doctor's rules are right. Written by benchmarks/doctor.py judge --write.\n"


Sent = Mapping[str, Sequence[Alert]]
"""The alerts of rlwatch by the ids of runs."""


def write(runs: Sequence[JudgedRun], found: Mapping[str, Answers], left: Iterable[LeftOut], sent: Sent) -> None:
    """Write the figures."""
    PATH.write_text("\n".join([HEAD, *_lines(runs, found, left, sent), ""]), encoding="utf-8")


def _lines(
    runs: Sequence[JudgedRun], found: Mapping[str, Answers], left: Iterable[LeftOut], sent: Sent
) -> Iterator[str]:
    by_origin = {origin: [run for run in runs if run.origin == origin] for origin in ("real", "demo")}
    yield "[runs]"
    for origin, own in by_origin.items():
        yield f"{origin} = {_inline(Counter(run.verdict for run in own))}"
    yield "\n[overall]"
    for origin, own in by_origin.items():
        yield f"{origin} = {_inline(_overall(own, found))}"
    yield f'\n[rlwatch]\nversion = "{importlib.metadata.version("rlwatch")}"'
    for origin, own in by_origin.items():
        yield f"{origin} = {_inline(_warned(own, sent))}"
    for one in left:
        yield f"\n[[left_out]]\n{_pairs(asdict(one))}"
    for rule in RULES:
        yield f"\n[rules.{rule}]"
        for origin, own in by_origin.items():
            yield f"{origin} = {_inline(_of_rule(rates_of_rule(rule, own, found)))}"


def _overall(runs: Sequence[JudgedRun], found: Mapping[str, Answers]) -> dict[str, int]:
    sick = rates_of_runs([run for run in runs if run.verdict == UNHEALTHY], found)
    well = rates_of_runs([run for run in runs if run.verdict == HEALTHY], found)
    between = rates_of_runs([run for run in runs if run.verdict not in (HEALTHY, UNHEALTHY)], found)
    alarms = {"false_alarms": well["false alarm"]} | {f"at_{share:.0%}"[:-1]: n for share, n in well.early.items()}
    return {"found": sick["hit"], "between_right": between["hit"], **alarms}


def _warned(runs: Sequence[JudgedRun], sent: Sent) -> dict[str, int]:
    """Return on how many runs rlwatch sent an alert, and a critical one."""
    found = {}
    for verdict in (UNHEALTHY, HEALTHY):
        own = [sent[run.id] for run in runs if run.verdict == verdict]
        found[f"{verdict}_warned"] = sum(bool(alerts) for alerts in own)
        found[f"{verdict}_critical"] = sum(any(alert.severity == "critical" for alert in alerts) for alerts in own)
    return found


def _of_rule(rates: Rates) -> dict[str, int]:
    return {
        "hits": rates["hit"],
        "misses": rates["miss"],
        "false_alarms": rates["false alarm"],
        "silent": rates["silent"],
        "cannot_judge": rates["cannot judge"],
    }


def _inline(values: Mapping[str, int]) -> str:
    return "{ " + ", ".join(f"{name} = {value}" for name, value in values.items()) + " }"


def _pairs(values: Mapping[str, object]) -> str:
    return "\n".join(
        f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}" for name, value in values.items()
    )
