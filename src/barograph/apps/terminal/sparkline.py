"""Sparklines: a series in one line of text."""

from __future__ import annotations

import numpy as np

from barograph.journal.read.series import Series

BARS = "▁▂▃▄▅▆▇█"
NONFINITE = "×"


@np.errstate(over="ignore", invalid="ignore")  # of values near the largest number, and of NaN
def sparkline(series: Series, width: int = 24) -> str:
    """Draw a series in ``width`` characters without hiding spikes.

    Of the points that share a character, the one farthest from the series' median is drawn. A character whose points
    include a NaN or an infinity is ``×``.
    """
    if not len(series):
        return ""
    buckets = series.zoom(max_points=width)
    finite = np.isfinite(buckets.min)
    if not finite.any():
        return NONFINITE * len(buckets)
    low, high = buckets.min[finite].min(), buckets.max[finite].max()
    middle = np.median(np.concatenate([buckets.min[finite], buckets.max[finite]]))
    shown = np.where(buckets.max - middle > middle - buckets.min, buckets.max, buckets.min)
    half = high / 2 - low / 2  # the range itself may overflow
    scale = (len(BARS) - 1) / half if half > np.finfo(float).tiny * len(BARS) else 0.0
    heights = np.where(finite, (shown / 2 - low / 2) * scale, 0.0)
    levels = np.clip(np.nan_to_num(heights), 0, len(BARS) - 1).round().astype(int)
    return "".join(
        NONFINITE if bad else BARS[level] for level, bad in zip(levels.tolist(), buckets.nonfinite > 0, strict=True)
    )
