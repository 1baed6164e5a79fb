"""Rows for the tracker tests: 200 steps of 100 values, with texts, histograms and samples."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from barograph.base.model import Histogram, Row, RunInfo, Sample, Writer

KEY = "0123456789abcdef0123456789abcdef01234567"  # as long as W&B's
TRAINER = Writer("trainer", 0, 1)
AGAIN = Writer("trainer", 0, 2)
INFO = RunInfo("run-7", "project", "frozen_lake", 1_700_000_000.25, group="g", tags=("a", "b"), notes="a note")
CONFIG = {"actor": {"lr": 1e-6, "betas": [0.9, 0.95]}, "seed": 7, "use_kl": True, "model": "qwen", "none": None}
ODD_NAMES = ("val/pass@8", "with space/and more", "a/very/deep/name/of/a/metric", "单位/奖励", "loss", "sel/<1_ratio")
NAMES = (*ODD_NAMES, *(f"actor/metric_{n}" for n in range(92)), "time/train/total", "time/train/onload")
TEXT = "a *note* | with a bar\nand a second line, 中文"
HISTOGRAM = Histogram((0.0, 0.5, 1.0), (3, 4), 0.0, 1.0, 3.5, 7, nonfinite=2)
SAMPLE = Sample("2 + 2 | ?", "four\nor 4", reward=0.5, rewards={"format": 1.0}, length=3, task="t-1")

Series = dict[str, dict[int, float]]


def value(name: str, step: int) -> float:
    return math.sin(NAMES.index(name) + 1.0) * 10 ** (NAMES.index(name) % 7 - 3) + step / 7


def rows(steps: Iterable[int] = range(200), writer: Writer = TRAINER) -> list[Row]:
    """Return a row per step; every tenth has a text, every twentieth samples and a histogram."""
    return [
        Row(
            step,
            INFO.created + step,
            {name: value(name, step) for name in NAMES},
            writer,
            {"note": f"{step}: {TEXT}"} if step % 10 == 0 else {},
            {"dist": HISTOGRAM} if step % 20 == 0 else {},
            (SAMPLE, SAMPLE) if step % 20 == 0 else (),
        )
        for step in steps
    ]


def started_trackers(
    make: Callable[..., Any], close: Callable[[Any], object], folder: Path
) -> Iterator[Callable[..., Any]]:
    """Yield a function that makes and starts trackers, and close all of them at the end."""
    trackers = []

    def start(info: RunInfo = INFO, **kwargs: Any) -> Any:
        tracker = make(**kwargs)
        tracker.start(info, CONFIG, folder)
        trackers.append(tracker)
        return tracker

    yield start
    for tracker in trackers:
        close(tracker)


def single(name: str, values: Mapping[int, float], writer: Writer = TRAINER) -> list[Row]:
    """Return rows of one value each, in the order given."""
    return [Row(step, INFO.created + step, {name: number}, writer) for step, number in values.items()]


def expected(steps: Iterable[int] = range(200), name_of: Callable[[str], str] = str) -> Series:
    steps = list(steps)
    return {name_of(name): {step: value(name, step) for step in steps} for name in NAMES}


def files_with_key(*folders: Path) -> list[Path]:
    """Return the files that contain the key."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [path for path in files if KEY.encode() in path.read_bytes()]


ALERTS = (
    "critical since step 5: NaN or infinity. grad_norm: not finite in 3 of 3 rows.\n"
    "over since step 4: " + "A finding with a title that is longer than what W&B takes for one" + " (began at step 2)"
)
"""The text of a row with two findings of the doctor."""


def with_alerts() -> Row:
    """Return a row with findings."""
    return Row(6, INFO.created, {"loss": 1.0}, TRAINER, texts={"barograph/finding": ALERTS})
