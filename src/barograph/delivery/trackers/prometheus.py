"""Tracker that serves a run's last values to Prometheus."""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from barograph.base.errors import TrackerError
from barograph.base.formatting import json_number
from barograph.base.model import Row, RunInfo, Status
from barograph.delivery.trackers.payload import numbers, phase_times
from barograph.delivery.trackers.registry import require_package

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PORT = 9464
BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0)


class PrometheusTracker:
    """Serves ``http://host:port/metrics``: a gauge per metric, the step, run information and phase durations.

    ``actor/lr`` is exported as ``barograph_actor_lr{name="actor/lr", …}``; the label ``name`` is the logged name. The
    default host is this machine only; port 0 selects a free port.

    A mark contains all exported values, so that a restarted endpoint shows the same and counts no phase twice. A row of
    a lower step than the exported one is ignored. Prometheus has no texts, histograms of values or samples: they are
    counted in ``skipped``.
    """

    in_process: ClassVar[bool] = False

    def __init__(self, port: int = PORT, host: str = "127.0.0.1") -> None:
        require_package("prometheus", "prometheus_client")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
            raise TrackerError(f"tracker 'prometheus': port must be from 0 (any free port) to 65535; got {port!r}")
        self.url: str | None = None
        self.skipped = 0
        self._port, self._host = port, host
        self._lock = threading.Lock()  # rows arrive while the endpoint is scraped
        self._last: dict[tuple[str, str], tuple[int, int, float]] = {}  # (writer, name): attempt, step, value
        self._phases: dict[tuple[str, str, str], list[float]] = {}  # (writer, phase, part): counts per bucket, sum

    def start(self, info: RunInfo, config: Mapping[str, Any], folder: Path) -> None:
        """Open the endpoint."""
        from prometheus_client import CollectorRegistry, start_http_server

        self._info = info
        # Not the default registry: it also has metrics of Python and the process, which would be those of the relay.
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
        """Export the values of these rows."""
        with self._lock:
            for row in rows:
                self._update(row)

    def finish(self, status: Status) -> None:
        """Close the endpoint."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def mark(self) -> dict[str, Any]:
        """Return all exported values."""
        last = [[*key, attempt, step, json_number(value)] for key, (attempt, step, value) in self._last.items()]
        return {"last": last, "phases": [[*key, *map(json_number, counts)] for key, counts in self._phases.items()]}

    def rewind(self, mark: Mapping[str, Any]) -> None:
        """Export the values of the mark."""
        with self._lock:
            self._last = {(w, name): (a, step, float(value)) for w, name, a, step, value in mark.get("last", ())}
            self._phases = {
                (w, phase, part): [*map(float, counts)] for w, phase, part, *counts in mark.get("phases", ())
            }

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families; ``prometheus_client`` calls this for each scrape."""
        with self._lock:  # copy, so that a slow scrape does not block rows
            last = dict(self._last)
            phases = {key: list(counts) for key, counts in self._phases.items()}
        yield from self._gauges(last)
        yield self._steps(last)
        yield self._phase_seconds(phases)
        yield self._run_info()

    def _update(self, row: Row) -> None:
        self.skipped += len(row.texts) + len(row.histograms) + len(row.samples)
        for name, value in numbers(row).items():
            key = (str(row.writer), name)
            # A new attempt replaces values of the old one, also at lower steps.
            if (row.writer.attempt, row.step) >= self._last.get(key, (0, row.step))[:2]:
                self._last[key] = (row.writer.attempt, row.step, value)
        for phase, parts in phase_times(row.values).items():
            for part, seconds in parts.items():
                counts = self._phases.setdefault((str(row.writer), phase, part), [0.0] * (len(BUCKETS) + 2))
                # A bucket includes its upper bound (``le``).
                counts[bisect_left(BUCKETS, seconds)] += 1
                counts[-1] += seconds

    def _gauges(self, last: Mapping[tuple[str, str], tuple[int, int, float]]) -> Iterator[Metric]:
        from prometheus_client.core import GaugeMetricFamily

        families: dict[str, GaugeMetricFamily] = {}
        for (writer, name), (_, _, value) in last.items():
            clean = "barograph_" + re.sub(r"[^a-zA-Z0-9]+", "_", name).strip("_")
            if clean not in families:
                families[clean] = GaugeMetricFamily(clean, "Last value.", labels=["name", *self._labels()])
            families[clean].add_metric([name, *self._labels(writer)], value)
        yield from families.values()

    def _steps(self, last: Mapping[tuple[str, str], tuple[int, int, float]]) -> Metric:
        from prometheus_client.core import GaugeMetricFamily

        newest: dict[str, tuple[int, int]] = {}
        for (writer, _), (attempt, step, _) in last.items():
            newest[writer] = max(newest.get(writer, (attempt, step)), (attempt, step))
        family = GaugeMetricFamily("barograph_run_step", "Last step.", labels=self._labels())
        for writer, (_, step) in newest.items():
            family.add_metric(self._labels(writer), step)
        return family

    def _phase_seconds(self, phases: Mapping[tuple[str, str, str], list[float]]) -> Metric:
        from prometheus_client.core import HistogramMetricFamily

        labels = ["phase", "part", *self._labels()]
        family = HistogramMetricFamily("barograph_phase_seconds", "Duration of phases.", labels=labels)
        edges = [*map(str, BUCKETS), "+Inf"]
        for (writer, phase, part), counts in phases.items():
            # Prometheus' buckets are cumulative.
            below = [sum(counts[: index + 1]) for index in range(len(edges))]
            family.add_metric([phase, part, *self._labels(writer)], list(zip(edges, below, strict=True)), counts[-1])
        return family

    def _run_info(self) -> Metric:
        from prometheus_client.core import InfoMetricFamily

        info = self._info
        labels = {"run": info.id, "project": info.project, "run_name": info.name, "group": info.group or ""}
        return InfoMetricFamily("barograph_run", "Run information.", value={**labels, "tags": ",".join(info.tags)})

    def _labels(self, writer: str | None = None) -> list[str]:
        """Return the names of the common labels, or their values for a writer."""
        if writer is None:
            return ["run", "project", "writer"]
        return [self._info.id, self._info.project, writer]
