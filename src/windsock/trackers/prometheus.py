"""The last values of a run as an endpoint that Prometheus scrapes and Grafana shows."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from windsock.errors import TrackerError
from windsock.formatting import json_number
from windsock.model import Row, RunInfo, Status
from windsock.trackers.forms import numbers, phases
from windsock.trackers.packages import require

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PORT = 9464
BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)


class PrometheusTracker:
    """Serves ``http://host:port/metrics``: a gauge for each metric, the step, the run, and the time that phases take.

    ``actor/lr`` is ``windsock_actor_lr{name="actor/lr", …}``: the label ``name`` holds what was logged. ``host`` is
    this machine alone unless it is told otherwise; port 0 takes any free one.

    Marks hold all that is shown, so that the endpoint shows the same after a restart and counts no phase twice. A row
    of a lower step than the one shown changes nothing. Texts, histograms and samples have no place in Prometheus: they
    are counted in ``skipped``.
    """

    in_process: ClassVar[bool] = False

    def __init__(self, port: int = PORT, host: str = "127.0.0.1") -> None:
        require("prometheus", "prometheus_client")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
            raise TrackerError(f"tracker 'prometheus': port {port!r}; expected a number from 0 (any free one) to 65535")
        self.url: str | None = None
        self.skipped = 0
        self._port, self._host = port, host
        self._lock = threading.Lock()  # rows come while the endpoint is read
        self._last: dict[tuple[str, str], tuple[int, int, float]] = {}  # by writer and name: attempt, step, value
        self._phases: dict[tuple[str, str, str], list[float]] = {}  # by writer, phase and part: counts, then the sum

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Open the endpoint."""
        from prometheus_client import CollectorRegistry, start_http_server

        self._info = info
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(self._port, self._host, registry)
        except OSError as problem:
            where = f"{self._host}:{self._port}"
            raise TrackerError(
                f"tracker 'prometheus' cannot listen on {where}: {problem.strerror}; choose another port"
            ) from problem
        self.url = f"http://{self._host}:{self._server.server_port}/metrics"

    def log(self, rows: Sequence[Row]) -> None:
        """Show these rows instead of those before."""
        with self._lock:
            for row in rows:
                self._take(row)

    def finish(self, status: Status) -> None:
        """Close the endpoint."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def mark(self) -> dict[str, Any]:
        """Return all that is shown."""
        last = [[*key, attempt, step, json_number(value)] for key, (attempt, step, value) in self._last.items()]
        return {"last": last, "phases": [[*key, *map(json_number, kept)] for key, kept in self._phases.items()]}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Show what was shown at the mark."""
        with self._lock:
            self._last = {(w, name): (a, step, float(value)) for w, name, a, step, value in mark.get("last", ())}
            self._phases = {(w, phase, part): [*map(float, kept)] for w, phase, part, *kept in mark.get("phases", ())}

    def collect(self) -> Iterator[Metric]:
        """Yield the families of metrics, as ``prometheus_client`` asks for them."""
        with self._lock:
            last = dict(self._last)
            phases = {key: list(kept) for key, kept in self._phases.items()}
        yield from self._gauges(last)
        yield self._steps(last)
        yield self._phase_seconds(phases)
        yield self._run_info()

    def _take(self, row: Row) -> None:
        self.skipped += len(row.texts) + len(row.histograms) + len(row.samples)
        for name, value in numbers(row).items():
            key = (str(row.writer), name)
            if (row.writer.attempt, row.step) >= self._last.get(key, (0, row.step))[:2]:
                self._last[key] = (row.writer.attempt, row.step, value)
        for phase, parts in phases(row.values).items():
            for part, seconds in parts.items():
                kept = self._phases.setdefault((str(row.writer), phase, part), [0.0] * (len(BUCKETS) + 2))
                kept[bisect_left(BUCKETS, seconds)] += 1
                kept[-1] += seconds

    def _gauges(self, last: Mapping[tuple[str, str], tuple[int, int, float]]) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, GaugeMetricFamily] = {}
        for (writer, name), (_, _, value) in last.items():
            clean = "windsock_" + re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")
            if clean not in families:
                families[clean] = GaugeMetricFamily(clean, "Last value.", labels=["name", *self._labels()])
            families[clean].add_metric([name, *self._labels(writer)], value)
        yield from families.values()

    def _steps(self, last: Mapping[tuple[str, str], tuple[int, int, float]]) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        newest: dict[str, tuple[int, int]] = {}
        for (writer, _), (attempt, step, _) in last.items():
            newest[writer] = max(newest.get(writer, (attempt, step)), (attempt, step))
        family = GaugeMetricFamily("windsock_run_step", "Last step.", labels=self._labels())
        for writer, (_, step) in newest.items():
            family.add_metric(self._labels(writer), step)
        return family

    def _phase_seconds(self, phases: Mapping[tuple[str, str, str], list[float]]) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        labels = ["phase", "part", *self._labels()]
        family = HistogramMetricFamily("windsock_phase_seconds", "Time that phases of a step take.", labels=labels)
        edges = [*map(str, BUCKETS), "+Inf"]
        for (writer, phase, part), kept in phases.items():
            below = [sum(kept[: place + 1]) for place in range(len(edges))]
            family.add_metric([phase, part, *self._labels(writer)], list(zip(edges, below, strict=True)), kept[-1])
        return family

    def _run_info(self) -> Metric:
        from prometheus_client.core import InfoMetricFamily

        info = self._info
        words = {"run": info.id, "project": info.project, "run_name": info.name, "group": info.group or ""}
        return InfoMetricFamily("windsock_run", "Who the run is.", value={**words, "tags": ",".join(info.tags)})

    def _labels(self, writer: str | None = None) -> list[str]:
        """Return the names of the labels that all values share, or the labels of a writer's."""
        if writer is None:
            return ["run", "project", "writer"]
        return [self._info.id, self._info.project, writer]
