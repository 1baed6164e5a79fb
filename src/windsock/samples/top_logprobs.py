"""Alternatives of tokens as inference engines give them: pairs, or the outputs of vLLM and of OpenAI's API.

They are read when a sample is stored: of most samples of a step they are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from windsock.journal.alternatives import Alternatives, AlternativesOfTokens
from windsock.samples.token_ids import TokenDecoder, id_text
from windsock.scalars import Rejection

CONTAINERS = ("content", "top_logprobs")  # of OpenAI's chat completions, and of its completions


def read_top_logprobs(given: Any, count: int, decoder: TokenDecoder | None) -> GivenAlternatives | Rejection:
    """Return the alternatives of ``count`` tokens; fewer entries are those of the last tokens."""
    entries = given
    if not isinstance(given, list | tuple):
        entries = next((inner for name in CONTAINERS if (inner := _part(given, name)) is not None), given)
    if not isinstance(entries, Sequence) or isinstance(entries, str | bytes):
        return Rejection(f"value is of type {type(given).__name__}, not a list with the alternatives of each token")
    if len(entries) > count:
        return Rejection(f"{len(entries):,} entries for {count:,} tokens")
    return GivenAlternatives([None] * (count - len(entries)) + list(entries), decoder)


class GivenAlternatives(AlternativesOfTokens):
    """The alternatives of each token, read when they are used; an entry that cannot be read is empty."""

    def __init__(self, entries: Sequence[Any], decoder: TokenDecoder | None) -> None:
        self._entries = entries
        self._decoder = decoder
        self.problem = ""  # of an entry that cannot be read

    @cached_property
    def _all(self) -> tuple[Alternatives, ...]:
        return tuple(self._read(entry) for entry in self._entries)

    def _read(self, entry: Any) -> Alternatives:
        try:
            pairs = [(self._text(token), float(value)) for token, value in _pairs(entry)]
        except (TypeError, ValueError, LookupError) as error:
            self.problem = f"an entry of type {type(entry).__name__} is not understood ({error})"
            return ()
        return tuple(sorted((pair for pair in pairs if not math.isnan(pair[1])), key=lambda pair: -pair[1]))

    def _text(self, token: Any) -> str:
        if isinstance(token, str):
            return token
        id = int(token)
        return id_text(id) if self._decoder is None else self._decoder.texts([id])[0]

    def __len__(self) -> int:
        return len(self._entries)


def _pairs(entry: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the tokens (texts or ids) of an entry with their log-probs."""
    if entry is None:
        return
    if hasattr(entry, "top_logprobs") or (isinstance(entry, Mapping) and "top_logprobs" in entry):
        yield from _pairs(_part(entry, "top_logprobs"))
    elif isinstance(entry, Mapping):
        for token, value in entry.items():
            known, text = _part(value, "logprob"), _part(value, "decoded_token")
            yield (token if text is None else text), (value if known is None else known)
    else:
        for one in entry:
            token = _part(one, "token")
            yield (one[0], one[1]) if token is None else (token, _part(one, "logprob"))


def _part(value: Any, name: str) -> Any:
    """Return an attribute of an object or an entry of a mapping, or None."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
