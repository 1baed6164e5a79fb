"""The names of real logs are known as the logs have them, not only as their reference columns do.

The logs are found through BAROGRAPH_REALRUNS (default ../shared/realruns); without them these tests are skipped.
"""

from pathlib import Path

import pytest

from barograph.importers.opening import open_run
from barograph.importers.summary import run_names
from checked_runs import CHECKED, FOLDER

LOGS = sorted(path for path in FOLDER.glob("*/*") if path.parent.name in CHECKED and path.name != "series.csv")


@pytest.mark.skipif(not LOGS, reason=f"no logs in {FOLDER}; set BAROGRAPH_REALRUNS")
@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.parent.name)
def test_names_are_known(log: Path):
    """At least 95 %, none of them ambiguous."""
    names = run_names(open_run(log))
    assert len(names.known) >= 0.95 * len(names.names), names.unknown
    assert names.ambiguous == []
