"""Parsing of submitted samples: usable fields are taken, the others are named with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from barograph.base.errors import did_you_mean
from barograph.base.model import Sample
from barograph.base.scalars import Rejection, to_float
from barograph.journal.format.tokens import MAX_ARRAYS, MAX_TOKENS
from barograph.recording.samples.tokens import DecodedTokens, TokenDecoder, id_text, read_top_logprobs

# The integers of SQLite, in which the index stores them.
INTEGERS = range(-(2**63), 2**63)
TEXTS = ("prompt", "completion")
FIELDS = tuple(field.name for field in fields(Sample))
OTHER_NAMES = {"response": "completion"}  # as Trinity, slime and others have it
BY_NAME = ("rewards", "columns", "token_values")  # fields that are mappings: in bulk, each entry is a column
MISSPELT = 0.9  # similarity from which on an unknown name is taken for a field's name with a mistake in it

Rejections = dict[str, str]  # name of a field to the reason why its value is not taken


def to_sample(
    given: Mapping[str, Any] | Sample, decoder: TokenDecoder | None = None, time: float = 0.0
) -> tuple[Sample, Rejections]:
    """Return a sample of the usable fields except its step, and the rejected fields.

    ``decoder`` is for token ids; ``time`` is that of a sample without one.
    """
    if isinstance(given, Sample):
        given = {name: getattr(given, name) for name in FIELDS}
    taken: dict[str, Any] = {}
    further: dict[str, Any] = {}
    rejected: Rejections = {}
    for name, value in _with_chat_as_messages(_with_own_names(given)).items():
        if value is None or name in ("step", "decode", *TOKEN_FIELDS):
            continue
        read = READERS[name](value, rejected) if name in READERS else _further(name, value)
        if isinstance(read, Rejection):
            rejected[str(name)] = str(read)
        elif name in READERS:
            taken[name] = read
        else:
            further[str(name)] = read
    taken["time"] = taken.get("time") or time
    if further:
        taken["columns"] = {**taken.get("columns", {}), **further}
    return Sample(**taken, **_token_fields(given, decoder, rejected)), rejected


def rows_of(columns: Mapping[str, Any]) -> tuple[Iterator[dict[str, Any]], Rejections]:
    """Return the rows of a mapping of columns, with single values repeated, and the columns of another length."""
    listed = {name: _listed_safely(name, column) for name, column in _with_own_names(columns).items()}
    odd = {name: str(column) for name, column in listed.items() if isinstance(column, Rejection)}
    lengths = {name: len(column) for name, column in listed.items() if isinstance(column, list)}
    # The texts say how many samples there are; a column that differs from them is the wrong one.
    count = next((lengths[name] for name in (*TEXTS, "messages") if name in lengths), max(lengths.values(), default=1))
    odd |= {name: f"column has {size} entries, expected {count}" for name, size in lengths.items() if size != count}
    usable = {name: column for name, column in listed.items() if name not in odd}
    return ({name: _entry(column, row) for name, column in usable.items()} for row in range(count)), odd


def _listed_safely(name: str, column: Any) -> Any:
    try:
        return _listed(name, column)
    except Exception as error:  # noqa: BLE001 - the column's own methods may raise anything
        return Rejection(f"value is of type {type(column).__name__}, not a column ({error})")


def _listed(name: str, column: Any) -> Any:
    """Return a column as a list, or a single value as it is; each entry of a field of ``BY_NAME`` is a column."""
    if name in BY_NAME and isinstance(column, Mapping):
        return _transposed({key: _listed(key, inner) for key, inner in column.items()})
    if isinstance(column, str | bytes | Mapping) or column is None:
        return column
    if hasattr(column, "tolist"):  # an array or a tensor; one without dimensions becomes a number
        return column.tolist()
    return list(column) if isinstance(column, Iterable) else column


def _transposed(columns: Mapping[str, Any]) -> Any:
    count = max((len(column) for column in columns.values() if isinstance(column, list)), default=None)
    if count is None:
        return columns
    return [
        {
            name: _entry(column, row)
            for name, column in columns.items()
            if not isinstance(column, list) or row < len(column)
        }
        for row in range(count)
    ]


def _entry(column: Any, row: int) -> Any:
    return column[row] if isinstance(column, list) else column


def _with_own_names(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields under our names; one that is there under both stays as it is."""
    renamed = {other: own for other, own in OTHER_NAMES.items() if other in given and given.get(own) is None}
    if isinstance(given.get("reward"), Mapping) and given.get("rewards") is None:
        renamed["reward"] = "rewards"
    if not renamed:
        return given
    kept = {name: value for name, value in given.items() if name not in renamed}
    return kept | {own: given[other] for other, own in renamed.items()}


