"""Measured states of a step, exchanged between processes: what each sends, and what all of it is together."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from windsock.distributed import Share
from windsock.measurement.merged import DescribedLayout
from windsock.measurement.step import Measurement
from windsock.measurement.values import Measured
from windsock.states import Layout, sparse


def share_of(measurement: Measurement, contributes: bool = True) -> Share:
    """Return the share of one process. A replica describes its states, as the others do, and sends none."""
    layout, vector = measurement.packed()
    description = {
        "layout": str(layout.hash),
        "entries": layout.entries,
        "missing": measurement.missing,
    }
    body = b"".join(_pieces(layout, vector)) if contributes else b""
    return Share(zlib.compress(json.dumps(description, sort_keys=True).encode(), 1), body)


def merged(shares: Sequence[Share]) -> Measurement:
    """Return the measurement of all processes. Every process merges in the same order, and gets the same bits."""
    bodies: dict[bytes, list[bytes]] = {}
    for share in shares:
        if share.body:
            bodies.setdefault(share.description, []).append(share.body)
    whole = Measurement()
    for description, alike in bodies.items():
        record = json.loads(zlib.decompress(description))
        _, described = DescribedLayout.parse(record)
        whole.merge(Measurement(states=_states(described.layout, alike), missing=record["missing"]))
    return whole


def _pieces(layout: Layout, vector: NDArray[np.float64]) -> Iterator[bytes]:
    """Yield the numbers of the last part, and of the others the length and the encoded numbers."""
    *encoded, (_, slots) = layout.parts
    yield vector[slots].astype("<f8", copy=False).tobytes()
    for _, slots in encoded:
        piece = sparse.encode(vector[slots])
        yield len(piece).to_bytes(4, "little") + piece


def _states(layout: Layout, bodies: Sequence[bytes]) -> dict[str, NDArray[np.float64]]:
    """Return the merged states of processes with the same layout."""
    *encoded, (last, _) = layout.parts
    # Vectors of one layout at once: a few calls of NumPy for each process, and not one for each metric.
    states = last.unpack(last.merge([np.frombuffer(body, "<f8", last.width).astype(np.float64) for body in bodies]))
    places = [8 * last.width] * len(bodies)
    for part, _ in encoded:
        begins = [place + 4 for place in places]
        lengths = [int.from_bytes(body[at - 4 : at], "little") for body, at in zip(bodies, begins, strict=True)]
        places = [at + length for at, length in zip(begins, lengths, strict=True)]
        pieces = [body[at:end] for body, at, end in zip(bodies, begins, places, strict=True)]
        states |= part.unpack(part.merge_encoded(pieces))
    return states


def finished(measurement: Measurement, shares: Sequence[Share], vocabulary: str) -> Measured:
    """Return the values of all processes; none if one could not contribute: the rest would be a wrong number."""
    measured = measurement.finish(vocabulary)
    errors = [share.error for share in shares if share.error]
    if not errors:
        return measured
    return Measured({}, dict.fromkeys([*measured, *measured.missing], f"a rank could not contribute: {errors[0]}"))
