"""windsock records, checks and shows what happens inside a reinforcement-learning post-training run.

::

    import windsock

    run = windsock.init(project="roll-agentic", name="frozen_lake")
    for step in range(100):
        run.log({"actor/lr": 1e-6, "critic/score/mean": score})
        run.commit(step)
    run.finish()

    view = windsock.open("@last")
    view.series("critic/score/mean").values
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.2.0"

if TYPE_CHECKING:
    from windsock.catalogue.define import define
    from windsock.catalogue.spec import Band, Difference, Metric, MetricName, RelatedMetric, Text, Trap
    from windsock.catalogue.translate import translate
    from windsock.diagnosis.doctor import doctor
    from windsock.errors import (
        JournalError,
        LogError,
        MetricNotFoundError,
        RunNotFoundError,
        SettingsError,
        TrackerError,
        WindsockError,
    )
    from windsock.integrations.notebook import display_run as display_run
    from windsock.integrations.notebook import run_html as run_html
    from windsock.integrations.notebook import up
    from windsock.integrations.trl import watch
    from windsock.journal.series import Buckets, Series
    from windsock.measurement.batch import Batch
    from windsock.measurement.step import measure
    from windsock.model import Histogram, Row, RunInfo, Status
    from windsock.opening import open_run as open
    from windsock.run import Run
    from windsock.scalars import histogram
    from windsock.session import init, join, log
    from windsock.trackers.protocol import Tracker
    from windsock.view import View

_HOMES = {
    "Band": "catalogue.spec",
    "Batch": "measurement.batch",
    "Buckets": "journal.series",
    "Difference": "catalogue.spec",
    "Histogram": "model",
    "JournalError": "errors",
    "LogError": "errors",
    "Metric": "catalogue.spec",
    "MetricName": "catalogue.spec",
    "MetricNotFoundError": "errors",
    "RelatedMetric": "catalogue.spec",
    "Row": "model",
    "Run": "run",
    "RunInfo": "model",
    "RunNotFoundError": "errors",
    "Series": "journal.series",
    "SettingsError": "errors",
    "Status": "model",
    "Text": "catalogue.spec",
    "Tracker": "trackers.protocol",
    "TrackerError": "errors",
    "Trap": "catalogue.spec",
    "View": "view",
    "WindsockError": "errors",
    "define": "catalogue.define",
    "doctor": "diagnosis.doctor",
    "histogram": "scalars",
    "init": "session",
    "join": "session",
    "log": "session",
    "measure": "measurement.step:measure",
    "open": "opening:open_run",
    "translate": "catalogue.translate",
    "up": "integrations.notebook",
    "watch": "integrations.trl",
    # Not public: how a notebook shows a run, for modules on levels below.
    "display_run": "integrations.notebook",
    "run_html": "integrations.notebook",
}
"""Where each public name lives; it is imported when it is first used, so that ``import windsock`` costs nothing."""

__all__ = [
    "Band", "Batch", "Buckets", "Difference", "Histogram", "JournalError", "LogError", "Metric", "MetricName",
    "MetricNotFoundError", "RelatedMetric", "Row", "Run", "RunInfo", "RunNotFoundError", "Series", "SettingsError",
    "Status", "Text", "Tracker", "TrackerError", "Trap", "View", "WindsockError", "__version__", "define", "doctor",
    "histogram", "init", "join", "log", "measure", "open", "translate", "up", "watch",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'windsock' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(import_module(f"windsock.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
