"""barograph records, checks and shows what happens inside a reinforcement-learning post-training run.

::

    import barograph

    run = barograph.init(project="roll-agentic", name="frozen_lake")
    for step in range(100):
        run.log({"actor/lr": 1e-6, "critic/score/mean": score})
        run.commit(step)
    run.finish()

    view = barograph.open("@last")
    view.series("critic/score/mean").values
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barograph.base import __version__
from barograph.base.displayed import Displayed

if TYPE_CHECKING:
    from barograph.base.errors import (
        BarographError,
        JournalError,
        LogError,
        MetricNotFoundError,
        RunNotFoundError,
        SettingsError,
        TrackerError,
    )
    from barograph.base.model import Histogram, Row, RunInfo, Status
    from barograph.base.scalars import histogram
    from barograph.catalogue.spec import Band, Difference, Metric, MetricName, RelatedMetric, Text, Trap
    from barograph.catalogue.translate import translate
    from barograph.catalogue.user_metrics import define
    from barograph.diagnosis.diagnose import doctor
    from barograph.importers.opening import open_run as open
    from barograph.integrations.frameworks.trl import watch
    from barograph.integrations.notebook import up
    from barograph.journal.read.series import Buckets, Series
    from barograph.journal.view import View
    from barograph.metrics.batch.arrays import Batch
    from barograph.metrics.batch.step import measure
    from barograph.recording.run import Run
    from barograph.recording.tracker import Tracker
    from barograph.session import init, join, log

_HOMES = {
    "Band": "catalogue.spec",
    "Batch": "metrics.batch.arrays",
    "Buckets": "journal.read.series",
    "Difference": "catalogue.spec",
    "Histogram": "base.model",
    "JournalError": "base.errors",
    "LogError": "base.errors",
    "Metric": "catalogue.spec",
    "MetricName": "catalogue.spec",
    "MetricNotFoundError": "base.errors",
    "RelatedMetric": "catalogue.spec",
    "Row": "base.model",
    "Run": "recording.run",
    "RunInfo": "base.model",
    "RunNotFoundError": "base.errors",
    "Series": "journal.read.series",
    "SettingsError": "base.errors",
    "Status": "base.model",
    "Text": "catalogue.spec",
    "Tracker": "recording.tracker",
    "TrackerError": "base.errors",
    "Trap": "catalogue.spec",
    "View": "journal.view",
    "BarographError": "base.errors",
    "define": "catalogue.user_metrics",
    "doctor": "diagnosis.diagnose",
    "histogram": "base.scalars",
    "init": "session",
    "join": "session",
    "log": "session",
    "measure": "metrics.batch.step:measure",
    "open": "importers.opening:open_run",
    "translate": "catalogue.translate",
    "up": "integrations.notebook",
    "watch": "integrations.frameworks.trl",
}
"""Where each public name lives; it is imported when it is first used, so that ``import barograph`` costs nothing."""

__all__ = [
    "Band",
    "BarographError",
    "Batch",
    "Buckets",
    "Difference",
    "Histogram",
    "JournalError",
    "LogError",
    "Metric",
    "MetricName",
    "MetricNotFoundError",
    "RelatedMetric",
    "Row",
    "Run",
    "RunInfo",
    "RunNotFoundError",
    "Series",
    "SettingsError",
    "Status",
    "Text",
    "Tracker",
    "TrackerError",
    "Trap",
    "View",
    "__version__",
    "define",
    "doctor",
    "histogram",
    "init",
    "join",
    "log",
    "measure",
    "open",
    "translate",
    "up",
    "watch",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'barograph' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(f"barograph.{module}"), attribute or name)
    globals()[name] = value
    return value


def _draw(function: str, run: Displayed) -> object:
    """Show a run with a function of the notebook integration, which is loaded then."""
    from barograph.integrations import notebook

    return getattr(notebook, function)(run)


Displayed._draw = staticmethod(_draw)


def __dir__() -> list[str]:
    return sorted(__all__)
