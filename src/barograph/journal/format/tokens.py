"""Tokens of a sample, the values of each, and the most likely tokens at each place, as packed texts in its JSON."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from barograph.base.files.compression import unpack
from barograph.base.model import Sample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_TOKENS = 1 << 18  # of a sample

MAX_ARRAYS = 32  # of a sample

LEVEL = 1  # of zlib: higher ones save a few per cent and take three times as long

NUMBERS = ("f2", "f4")

LENGTHS = ("u1", "u2", "u4")

STEP = 2.0**-12

STEPS, STEPS_AND_NAN = "q", "n"  # what the kind of an array in steps begins with


T = TypeVar("T")


class LazySequence(Sequence[T]):
    """An entry for each token of a sample, all of them read when the first is used."""

    @property
    @abstractmethod
    def _all(self) -> tuple[T, ...]:
        """Those of all tokens."""

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[T, ...]: ...
    def __getitem__(self, place: int | slice) -> T | tuple[T, ...]:
        return self._all[place]

    def __iter__(self) -> Iterator[T]:
        return iter(self._all)


class TokenTexts(LazySequence[str]):
    """The tokens of a sample as pieces of one text."""

    def __init__(self, text: str, lengths: NDArray[np.uint32]) -> None:
        self._text = text
        self._lengths = lengths

    def __len__(self) -> int:
        return len(self._lengths)

    @cached_property
    def _all(self) -> tuple[str, ...]:
        ends = self._lengths.cumsum().tolist()
        return tuple(self._text[start:end] for start, end in zip([0, *ends], ends, strict=False))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all == tuple(other)

    __hash__ = None  # type: ignore[assignment]


class TokenValues(Mapping[str, Sequence[float]]):
    """The values of a sample's tokens by name; a packed array that is damaged has NaN for each token."""

    def __init__(self, packed: Mapping[str, str], count: int) -> None:
        self.packed = packed
        self._count = count

    def __getitem__(self, name: str) -> Sequence[float]:
        return tuple(self.array(name).tolist())

    def array(self, name: str) -> NDArray[np.float32]:
        """Return the values of a name."""
        import numpy as np

        try:
            return self._unpacked(name).astype(np.float32)
        except ValueError:
            return np.full(self._count, np.nan, np.float32)

    def _unpacked(self, name: str) -> NDArray[Any]:
        text = self.packed[name]
        if text[:1] not in (STEPS, STEPS_AND_NAN):
            return unpack_array(text, self._count, NUMBERS)
        kind, _, packed = text.partition(":")
        size, _, first = kind.partition("-")
        values = _from_steps(size[0], unpack_array(f"u{size[1:]}:{packed}", self._count, LENGTHS[1:]))
        if not first:
            return values
        if first not in self.packed or "-" in self.packed[first].partition(":")[0]:
            raise ValueError("a packed array is the difference to one that is not there, or is a difference itself")
        summed: NDArray[Any] = values + self._unpacked(first)
        return summed

    def __iter__(self) -> Iterator[str]:
        return iter(self.packed)

    def __len__(self) -> int:
        return len(self.packed)


def encode_tokens(sample: Sample) -> dict[str, Any]:
    """Return the tokens of a sample and their values as entries of its JSON."""
    text = "".join(sample.tokens)
    record: dict[str, Any] = {"lengths": pack_array(list(map(len, sample.tokens)), LENGTHS)}
    if text != sample.completion:
        record["text"] = text
    values = sample.token_values
    if not isinstance(values, TokenValues):
        values = TokenValues({name: pack_array(array, NUMBERS) for name, array in values.items()}, len(sample.tokens))
    return {"tokens": {"count": len(sample.tokens), **record}, "token_values": dict(values.packed)}


