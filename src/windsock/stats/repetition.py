"""Sequences whose end repeats: a stretch of tokens that comes again and again until the sequence is cut off."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MAX_PERIOD = 128  # tokens
MIN_STRETCH = 64  # tokens; one of a longer period must repeat once
_PERIODS = np.arange(1, MAX_PERIOD + 1)
# Every stretch has at least 32 tokens that equal the one a period before them. These are looked at before all others.
_FIRST_PLACES = (1, 2, 4, 8, 16, 31)


def ends_in_repetition(tokens: NDArray[Any], response: Bools, starts: Ints, lasts: Ints) -> Bools:
    """Return which sequences of a stream end in a repetition, of a period p of 1 to 128 tokens.

    It is one if the last max(64, 2·p) tokens up to the last response token are all response tokens, and each equals
    the one p places before it in this stretch. ``starts`` are the first tokens of the sequences and ``lasts`` their
    last response tokens; what is not of the response is never compared with a result.
    """
    found = np.zeros(len(lasts), np.bool_)
    rows, periods = _candidates(tokens, starts, lasts)
    for row, period in zip(rows.tolist(), periods.tolist(), strict=True):
        if found[row]:
            continue
        end = int(lasts[row]) + 1
        begin = end - max(MIN_STRETCH, 2 * period)
        if begin >= starts[row] and response[begin:end].all():
            found[row] = (tokens[begin + period : end] == tokens[begin : end - period]).all()
    return found


def _candidates(tokens: NDArray[Any], starts: Ints, lasts: Ints) -> tuple[Ints, Ints]:
    """Return sequences and periods whose last tokens fit, the shorter periods of a sequence first."""
    rows = np.flatnonzero(lasts - starts >= MIN_STRETCH - 1)
    if not len(rows):
        return rows, rows
    ends = lasts[rows]
    # Places before the stream are those at its end: any token will do, as the whole stretch is checked afterwards.
    equal = tokens.take(ends[:, None] - _PERIODS, mode="wrap") == tokens.take(ends)[:, None]
    places, periods = equal.nonzero()
    periods += 1
    for back in _FIRST_PLACES:
        if not len(places):
            break
        at = ends[places] - back
        fits = tokens.take(at, mode="wrap") == tokens.take(at - periods, mode="wrap")
        places, periods = places[fits], periods[fits]
    return rows[places], periods
