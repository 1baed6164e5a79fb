"""Samples of a run: a page of those that match a query, and one of them with its tokens."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from barograph.answers.open_run import OpenRun
from barograph.answers.responses import field_values
from barograph.base.errors import RequestError
from barograph.base.model import Sample
from barograph.journal.format.tokens import TopLogprobs
from barograph.journal.samples.query import Query, TooSlowError, shown_columns
from barograph.journal.samples.search import even_places
from barograph.journal.samples.token_sums import all_values, token_sums
from barograph.journal.samples.transcript import TurnPart, turns_of
from barograph.recording.samples.choice import shortened

MAX_PART = 2000  # characters of a part of a turn in a list
TEXTS = ("full", "turns", "whole")
RAW = ("prompt", "completion", "messages")
REPORTED = ("chosen != none", "chosen = none and tokens > 0", "chosen = none and tokens = none")
"""The samples of a report, in the order in which they are wanted."""
MAX_TOKEN_NUMBERS = 2_000_000  # of a report: about 11 MB of base64
LONG = ("tokens", "token_values", "top_logprobs")  # which lists have not


def samples_view(opened: OpenRun, query: Query, offset: int, limit: int, texts: str = "full") -> dict[str, Any]:
    """Return the matching samples from number ``offset`` on, and a census of all samples.

    With ``texts`` they have their prompts, completions and messages, shortened turns, or whole turns and tokens. Those
    of one task are also counted by step: all that match, whatever the limit is.
    """
    try:
        found = opened.view.find_samples(replace(query, by_step=query.task is not None), offset + limit)
    except TooSlowError as problem:
        raise RequestError(400, str(problem)) from None
    pairs = zip(found.samples[offset:], found.places[offset:], strict=True)
    return {
        "samples": [_listed(sample, texts, query.grep or "") | {"place": place} for sample, place in pairs],
        "matched": found.matched,
        "offset": offset,
        "more": found.matched > offset + limit,
        "census": asdict(found.census),
        "unknown": list(found.unknown),
        "over_training": None if found.by_step is None else asdict(found.by_step),
    }


def report_samples(opened: OpenRun, limit: int) -> dict[str, Any]:
    """Return samples for a report, the newest step first.

    Those that ``measure`` has chosen come before others with tokens, and these before the rest; where not all of a kind
    fit, they are of all steps. With too many tokens for a file some samples have only their texts.
    """
    samples: list[Sample] = []
    places: list[str] = []
    for where in REPORTED:
        found = opened.view.find_samples(Query(where=where, spread=True), limit - len(samples))
        samples += found.samples
        places += found.places
    order = sorted(range(len(samples)), key=lambda place: -(samples[place].step or 0))
    kept = _within_budget([samples[place] for place in order])
    pairs = zip(kept, (places[place] for place in order), strict=True)
    return {
        "samples": [_listed(sample, "whole", "") | {"place": place} for sample, place in pairs],
        "matched": found.census.kept,
        "offset": 0,
        "more": found.census.kept > len(samples),
        "census": asdict(found.census),
        "unknown": [],
    }


def _within_budget(samples: list[Sample]) -> list[Sample]:
    """Return samples of which at most so many have their tokens that their numbers are ``MAX_TOKEN_NUMBERS``."""
    having = [place for place, sample in enumerate(samples) if len(sample.tokens)]
    total = sum(len(samples[place].tokens) * (1 + len(samples[place].token_values)) for place in having)
    if total <= MAX_TOKEN_NUMBERS:
        return samples
    kept = {having[place] for place in even_places(len(having), len(having) * MAX_TOKEN_NUMBERS // total)}
    return [
        sample if place in kept else replace(sample, tokens=(), token_values={}, top_logprobs=())
        for place, sample in enumerate(samples)
    ]


def sample_view(opened: OpenRun, place: str) -> dict[str, Any]:
    """Return one sample with its turns, its tokens and their values."""
    found = opened.view.find_samples(Query(place=place), 1)
    if not found.samples:
        raise RequestError(404, f"no sample at {place[:80]!r}")
    return whole_sample(found.samples[0]) | {"place": place}


def token_sums_view(opened: OpenRun, step: int, value: str, limit: int) -> dict[str, Any]:
    """Return the tokens that carry most of a value over the samples of a step."""
    found = opened.view.find_samples(Query(step=step, where="tokens > 0"))
    names = dict.fromkeys(name for sample in found.samples for name in all_values(sample.token_values))
    sums = token_sums(zip(found.samples, found.places, strict=True), value)
    return {
        "step": step,
        "value": value,
        "values": list(names),
        "samples": len(found.samples),
        "tokens": [entry.record() for entry in sums[:limit]],
    }


def whole_sample(sample: Sample) -> dict[str, Any]:
    """Return all fields of a sample and its turns; each array of its tokens is the base64 of its float32."""
    arrays = {name: np.asarray(sample.token_values[name], "<f4") for name in sample.token_values}
    return {
        **_short_fields(sample),
        "turns": _turns(sample, field_values),
        "tokens": list(sample.tokens),
        "token_values": {name: _packed(array) for name, array in arrays.items()},
        "top_logprobs": _alternatives(sample.top_logprobs),
    }


def _alternatives(found: Sequence[Any]) -> dict[str, Any] | None:
    """Return the different texts, and the numbers, texts and log-probs of all alternatives; None if there are none."""
    if not isinstance(found, TopLogprobs):
        return None
    texts, *arrays = found.columns
    named = zip(("counts", "ids", "log_probs"), arrays, strict=True)
    return {"texts": list(texts), **{name: _packed(np.asarray(array, "<f4")) for name, array in named}}


def _packed(array: NDArray[np.float32]) -> str:
    return b64encode(array.tobytes()).decode()


def _short_fields(sample: Sample) -> dict[str, Any]:
    record = {field.name: getattr(sample, field.name) for field in fields(sample) if field.name not in LONG}
    return record | {"columns": shown_columns(sample)}


def _listed(sample: Sample, texts: str, wanted: str) -> dict[str, Any]:
    """Return a sample of a list."""
    if texts == "whole":
        return {name: value for name, value in whole_sample(sample).items() if name not in RAW}
    record = _short_fields(sample) | {"tokens": len(sample.tokens), "token_values": list(sample.token_values)}
    if texts == "full":
        return record
    turns = _turns(sample, lambda part: _shortened_part(part, wanted.lower()))
    return {name: value for name, value in record.items() if name not in RAW} | {"turns": turns}


def _turns(sample: Sample, record: Callable[[TurnPart], dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"role": turn.role, "parts": [record(part) for part in turn.parts]} for turn in turns_of(sample)]


def _shortened_part(part: TurnPart, wanted: str) -> dict[str, Any]:
    """Return a part with its text shortened, but not where the wanted text is."""
    found, text = field_values(part), part.text
    if len(text) <= MAX_PART:
        return found
    match = text.lower().find(wanted) if wanted else -1
    cut = max(0, match - MAX_PART // 4)
    shown = shortened(text, MAX_PART) if match < 0 else f"{shortened(text[:cut], 200)}{shortened(text[cut:], MAX_PART)}"
    return found | {"text": shown, "length": len(text)}
