"""Train the demo healthy and with each fault, and draw the plots of docs/sick-runs.md from the journals.

    scripts/bench sick_runs                            # train all, draw, print the table
    scripts/bench sick_runs --dir DIR --only nan       # train one more in DIR, and draw all runs there

The plots of README.md and docs/sick-runs.md are docs/images/*.svg, written here.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

import barograph
from barograph.apps.demo.config import SICK_RUNS, DemoConfig, sick_config
from barograph.apps.demo.trainer import start_runs, train
from barograph.base.formatting import number
from barograph.catalogue.registry import REGISTRY, fill, vocabulary_name
from barograph.journal.format.folder import run_folders
from barograph.journal.read.series import Series

IMAGES = Path(__file__).parent.parent / "docs" / "images"
PHASES = {"slow-phase": "reward/compute_rewards", "memory-leak": "actor_train/train_step"}
AT_PEAK = {"lr-too-high"}  # the fault shows in the first step only
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LABEL = 460, 190, 62, 30, 28, 62
HEALTHY, SICK_COLOUR, INK = "#2a7f9e", "#c2452d", "#555555"


def metric_of(name: str) -> str:
    """Return the metric that shows a fault, in ROLL's vocabulary."""
    pattern = vocabulary_name(REGISTRY.metric(SICK_RUNS[name].shows_in), "roll").pattern
    return fill(pattern, (("phase", PHASES.get(name, "")), ("when", "end")))


def train_one(name: str, folder: Path) -> None:
    config = DemoConfig() if name == "healthy" else sick_config(DemoConfig(), name)
    run, explorer = start_runs(config, dir=folder, name=name)
    with run, explorer:
        train(config, run, explorer)


def runs_in(folder: Path) -> dict[str, barograph.View]:
    """Return the newest run of each name."""
    views = sorted((barograph.open(path) for path in run_folders(folder)), key=lambda view: view.info.created)
    return {view.name: view for view in views}


class Plot:
    """Series over steps as a small SVG with every point."""

    def __init__(self, title: str, drawn: Iterable[tuple[str, str, Series]], low: float | None = None) -> None:
        self.title = title
        self.drawn = list(drawn)
        values = np.concatenate([series.values[np.isfinite(series.values)] for _, _, series in self.drawn])
        self.low = float(values.min()) if low is None else low
        self.high = float(values.max())
        if self.high <= self.low:
            self.high = self.low + 1.0
        self.last = max(float(series.steps[-1]) for _, _, series in self.drawn) or 1.0

    def svg(self) -> str:
        """Return the SVG."""
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            'font-family="system-ui, sans-serif" font-size="11">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#ffffff"/>',
            self._text(LEFT, 18, self.title, weight="600"),
            *self._axes(),
        ]
        for place, (label, colour, series) in enumerate(self.drawn):
            label_at = WIDTH - 14 - LABEL * (len(self.drawn) - 1 - place)
            parts += [*self._line(colour, series), self._text(label_at, 18, label, colour, "end")]
        return "\n".join([*parts, "</svg>\n"])

    def _at(self, step: float, value: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - 14) * step / self.last
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)

    def _axes(self) -> Iterable[str]:
        for value in np.linspace(self.low, self.high, 3):
            (x, y), (end, _) = self._at(0, value), self._at(self.last, value)
            yield f'<path d="M{x:.1f} {y:.1f}H{end:.1f}" stroke="#e4e4e4"/>'
            yield self._text(LEFT - 6, y + 4, number(float(f"{value:.3g}")), anchor="end")
        for step in (0, self.last):
            yield self._text(
                self._at(step, self.low)[0], HEIGHT - 9, f"step {step:,.0f}", anchor="end" if step else "start"
            )

    def _line(self, colour: str, series: Series) -> Iterable[str]:
        """Yield paths of finite values, and a cross for each non-finite one."""
        stretch: list[str] = []
        for step, value in zip(series.steps.tolist(), series.values.tolist(), strict=True):
            if np.isfinite(value):
                x, y = self._at(step, value)
                stretch.append(f"{x:.1f} {y:.1f}")
                continue
            yield from self._stretch(colour, stretch)
            stretch = []
            x, y = self._at(step, self.low)
            yield f'<path d="M{x - 2:.1f} {y - 8:.1f}l4 4m0 -4l-4 4" stroke="{colour}"/>'
        yield from self._stretch(colour, stretch)

    @staticmethod
    def _stretch(colour: str, points: list[str]) -> Iterable[str]:
        if points:
            yield f'<path d="M{"L".join(points)}" fill="none" stroke="{colour}" stroke-width="1.6"/>'

    @staticmethod
    def _text(x: float, y: float, text: str, colour: str = INK, anchor: str = "start", weight: str = "400") -> str:
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}">{text}</text>'
        )


def draw(views: dict[str, barograph.View]) -> None:
    IMAGES.mkdir(exist_ok=True)
    healthy = views["healthy"]
    scores = [("validation", HEALTHY, healthy.series("val/score/mean"))]
    scores.append(("training", "#b0b0b0", healthy.series("critic/score/mean")))
    (IMAGES / "demo-score.svg").write_text(Plot("val/score/mean", scores, low=0.0).svg())
    for name in SICK_RUNS:
        if name in views:
            metric = metric_of(name)
            both = [("healthy", HEALTHY, healthy.series(metric)), ("sick", SICK_COLOUR, views[name].series(metric))]
            if name == "reward-hacking":
                score = views[name].series("critic/score/mean")
                both.append(("score / 10", "#e0a080", replace(score, values=score.values / 10)))  # on the same scale
            (IMAGES / f"sick-{name}.svg").write_text(Plot(metric, both).svg())


def last_value(view: barograph.View, metric: str, peak: bool) -> str:
    """Return the median of a series' last ten points, or its maximum."""
    values = view.series(metric).values
    return number(float(f"{values.max() if peak else np.median(values[-10:]):.3g}"))


def table(views: dict[str, barograph.View]) -> Iterable[str]:
    yield "| sick run | what is wrong | shows in | healthy | sick |"
    yield "|---|---|---|---|---|"
    for name, sickness in SICK_RUNS.items():
        if name in views:
            metric = metric_of(name)
            values = (last_value(views[one], metric, name in AT_PEAK) for one in ("healthy", name))
            yield f"| `{name}` | {sickness.reason} | `{metric}` | {' | '.join(values)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, help="directory of the runs; existing ones are not trained again")
    parser.add_argument("--only", nargs="*", help="train only these")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.dir or Path(temporary)
        known = runs_in(folder) if folder.exists() else {}
        for name in options.only if options.only is not None else ["healthy", *SICK_RUNS]:
            if name not in known or options.only:
                train_one(name, folder)
        views = runs_in(folder)
        draw(views)
        print(*table(views), sep="\n")


if __name__ == "__main__":
    main()
