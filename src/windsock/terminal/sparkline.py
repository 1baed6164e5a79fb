"""Sparklines: a series in one line of text."""

from __future__ import annotations

import numpy as np

from windsock.journal.series import Series

BARS = "▁▂▃▄▅▆▇█"
NONFINITE = "×"


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
    scale = (len(BARS) - 1) / (high / 2 - low / 2) / 2 if high > low else 0.0  # halves: the range may overflow
    heights = np.where(finite, (shown - low) * scale if scale else 0.0, 0.0)
    levels = np.clip(np.nan_to_num(heights), 0, len(BARS) - 1).round().astype(int)
    return "".join(
        NONFINITE if bad else BARS[level] for level, bad in zip(levels.tolist(), buckets.nonfinite > 0, strict=True)
    )