def decode_tokens(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens in a sample's JSON and their values; nothing if there are none that can be read."""
    given, values = record.get("tokens"), record.get("token_values")
    if not isinstance(given, Mapping):
        return {}
    text, count, packed = given.get("text", record.get("completion")), given.get("count"), given.get("lengths")
    if not (isinstance(text, str) and type(count) is int and 0 < count <= MAX_TOKENS and isinstance(packed, str)):
        return {}
    try:
        lengths = unpack_array(packed, count, LENGTHS)
    except ValueError:
        return {}
    if int(lengths.sum(dtype="u8")) != len(text):
        return {}
    entries = values.items() if isinstance(values, Mapping) else ()
    arrays = {name: array for name, array in entries if isinstance(array, str)}
    found = dict(list(arrays.items())[:MAX_ARRAYS])
    return {"tokens": TokenTexts(text, lengths), "token_values": TokenValues(found, count)}


def pack_measured(values: Mapping[str, NDArray[Any]], alike: Sequence[str], others: Sequence[str]) -> dict[str, str]:
    """Pack values of tokens: arrays that are ``alike`` and ``others`` in steps, the rest as half floats or floats.

    One that steps cannot have, such as one with an infinity, is packed as floats.
    """
    import numpy as np

    first = next((name for name in alike if name in values and not np.isinf(values[name]).any()), "")
    packed = {}
    for name, array in values.items():
        in_steps = name in (*alike, *others)
        base = first if first and name in alike and name != first and _covers(values[first], array) else ""
        with np.errstate(over="ignore"):
            steps = _steps(array - values[base] if base else array) if in_steps else None
        if steps is None:
            packed[name] = pack_array(array, NUMBERS[-1:] if in_steps else NUMBERS)
        else:
            kind, numbers = steps
            packed[name] = _compressed(f"{kind}-{base}" if base else kind, numbers, zlib.Z_RLE)
    return packed


def _covers(base: NDArray[Any], array: NDArray[Any]) -> bool:
    """Return whether one array has a number wherever another one has."""
    import numpy as np

    return bool((np.isnan(array) | ~np.isnan(base)).all())


def _steps(array: NDArray[Any]) -> tuple[str, NDArray[Any]] | None:
    """Return 0, -1, 1, -2, … steps as 0, 1, 2, 3, … with their kind; None if a value is infinite or too large."""
    import numpy as np

    is_nan = np.isnan(array)
    steps = np.rint(np.where(is_nan, 0.0, array) / STEP)
    largest = np.abs(steps).max(initial=0.0)
    if not largest < 2**30:
        return None
    numbers = steps.astype(np.int64)
    found = ((numbers << 1) ^ (numbers >> 63)).astype("<u2" if largest < 2**15 else "<u4")
    found[is_nan] = np.iinfo(found.dtype).max
    return f"{STEPS_AND_NAN if is_nan.any() else STEPS}{found.itemsize}", found


def _from_steps(kind: str, found: NDArray[Any]) -> NDArray[Any]:
    """Return the values of steps."""
    import numpy as np

    numbers = found.astype("i8")
    values: NDArray[Any] = STEP * ((numbers >> 1) ^ -(numbers & 1))
    if kind == STEPS_AND_NAN:
        values[found == np.iinfo(found.dtype).max] = np.nan
    return values


def pack_array(values: Any, kinds: Sequence[str]) -> str:
    """Pack numbers in the first of some types that has their range, and integers exactly."""
    import numpy as np

    given = np.asarray(values)
    with np.errstate(over="ignore"):
        kind = next((kind for kind in kinds[:-1] if _holds(given, given.astype(kind))), kinds[-1])
        body = given.astype(f"<{kind}")
    return _compressed(kind, body, zlib.Z_DEFAULT_STRATEGY)


def _compressed(kind: str, body: NDArray[Any], strategy: int) -> str:
    """Pack numbers. In measured ones matches of several bytes are found by chance and cost more: Z_RLE finds none."""
    import numpy as np

    packer = zlib.compressobj(LEVEL, strategy=strategy)
    # Each plane has a code of its own: flushing begins another block.
    planes = [
        packer.compress(plane.tobytes()) + packer.flush(zlib.Z_SYNC_FLUSH)
        for plane in body.view(np.uint8).reshape(-1, body.itemsize).T
    ]
    return f"{kind}:{b64encode(b''.join(planes) + packer.flush()).decode()}"


def _holds(given: NDArray[Any], cast: NDArray[Any]) -> bool:
    """Return whether a cast keeps whole numbers as they are, and other finite numbers finite."""
    import numpy as np

    whole = np.isfinite(given) & (given == np.trunc(given))
    return bool((given[whole] == cast[whole]).all() and (np.isfinite(given) == np.isfinite(cast)).all())


def unpack_array(text: str, count: int, kinds: Sequence[str]) -> NDArray[Any]:
    """Return the numbers of a packed array; raise ValueError if it is not one of so many numbers."""
    import numpy as np

    kind, _, packed = text.partition(":")
    if kind not in kinds:
        raise ValueError(f"a packed array has the type {kind[:10]!r}, expected {', '.join(kinds)}")
    size = int(kind[1])
    planes = unpack(b64decode(packed, validate=True), count * size)
    if len(planes) != count * size:
        raise ValueError(f"a packed array has {len(planes):,} bytes, expected {count * size:,}")
    return np.frombuffer(planes, np.uint8).reshape(size, count).T.copy().view(f"<{kind}").ravel()


MAX_PER_TOKEN = 20

MAX_ENTRIES = 1 << 16  # of a sample: with many tokens, each has fewer of the most likely

Alternatives = tuple[tuple[str, float], ...]
"""Texts of tokens with their log-probs, the most likely first."""

Columns = tuple[Sequence[str], "NDArray[np.uint32]", "NDArray[np.uint32]", "NDArray[np.float32]"]


class TopLogprobs(LazySequence[Alternatives]):
    """The alternatives of each token of a sample, unpacked when they are used; damaged ones are empty."""

    def __init__(self, packed: Mapping[str, Any], count: int) -> None:
        self.packed = packed
        self._count = count

    @cached_property
    def columns(self) -> Columns:
        """The different texts, the number of alternatives of each token, and the text and log-prob of each of them."""
        import numpy as np

        try:
            return self._unpacked()
        except ValueError:
            nothing = np.zeros(0, np.uint32)
            return (), np.zeros(self._count, np.uint32), nothing, nothing.astype(np.float32)

    def _unpacked(self) -> Columns:
        import numpy as np

        text, texts, entries = self._entry("text", str), self._size("texts"), self._size("entries")
        counts = unpack_array(self._entry("counts", str), self._count, LENGTHS)
        lengths = unpack_array(self._entry("lengths", str), texts, LENGTHS)
        ids = unpack_array(self._entry("ids", str), entries, LENGTHS)
        log_probs = unpack_array(self._entry("log_probs", str), entries, NUMBERS)
        fits = int(counts.sum(dtype="u8")) == entries and int(lengths.sum(dtype="u8")) == len(text)
        if not fits or (entries and int(ids.max()) >= texts):
            raise ValueError("the parts of the alternatives do not fit together")
        return TokenTexts(text, lengths), counts.astype(np.uint32), ids.astype(np.uint32), log_probs.astype(np.float32)

    def _entry(self, name: str, kind: type) -> Any:
        value = self.packed.get(name)
        if type(value) is not kind:
            raise ValueError(f"the alternatives of tokens have no {name}")
        return value

    def _size(self, name: str) -> int:
        size: int = self._entry(name, int)
        if not 0 <= size <= MAX_ENTRIES:
            raise ValueError(f"the alternatives of tokens have {size:,} {name}, at most {MAX_ENTRIES:,} are read")
        return size

    @cached_property
    def _all(self) -> tuple[Alternatives, ...]:
        texts, counts, ids, log_probs = self.columns
        pairs = [(texts[id], value) for id, value in zip(ids.tolist(), log_probs.tolist(), strict=True)]
        ends = counts.cumsum().tolist()
        return tuple(tuple(pairs[start:end]) for start, end in zip([0, *ends], ends, strict=False))

    def __len__(self) -> int:
        return self._count


def encode_alternatives(given: Sequence[Sequence[tuple[str, float]]], count: int) -> dict[str, Any]:
    """Return the alternatives of ``count`` tokens as an entry of a sample's JSON; nothing if there are none."""
    if isinstance(given, TopLogprobs):
        return {"top_logprobs": dict(given.packed)}
    most = min(MAX_PER_TOKEN, MAX_ENTRIES // max(1, count))
    listed = [tuple(one)[:most] for one in given]
    texts: dict[str, int] = {}
    ids = [texts.setdefault(text, len(texts)) for one in listed for text, _ in one]
    if not ids:
        return {}
    return {
        "top_logprobs": {
            "entries": len(ids),
            "counts": pack_array([len(one) for one in listed], LENGTHS),
            "ids": pack_array(ids, LENGTHS),
            "log_probs": pack_array([value for one in listed for _, value in one], NUMBERS),
            "texts": len(texts),
            "lengths": pack_array(list(map(len, texts)), LENGTHS),
            "text": "".join(texts),
        }
    }


def decode_alternatives(record: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return the alternatives in a sample's JSON with ``count`` tokens; nothing if there are none."""
    packed = record.get("top_logprobs")
    return (
        {"top_logprobs": TopLogprobs(packed, count)} if isinstance(packed, Mapping) and 0 < count <= MAX_TOKENS else {}
    )
