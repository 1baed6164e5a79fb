"""Tokens of submitted samples: the texts of token ids by a tokenizer, and the alternatives of tokens as inference
engines give them, as pairs, or as the outputs of vLLM and of OpenAI's API. Tokens of measured sequences are joined with
the samples that have the same ids.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, overload

from barograph.base.model import MeasuredTokens, Sample
from barograph.base.scalars import Rejection
from barograph.journal.format.tokens import (
    NUMBERS,
    Alternatives,
    LazySequence,
    TokenValues,
    pack_array,
    pack_measured,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CUT = "\ufffd"  # what a tokenizer returns for a part of a character


class TokenDecoder:
    """Decodes ids with a tokenizer: an object with ``decode``, or a function of a list of ids."""

    def __init__(self, tokenizer: Any) -> None:
        decode = getattr(tokenizer, "decode", tokenizer)
        if not callable(decode):
            raise TypeError(
                f"expected a tokenizer with decode, or a function of a list of ids; got {type(tokenizer).__name__}"
            )
        self._decode: Callable[[list[int]], Any] = decode
        piece = getattr(tokenizer, "convert_ids_to_tokens", getattr(tokenizer, "id_to_piece", None))
        self._piece: Callable[[int], Any] | None = piece if callable(piece) else None
        self._known: dict[int, str] = {}
        self.problem = ""  # of an id that the tokenizer could not decode

    def texts(self, ids: Sequence[int]) -> tuple[str, ...]:
        """Return the text of each id; tokens that make a character together have it at the first of them."""
        for id in set(ids):
            self._text(id)
        alone = tuple(map(self._known.__getitem__, ids))
        if CUT not in "".join(alone):
            return alone
        found: list[str] = []
        for is_cut, run in groupby(ids, self._is_cut):
            some = list(run)
            if is_cut and len(some) > 1:
                found += [self._joined(some), *[""] * (len(some) - 1)]
            else:
                found += [self._text(id) for id in some]
        return tuple(found)

    def _is_cut(self, id: int) -> bool:
        return CUT in self._text(id)

    def _text(self, id: int) -> str:
        if id not in self._known:
            self._known[id] = self._decoded(id)
        return self._known[id]

    def _decoded(self, id: int) -> str:
        try:
            text = str(self._decode([id]))
            # SentencePiece drops the space before a word that stands alone.
            begins_word = self._piece is not None and str(self._piece(id)).startswith("▁")
            return f" {text}" if begins_word and not text.startswith(" ") else text
        except Exception as error:  # noqa: BLE001 - a tokenizer may raise anything
            self.problem = f"the tokenizer cannot decode {id} ({type(error).__name__}: {error})"
            return id_text(id)

    def _joined(self, ids: list[int]) -> str:
        return str(self._decode(ids))


def id_text(id: int) -> str:
    """Return what is shown for an id without a text."""
    return f"[{id}]"


class DecodedTokens(Sequence[str]):
    """The texts of some ids, decoded when they are used: most samples of a step are not stored."""

    def __init__(self, ids: Sequence[int], decoder: TokenDecoder) -> None:
        self._ids = ids
        self._decoder = decoder

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return self._decoder.texts(self._ids)

    @property
    def problem(self) -> str:
        """Why an id could not be decoded, if one could not."""
        return self._decoder.problem

    def __len__(self) -> int:
        return len(self._ids)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        return self._texts[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


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


class GivenAlternatives(LazySequence[Alternatives]):
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


NAMES = {
    "log_probs": "log_prob", "old_log_probs": "old", "ref_log_probs": "reference", "rollout_log_probs": "rollout",
    "entropy": "entropy", "advantages": "advantage",
}  # fmt: skip
"""The arrays of a batch, and the names of their values in a sample."""
LOG_PROBS = ("old", "log_prob", "rollout", "reference")
UNKNOWN = "▯"  # a token whose text is not known


def joined(row: MeasuredTokens, sample: Sample | None, decoder: TokenDecoder | None) -> tuple[Sample, str]:
    """Return the sample of a measured sequence with the values of its tokens, and what is wrong if they do not fit.

    The tokens are the sample's own, else those of the batch's ``actions``, else unknown ones. Without a sample the text
    is that of the decoded actions. The column ``chosen`` says why the sequence was chosen, and ``text`` where its
    text is from if no sample was logged.
    """
    places, tokens, wrong = _placed(row, sample, decoder)
    if sample is None:
        known = row.actions is not None and decoder is not None
        columns: dict[str, Any] = {"text": "from actions" if known else "not logged"}
        text = "".join(tokens) if known else ""
        sample = Sample(id=row.id, completion=text, length=len(places), time=round(time.time(), 3), columns=columns)
    columns = {**sample.columns, "chosen": row.reason}
    if wrong:
        return replace(sample, columns=columns), wrong
    measured = {name: array[places] for name, array in values_of(row).items()}
    packed = pack_measured(measured, LOG_PROBS, ("entropy",))
    packed |= {name: pack_array(array, NUMBERS) for name, array in sample.token_values.items()}  # the user's own count
    return replace(sample, columns=columns, tokens=tokens, token_values=TokenValues(packed, len(tokens))), ""


def values_of(row: MeasuredTokens) -> dict[str, NDArray[Any]]:
    """Return the values of a sequence's tokens by name; the ratio follows from them, and readers compute it."""
    import numpy as np

    found: dict[str, NDArray[Any]] = {}
    for name, own in NAMES.items():
        array = row.arrays.get(name)
        if array is not None:
            found[own] = np.where(row.response, array, 0.0)
    if "log_prob" in found and "old" in found and row.clip is not None:
        low, high = row.clip
        with np.errstate(over="ignore", invalid="ignore"):
            ratio = np.exp(found["log_prob"].astype(np.float64) - found["old"])
        above, below = ratio > 1 + high, ratio < 1 - low
        if "advantage" in found:
            above, below = above & (found["advantage"] > 0), below & (found["advantage"] < 0)
        found["clipped"] = (above | below).astype(np.float32)
    found["mask"] = row.valid.astype(np.float32)
    return found


def _placed(
    row: MeasuredTokens, sample: Sample | None, decoder: TokenDecoder | None
) -> tuple[NDArray[np.int64], Sequence[str], str]:
    """Return the places of a sequence's tokens in its row, their texts, and why a sample's own do not fit."""
    import numpy as np

    response = np.flatnonzero(row.response)
    first, last = (int(response[0]), int(response[-1])) if len(response) else (0, -1)
    span = np.arange(first, last + 1)
    own = () if sample is None else sample.tokens
    if len(own):
        fitting = [places for places in (span, response, np.arange(last + 1)) if len(places) == len(own)]
        if fitting:
            return fitting[0], own, ""
        wrong = f"{len(own):,} tokens were given, the batch has {len(response):,} of the response"
        return span, own, f"{wrong} (from the first to the last {len(span):,})"
    if row.actions is None:
        return span, (UNKNOWN,) * len(span), ""
    ids = row.actions[span].tolist()
    return span, tuple(map(id_text, ids)) if decoder is None else decoder.texts(ids), ""