def _with_chat_as_messages(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields with a prompt or completion that is a list of messages moved to ``messages``."""
    chats = {name: given[name] for name in TEXTS if _is_chat(given.get(name))}
    if not chats or given.get("messages") is not None:
        return given
    messages: list[Any] = []
    for name in TEXTS:
        text = given.get(name)
        role = "user" if name == "prompt" else "assistant"
        messages += chats.get(name, [{"role": role, "content": text}] if isinstance(text, str) and text else [])
    return {**{name: value for name, value in given.items() if name not in TEXTS}, "messages": messages}


def _is_chat(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _further(name: Any, value: Any) -> Any:
    """Return the value of a field that is no field of a sample, as a column of its own."""
    hint = _field_hint(str(name))
    return Rejection(f"not a field of a sample ({hint})") if hint else _scalar(value)


@lru_cache(maxsize=256)  # all samples of a run have the same few columns
def _field_hint(name: str) -> str:
    """Return the question about the field that a name is nearly the same as."""
    return did_you_mean(name, FIELDS, cutoff=MISSPELT)


def _scalar(value: Any) -> Any:
    """Return a number, a truth value or a name of any library."""
    if isinstance(value, str):
        return str(value)
    if getattr(value, "dtype", None) is not None and getattr(value, "shape", None) == ():
        value = value.item()
    return value if isinstance(value, bool) or (type(value) is int and value in INTEGERS) else to_float(value)


def _columns(value: Any, rejected: Rejections) -> dict[str, Any] | Rejection:
    if not isinstance(value, Mapping):
        return Rejection(f"value is of type {type(value).__name__}, not a mapping of names to values")
    return _accepted("columns", {str(name): _scalar(one) for name, one in value.items() if one is not None}, rejected)


def _accepted(field: str, read: dict[str, Any], rejected: Rejections) -> dict[str, Any]:
    """Return the entries of a mapping that are not rejected."""
    rejected |= {f"{field}/{name}": str(entry) for name, entry in read.items() if isinstance(entry, Rejection)}
    return {name: entry for name, entry in read.items() if not isinstance(entry, Rejection)}


def _text(value: Any, _: Rejections) -> str | Rejection:
    # ``str`` makes a plain string of a subclass, such as NumPy's.
    return str(value) if isinstance(value, str) else Rejection(f"value is of type {type(value).__name__}, not a string")


def _number(value: Any, _: Rejections) -> float | Rejection:
    return to_float(value)


def _integer(value: Any, _: Rejections) -> int | Rejection:
    # An int is not converted: a float has no room for more than 53 bits.
    number = value if type(value) is int else to_float(value)
    if isinstance(number, Rejection):
        return number
    if isinstance(number, float) and not number.is_integer():
        return Rejection(f"value is {number}, not a whole number")
    return int(number) if int(number) in INTEGERS else Rejection("value is an integer of more than 64 bits")


def _label(value: Any, rejected: Rejections) -> str | Rejection:
    """Return a name as a string; whole numbers are names too."""
    if isinstance(value, str):
        return str(value)
    number = _integer(value, rejected)
    return (
        Rejection(f"value is of type {type(value).__name__}, not a name")
        if isinstance(number, Rejection)
        else str(number)
    )


def _answer(value: Any, _: Rejections) -> str | Rejection:
    """Return an answer as text: trainers have it as a text or as a number."""
    read = _scalar(value)
    return read if isinstance(read, str | Rejection) else f"{read:g}" if isinstance(read, float) else str(read)


def _numbers(value: Any, rejected: Rejections) -> dict[str, float] | Rejection:
    if not isinstance(value, Mapping):
        return Rejection(f"value is of type {type(value).__name__}, not a mapping of names to numbers")
    read = {str(name): to_float(entry) for name, entry in value.items() if entry is not None}
    return _accepted("rewards", read, rejected)


def _messages(value: Any, rejected: Rejections) -> tuple[Mapping[str, Any], ...] | Rejection:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return Rejection(f"value is of type {type(value).__name__}, not a list of messages")
    good = tuple(entry for entry in value if isinstance(entry, Mapping))
    if len(good) < len(value):
        rejected["messages"] = "some entries are not mappings with role and content"
    return good


def _token_fields(given: Mapping[str, Any], decoder: TokenDecoder | None, rejected: Rejections) -> dict[str, Any]:
    """Return the tokens of a sample, those of their values that have a number for each, and their alternatives."""
    if given.get("tokens") is None:
        for name in TOKEN_FIELDS[1:]:
            value = given.get(name)
            if value is not None and (not hasattr(value, "__len__") or len(value)):
                rejected[name] = "values of tokens need tokens=: texts or ids"
        return {}
    own = given.get("decode")
    decoder = decoder if own is None else TokenDecoder(own)
    tokens = _tokens(given["tokens"], decoder, rejected)
    if isinstance(tokens, Rejection):
        rejected["tokens"] = str(tokens)
        return {}
    return _token_values(given.get("token_values"), tokens, rejected) | _alternatives(given, tokens, decoder, rejected)


def _alternatives(
    given: Mapping[str, Any], tokens: Sequence[str], decoder: TokenDecoder | None, rejected: Rejections
) -> dict[str, Any]:
    value = given.get("top_logprobs")
    if value is None or (isinstance(value, tuple) and not value):
        return {}
    read = read_top_logprobs(value, len(tokens), decoder)
    if isinstance(read, Rejection):
        rejected["top_logprobs"] = str(read)
        return {}
    return {"top_logprobs": read}


def _token_values(values: Any, tokens: Sequence[str], rejected: Rejections) -> dict[str, Any]:
    if values is None or not isinstance(values, Mapping):
        if values is not None:
            rejected["token_values"] = f"value is of type {type(values).__name__}, not a mapping of names to arrays"
        return {"tokens": tokens}
    arrays = {str(name): _array(array, len(tokens)) for name, array in list(values.items())[:MAX_ARRAYS]}
    if len(values) > MAX_ARRAYS:
        rejected["token_values"] = f"{len(values)} arrays, of which the first {MAX_ARRAYS} are taken"
    return {"tokens": tokens, "token_values": _accepted("token_values", arrays, rejected)}


def _tokens(value: Any, decoder: TokenDecoder | None, rejected: Rejections) -> Sequence[str] | Rejection:
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__len__"):
        return Rejection(f"value is of type {type(value).__name__}, not a list of texts or ids")
    if len(value) > MAX_TOKENS:
        return Rejection(f"{len(value):,} tokens, of which a sample may have {MAX_TOKENS:,}")
    # A copy: an array may change before it is decoded.
    listed = value.tolist() if hasattr(value, "tolist") else list(value)
    kinds = set(map(type, listed))
    if kinds <= {str}:
        return tuple(listed)
    ids: list[Any] = listed if kinds <= {int} else [_integer(token, rejected) for token in listed]
    if any(isinstance(id, Rejection) for id in ids):
        return Rejection("some are neither texts nor whole numbers")
    if decoder is None:
        rejected["decode"] = "ids are shown as numbers: give decode=, or a tokenizer to run.tokenizer(...)"
        return tuple(map(id_text, ids))
    return DecodedTokens(ids, decoder)


def _array(value: Any, count: int) -> Any:
    """Return a copy of an array of any library, with one number for each token."""
    import numpy as np

    if hasattr(value, "detach"):  # a tensor, maybe of a type that NumPy does not have
        value = value.detach().float().cpu().numpy()
    try:
        array = np.array(value, dtype=np.float32)
    except (TypeError, ValueError) as error:
        return Rejection(f"value is of type {type(value).__name__}, not an array of numbers ({error})")
    return array if array.shape == (count,) else Rejection(f"value has shape {array.shape}, expected ({count},)")


TOKEN_FIELDS = ("tokens", "token_values", "top_logprobs")
READERS: dict[str, Callable[[Any, Rejections], Any]] = {
    **dict.fromkeys((*TEXTS, "discarded"), _text),
    "messages": _messages,
    "rewards": _numbers,
    **dict.fromkeys(("reward", "advantage", "time"), _number),
    **dict.fromkeys(("length", "weight_version"), _integer),
    **dict.fromkeys(("finish_reason", "task", "run", "group", "id"), _label),
    **dict.fromkeys(("answer", "reference"), _answer),
    "columns": _columns,
}
