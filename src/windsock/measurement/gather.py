"""Measured states of a step, exchanged between processes: what each sends, and what all of it is together."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from windsock.distributed import Share
from windsock.measurement.merged import DescribedLayout, RankState, merged_measurement
from windsock.measurement.step import Measurement
from windsock.measurement.values import Measured


def share_of(measurement: Measurement, contributes: bool = True) -> Share:
    """Return the share of one process. A replica describes its states, as the others do, and sends none."""
    layout, vector = measurement.packed()
    description = {
        "layout": str(layout.hash),
        "entries": layout.entries,
        "missing": measurement.missing,
    }
    body = vector.astype("<f8", copy=False).tobytes() if contributes else b""
    return Share(zlib.compress(json.dumps(description, sort_keys=True).encode(), 1), body)


def merged(shares: Sequence[Share]) -> Measurement:
    """Return the measurement of all processes. Every process merges in the same order, and gets the same bits."""
    vectors: dict[bytes, list[NDArray[np.float64]]] = {}
    for share in shares:
        if share.body:
            vectors.setdefault(share.description, []).append(np.frombuffer(share.body, "<f8").astype(np.float64))
    whole = Measurement()
    for description, alike in vectors.items():
        record = json.loads(zlib.decompress(description))
        id, described = DescribedLayout.parse(record)
        # Vectors of one layout first: a few calls of NumPy for each process, and not one for each metric.
        state = RankState(0, id, described.layout.merge(alike))
        whole.merge(merged_measurement([state], {id: described}))
        whole.merge(Measurement(missing=record["missing"]))
    return whole


def finished(measurement: Measurement, shares: Sequence[Share], vocabulary: str) -> Measured:
    """Return the values of all processes; none if one could not contribute: the rest would be a wrong number."""
    measured = measurement.finish(vocabulary)
    errors = [share.error for share in shares if share.error]
    if not errors:
        return measured
    return Measured({}, dict.fromkeys([*measured, *measured.missing], f"a rank could not contribute: {errors[0]}"))
