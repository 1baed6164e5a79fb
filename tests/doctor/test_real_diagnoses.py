"""Diagnoses of real runs agree with what people have judged from the curves.

The logs are found through BAROGRAPH_REALRUNS (default ../shared/realruns); without them these tests are skipped.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barograph.diagnosis.diagnose import Diagnosis, Visit, diagnose
from barograph.importers.opening import open_run
from barograph.journal.findings import Finding
from checked_runs import CHECKED, FOLDER

JUDGED = json.loads((FOLDER / "truth.json").read_text()) if (FOLDER / "truth.json").exists() else []
TRUTH = [judged for judged in JUDGED if judged["id"] in CHECKED]


def with_explained(found: tuple[Finding, ...]) -> Iterator[Finding]:
    """Yield findings and those that they explain."""
    for finding in found:
        yield finding
        yield from with_explained(finding.explains)


def fired(diagnosis: Diagnosis, *severities: str) -> set[str]:
    """Return the rules that have findings of some severities, now or before."""
    found = (*with_explained(diagnosis.findings), *diagnosis.past)
    return {finding.rule for finding in found if finding.severity in severities}


@pytest.fixture(params=TRUTH, ids=lambda truth: truth["id"])
def truth(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what is known about a run."""
    known: dict[str, Any] = request.param
    return known


def log_of(truth: dict[str, Any]) -> Path:
    """Return the log of a run: the file that is not the reference."""
    return next(path for path in (FOLDER / truth["id"]).iterdir() if path.name != "series.csv")


@pytest.mark.skipif(not TRUTH, reason=f"no logs in {FOLDER}; set BAROGRAPH_REALRUNS")
def test_a_run_is_judged_as_people_judge_it(truth: dict[str, Any]):
    """Unhealthy runs have a finding with the known cause; healthy ones have none above info, at no time."""
    case = Visit().case_of(open_run(log_of(truth)))
    diagnosis = diagnose(case)
    expected = {name.removesuffix("~"): name for name in truth["expected_findings"]}
    serious = fired(diagnosis, "warning", "critical")
    assert not serious & set(truth["must_not_fire"])
    open_ones = {finding.rule for finding in with_explained(diagnosis.findings) if finding.severity != "info"}
    assert not open_ones & set(truth["must_not_fire"])
    if truth["verdict"] == "healthy":
        assert open_ones == set()
        last = max(int(track.steps[-1]) for track in case.tracks.values())
        for share in (0.1, 0.25, 0.5):
            early = diagnose(case.upto(int(share * last)))
            assert early.verdict in ("healthy", "cannot tell"), (share, [one.rule for one in early.findings])
    else:
        assert serious & {rule for rule, name in expected.items() if name == rule}
        assert diagnosis.verdict in ("watch", "sick")
    assert expected.keys() <= fired(diagnosis, "info", "warning", "critical")
