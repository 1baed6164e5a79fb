"""The most likely tokens at each place of a sample, as packed texts in its JSON.

Each text is stored once; the tokens are numbers of texts, and their log-probs half floats.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from windsock.journal.tokens import LENGTHS, MAX_TOKENS, NUMBERS, TokenTexts, pack_array, unpack_array

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_PER_TOKEN = 20
MAX_ENTRIES = 1 << 16  # of a sample: with many tokens, each has fewer of the most likely

Alternatives = tuple[tuple[str, float], ...]
"""Texts of tokens with their log-probs, the most likely first."""


Columns = tuple[Sequence[str], "NDArray[np.uint32]", "NDArray[np.uint32]", "NDArray[np.float32]"]


class AlternativesOfTokens(Sequence[Alternatives]):
    """The alternatives of each token of a sample, read when the first of them is used."""

    @property
    @abstractmethod
    def _all(self) -> tuple[Alternatives, ...]:
        """Those of all tokens."""

    @overload
    def __getitem__(self, place: int) -> Alternatives: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Alternatives, ...]: ...
    def __getitem__(self, place: int | slice) -> Alternatives | tuple[Alternatives, ...]:
        return self._all[place]

    def __iter__(self) -> Iterator[Alternatives]:
        return iter(self._all)


class TopLogprobs(AlternativesOfTokens):
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
