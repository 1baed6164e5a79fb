"""Collector of samples: it parses submitted samples, and writes the most informative samples of each step.

Those with measured tokens are packed and written by a thread: compressing them takes longer than a commit may.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from barograph.base.files.compression import MAX_VALUES
from barograph.base.model import Sample
from barograph.journal.format.samples import MAX_SAMPLE_BYTES, decode, encode, is_readable
from barograph.recording.context import Collector, Recording
from barograph.recording.samples.choice import SampleBudget, SampleChoice, shortened_sample
from barograph.recording.samples.parsing import Rejections, rows_of, to_sample
from barograph.recording.samples.tokens import DecodedTokens, GivenAlternatives, TokenDecoder, joined

if TYPE_CHECKING:
    from barograph.metrics.batch.token_rows import TakenTokens

MAX_WAITING = 8
"""Calls that may wait for the thread; a further one is made at once, by the thread that asks for it."""

SECONDS_BETWEEN = 0.05

SECONDS_AT_END = 30.0

Call = Callable[[], None]


class TokenWriter:
    """Makes calls in a thread of its own, one after the other. The calls must not raise.

    It may be used from a signal handler: to append to a deque and to take from it is atomic.
    """

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()

    def put(self, call: Call) -> None:
        """Make a call soon."""
        if len(self._calls) >= MAX_WAITING:
            call()
            return
        self._calls.append(call)
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="barograph-tokens", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait until all calls were made."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ends.set()
            thread.join(SECONDS_AT_END)
            self._ends.clear()

    def _loop(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ends.wait(SECONDS_BETWEEN)
            while self._calls:
                self._calls.popleft()()


TOO_LARGE = (
    f"more than {MAX_SAMPLE_BYTES:,} bytes or {MAX_VALUES:,} values of JSON, which readers do not accept; "
    "the sample is shortened"
)

MAX_KEPT_CHARACTERS = 1 << 26  # of samples with ids that wait for their commit; tokens of others have no text

MAX_OPEN_STEPS = 8  # steps that may wait for their commit; then the first is written as it is


class SampleCollector(Collector):
    """The choice of samples of every step that is under way. Usable from several threads and from a signal handler."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        settings = recording.settings
        self._budget = SampleBudget(settings.samples_per_step, settings.sample_bytes_per_step)
        self._decoder: TokenDecoder | None = None
        self.after_fork()

    def use_tokenizer(self, tokenizer: Any) -> None:
        """Decode the token ids of later samples with a tokenizer."""
        self._decoder = TokenDecoder(tokenizer)

    def after_fork(self) -> None:
        """Drop all samples: the parent writes them."""
        self._choices: dict[int | None, SampleChoice] = {}
        self._with_ids: dict[int | None, dict[str, Sample]] = {}
        self._characters = 0  # of those
        self._measured: dict[int, TakenTokens] = {}
        self._writer = TokenWriter()
        self._places = itertools.count()
        self._lock = threading.RLock()

    def submit_all(self, samples: Iterable[Any] | Mapping[str, Any], step: Any) -> None:
        """Consider many samples: mappings, ``Sample`` records, or a mapping of columns."""
        if isinstance(samples, Mapping):
            samples, rejected = rows_of(samples)
            self._skip(rejected)
        for sample in samples:
            self._recording.problems.attempt("run.samples", self.submit, sample, step)

    def submit(self, given: Any, step: Any) -> None:
        """Consider one sample for its own step, else for ``step``, else for the step that the next commit names."""
        if not isinstance(given, Mapping | Sample):
            reason = f"value is of type {type(given).__name__}, not a mapping of fields or a Sample"
            self._recording.problems.skip({"sample": reason})
            return
        own = given.step if isinstance(given, Sample) else given.get("step")
        number = self._recording.open_step(step if own is None else own)
        sample, rejected = to_sample(given, self._decoder, round(time.time(), 3))
        if self._budget.count and self._budget.bytes:
            self._consider(sample, number, rejected)
        self._skip(rejected)

    def join(self, step: int, measured: TakenTokens) -> None:
        """Store measured tokens with the samples of the same ids, when the step is committed."""
        if self._budget.count and self._budget.bytes:
            with self._lock:
                self._measured[step] = measured

    def commit(self, step: int) -> None:
        """Write the samples of a step, and late ones of earlier steps."""
        self._write_steps(step, step)

    def finish(self) -> None:
        """Write everything that is left; samples without a step belong to the step after the last commit."""
        self._write_steps(self._recording.next_step, None)
        self._writer.finish()

    def _consider(self, sample: Sample, step: int | None, rejected: Rejections) -> None:
        with self._lock:
            if step not in self._choices:
                self._limit_open_steps()
                self._choices[step] = SampleChoice(self._budget)
            if sample.id is not None:
                self._keep(sample, step)
            place, choice = next(self._places), self._choices[step]
            former = choice.too_large
            try:
                choice.consider(sample, place)
            except Exception as error:  # noqa: BLE001 - an object inside a message may raise anything when encoded
                rejected["messages"] = f"value cannot be stored ({type(error).__name__}: {error})"
                choice.consider(replace(sample, messages=(), tokens=(), token_values={}, top_logprobs=()), place)
            if choice.too_large > former:
                rejected["size"] = TOO_LARGE
        if isinstance(sample.tokens, DecodedTokens) and sample.tokens.problem:
            rejected["tokens"] = sample.tokens.problem
        if isinstance(sample.top_logprobs, GivenAlternatives) and sample.top_logprobs.problem:
            rejected["top_logprobs"] = sample.top_logprobs.problem

    def _keep(self, sample: Sample, step: int | None) -> None:
        """Keep a sample until its step is written: which ones are measured by token is known only then."""
        size = _characters(sample)
        if sample.id is not None and self._characters + size <= MAX_KEPT_CHARACTERS:
            self._with_ids.setdefault(step, {})[sample.id] = sample
            self._characters += size

    def _skip(self, rejected: Rejections) -> None:
        if rejected:
            self._recording.problems.skip({f"sample.{name}": reason for name, reason in rejected.items()})

    def _write_steps(self, step: int, last: int | None) -> None:
        """Give samples without a step this one, and write all steps up to ``last``."""
        with self._lock:
            self._name_open_step(step)
            known = (*self._choices, *self._measured)
            for due in sorted({key for key in known if key is not None and (last is None or key <= last)}):
                self._write(due)

    def _name_open_step(self, step: int) -> None:
        """Move samples without a step to this one; samples submitted under its number share the budget."""
        unnamed = self._choices.pop(None, None)
        if None in self._with_ids:
            self._with_ids.setdefault(step, {}).update(self._with_ids.pop(None))
        if unnamed is None:
            return
        named = self._choices.setdefault(step, unnamed)
        if named is not unnamed:
            kept = unnamed.chosen()
            for text in kept:
                named.consider(decode(text, step), next(self._places))
            # ``consider`` has counted the kept ones.
            named.seen += unnamed.seen - len(kept)

    def _limit_open_steps(self) -> None:
        named = sorted(key for key in self._choices if key is not None)
        if len(named) >= MAX_OPEN_STEPS:
            self._write(named[0])

    def _write(self, step: int) -> None:
        choice, measured = self._choices.pop(step, None), self._measured.pop(step, None)
        samples = self._with_ids.pop(step, {})
        if samples:
            self._characters -= sum(map(_characters, samples.values()))
        if choice is not None:
            others = () if measured is None else measured.ids()[: self._budget.count]
            self._recording.journal.samples(step, choice.seen, choice.chosen(without={*others}))
        if measured is not None:
            attempt = self._recording.problems.attempt
            write = self._write_measured
            self._writer.put(lambda: attempt("samples of measured tokens", write, step, measured, samples))

    def _write_measured(self, step: int, measured: TakenTokens, samples: Mapping[str, Sample]) -> None:
        """Write samples with measured tokens, within a budget of bytes of their own; beyond it, without the tokens."""
        texts: list[bytes] = []
        left, rejected = self._budget.bytes, Rejections()
        for row in measured.fetch()[: self._budget.count]:
            whole, wrong = joined(row, samples.get(row.id), self._decoder)
            if wrong:
                rejected["token_values"] = wrong
            text = encode(whole)
            if len(text) >= left or not is_readable(text):
                rejected["size"] = f"tokens of measured sequences need more than {self._budget.bytes:,} bytes a step"
                text = shortened_sample(text, min(self._budget.bytes, MAX_SAMPLE_BYTES))
            left -= len(text) + 1
            texts.append(text)
        if texts:
            self._recording.journal.samples(step, 0, texts)
        self._skip(rejected)


def _characters(sample: Sample) -> int:
    """Return about how many characters a sample has in memory."""
    return len(sample.prompt) + len(sample.completion) + sum(len(str(m.get("content"))) for m in sample.messages)
