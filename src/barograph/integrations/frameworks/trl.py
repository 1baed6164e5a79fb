"""Trainers of TRL and transformers, watched from inside: phases, completions with their rewards, and batches beside
what they log.

Everything is added to the one trainer object; only TRL's profiling context is extended once.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from itertools import islice
from math import isnan
from typing import TYPE_CHECKING, Any

from barograph.base.errors import SettingsError
from barograph.base.problems import Problems, guarded
from barograph.recording.run import Run

if TYPE_CHECKING:
    from barograph.integrations.frameworks.transformers import BarographCallback

LOSSES = {
    "grpo": "seq-mean-token-mean", "bnpo": "token-mean", "dapo": "token-mean", "dr_grpo": "seq-mean-token-sum-norm",
}  # fmt: skip
"""The reduction of each type of loss that has the clipped ratio."""

IDS = "barograph_ids"
"""Where a generated batch has the numbers of its completions: TRL shuffles and splits all that is in it."""


class TrlRollouts:
    """The completions and batches of one trainer. A trainer that generates nothing has none."""

    def __init__(self, trainer: Any, measure: bool) -> None:
        self._trainer = trainer
        self._measures = measure
        self._callback: BarographCallback | None = None
        self._log_probs: tuple[Any, Any] = (None, None)  # of the newest forward pass, with entropies
        self._completions = 0  # so far
        self._tokenized: Any = None  # the run that has the tokenizer
        if measure:
            _check_measurable(trainer)

    @property
    def _problems(self) -> Problems | None:
        return None if self._callback is None else self._callback._problems

    def record(self, callback: BarographCallback) -> None:
        """Submit the completions of a training from now on, and measure its batches if that was asked for."""
        self._callback = callback
        extend(self._trainer, "_generate_and_score_completions", self._generated)
        if self._measures:
            extend(self._trainer, "_get_per_token_logps_and_entropies", self._computed_log_probs)
            extend(self._trainer, "_compute_loss", self._computed_loss)

    def _generated(self, generate: Callable[..., Any], inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        generated = generate(inputs, *args, **kwargs)
        self._submit(len(inputs), generated)
        return generated

    def _computed_log_probs(self, compute: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        computed = compute(*args, **kwargs)
        self._log_probs = computed[:2]
        return computed

    def _computed_loss(self, compute: Callable[..., Any], model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = compute(model, inputs, *args, **kwargs)
        self._measure_policy(inputs)
        self._log_probs = (None, None)  # they keep the graph of the forward pass
        return loss

    @guarded()
    def _submit(self, count: int, generated: MutableMapping[str, Any]) -> None:
        """Submit the completions of this process; evaluations generate some too, which are not the training's."""
        trainer, callback = self._trainer, self._callback
        if callback is None or callback.run is None or not trainer.model.training:
            return
        logs = trainer._logs
        by_function = {name: self._own(column, count) for name, column in logs["rewards"].items()}
        components = [
            {name: value for name, value in zip(by_function, row, strict=True) if not isnan(value)}
            for row in zip(*by_function.values(), strict=True)
        ]
        rewards = [self._total(each) for each in components]
        prompts = self._own(logs["prompt"], count)
        lengths, reasons = self._ends(generated)
        ids = self._numbers(count)
        callback.run.samples(
            {"id": ids[place], "prompt": prompts[place], "completion": completion, "reward": rewards[place],
             "rewards": components[place], "advantage": advantage, "length": lengths[place],
             "finish_reason": reasons[place], "task": _task(prompts[place])}
            for place, (completion, advantage) in enumerate(
                zip(self._own(logs["completion"], count), self._own(logs["advantages"], count), strict=True)
            )
        )  # fmt: skip
        callback.run.count(samples=count, tokens=int(generated["prompt_mask"].sum()) + sum(filter(None, lengths)))
        if self._measures:
            self._measure_data(generated, rewards, ids)

    def _numbers(self, count: int) -> Sequence[int]:
        """Return numbers for the next completions, which no other process has."""
        ranks, rank = self._trainer.accelerator.num_processes, self._trainer.accelerator.process_index
        first = self._completions
        self._completions += count
        return range(first * ranks + rank, self._completions * ranks + rank, ranks)

    def _own(self, column: Iterable[Any], count: int) -> list[Any]:
        """Return this process's part of what the trainer gathered from all processes last."""
        accelerator, values = self._trainer.accelerator, list(column)
        start = len(values) - count * (accelerator.num_processes - accelerator.process_index)
        return list(islice(values, start, start + count))

    def _total(self, components: Mapping[str, float]) -> float | None:
        """Return the reward that is trained on: the weighted sum of what the functions returned."""
        weights = dict(zip(self._trainer.reward_func_names, self._trainer.reward_weights.tolist(), strict=True))
        return sum(weights[name] * value for name, value in components.items()) if components else None

    def _ends(self, generated: Mapping[str, Any]) -> tuple[list[int | None], list[str]]:
        """Return the number of tokens of each completion, and whether it ended or was cut off."""
        ids, counts = generated["completion_ids"], generated["completion_mask"].sum(1).long()
        last = ids.gather(1, (counts - 1).clamp(min=0).unsqueeze(1)).squeeze(1).tolist()
        lengths = counts.tolist()
        ends = getattr(self._trainer, "eos_token_ids", None)
        ends = ends or [self._trainer._tokenizer.eos_token_id]  # TRL before 1.14 knows one
        # ``mask_truncated_completions`` masks every token of a completion that was cut off.
        reasons = ["stop" if length and id in ends else "length" for length, id in zip(lengths, last, strict=True)]
        return [length or None for length in lengths], reasons

    def _measure_data(
        self, generated: MutableMapping[str, Any], rewards: Sequence[float | None], ids: Sequence[int]
    ) -> None:
        """Measure the batch that was generated, once for all its updates."""
        import torch

        if self._callback is None or self._callback.run is None:
            return
        if self._tokenized is not self._callback.run:
            self._tokenized = self._callback.run
            self._tokenized.tokenizer(self._trainer._tokenizer)
        generated[IDS] = torch.tensor(ids)  # on the host: nothing waits for the device to read them
        size = self._trainer.num_generations
        whole = len(rewards) % size == 0  # else a group is spread over processes
        given = {
            "scores": [float("nan") if reward is None else reward for reward in rewards],
            "groups": [place // size for place in range(len(rewards))] if whole else None,
            "prompt_mask": generated["prompt_mask"],
            "actions": generated["completion_ids"],
        }
        self._callback.run.measure({**_arrays(generated), **_known(given)}, part="data")

    @guarded()
    def _measure_policy(self, inputs: Mapping[str, Any]) -> None:
        """Measure one micro-batch of an update, as its loss was computed."""
        trainer, callback = self._trainer, self._callback
        log_probs, entropy = self._log_probs
        if callback is None or callback.run is None or log_probs is None or not trainer.model.training:
            return
        now = log_probs.detach()
        given = {"log_probs": now, "entropy": None if entropy is None else entropy.detach()}
        arrays = {"old_log_probs": now, **_arrays(inputs), **_known(given)}
        options = {"clip": (trainer.epsilon_low, trainer.epsilon_high), "level": trainer.importance_sampling_level}
        loss = {"loss": LOSSES[trainer.loss_type], "kl_loss_coef": trainer.beta}
        if trainer.loss_type == "dr_grpo":
            loss["loss_norm"] = trainer.max_completion_length
        callback.run.measure(arrays, part="policy", **options, **loss)


def _check_measurable(trainer: Any) -> None:
    loss = getattr(trainer, "loss_type", None)
    if not hasattr(trainer, "_compute_loss") or loss not in LOSSES:
        kind = f"{type(trainer).__name__} with loss_type={loss!r}" if loss else type(trainer).__name__
        raise SettingsError(f"watch: measure=True is for GRPO with the losses {', '.join(LOSSES)}; got {kind}")


def _arrays(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arrays of a batch of TRL under the names of ``barograph.Batch``."""
    mask = batch["completion_mask"]
    mask = mask * batch["tool_mask"] if "tool_mask" in batch else mask
    advantages = batch["advantages"]
    found = {
        "response_mask": mask,
        "advantages": advantages.unsqueeze(1).expand(mask.shape) if advantages.dim() == 1 else advantages,
        "old_log_probs": batch.get("old_per_token_logps"),
        "ref_log_probs": batch.get("ref_per_token_logps"),
        "rollout_log_probs": batch.get("sampling_per_token_logps"),
        "ids": batch[IDS].tolist() if IDS in batch and batch[IDS].device.type == "cpu" else None,
    }
    return _known(found)


def _known(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in arrays.items() if array is not None}


def _task(prompt: Any) -> str:
    """Return a name for a prompt: the completions of one prompt are a group, and are followed over the training."""
    return blake2b(repr(prompt).encode(), digest_size=6).hexdigest()


PHASES = {
    "compute_loss": "compute_loss", "_prepare_inputs": "prepare_inputs", "evaluate": "evaluate",
    "_save_checkpoint": "save",
}  # fmt: skip
"""Phases of a trainer's methods, where TRL does not profile them itself."""

_trained: list[tuple[BarographCallback, Any]] = []
"""The trainers that train now, with their callbacks; the innermost is the last."""


def watch(trainer: Any, run: Run | None = None, *, measure: bool = False, **settings: Any) -> BarographCallback:
    """Record everything that a trainer of TRL or transformers does; return the callback, whose ``run`` it is.

    ``run`` is a run to record to. Without one, ``trainer.train()`` begins one with the ``settings`` of
    ``barograph.init``. ``measure`` also measures the batches of GRPO.
    """
    if not hasattr(trainer, "callback_handler"):
        raise SettingsError(f"watch: expected a trainer of TRL or transformers, got {type(trainer).__name__}")
    from barograph.integrations.frameworks.transformers import BarographCallback, source_of

    rollouts = TrlRollouts(trainer, measure)
    callbacks = trainer.callback_handler.callbacks
    known = [one for one in callbacks if isinstance(one, BarographCallback)]  # of report_to, or of an earlier call
    callback = known[0] if known else BarographCallback()
    if not known:
        callbacks.insert(0, callback)  # before those that remove values, such as PrinterCallback
    callback.configure(run, settings, source_of(trainer))
    if not callback.watches:
        callback.watches = True
        _record_phases(trainer, callback)
        rollouts.record(callback)
    return callback


def extend(target: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a method of one object, if it has it, by ``around``, which is given the method and its arguments."""
    method = getattr(target, name, None)
    if method is not None:
        setattr(target, name, functools.wraps(method)(functools.partial(around, method)))


def _record_phases(trainer: Any, callback: BarographCallback) -> None:
    def timed(phase: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with callback.phase(phase):
            return method(*args, **kwargs)

    def loaded(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        callback.end_step()  # the data is the next step's
        return timed("load_data", method, *args, **kwargs)

    def train(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        entry = callback, trainer
        _trained.append(entry)
        try:
            return method(*args, **kwargs)
        except BaseException as problem:
            callback.fail(problem)
            raise
        finally:
            _trained.remove(entry)

    for name, phase in PHASES.items():
        if not _is_profiled(trainer, name):
            extend(trainer, name, functools.partial(timed, phase))
    extend(trainer, "get_batch_samples", loaded)
    extend(trainer.accelerator, "backward", functools.partial(timed, "backward"))
    extend(trainer, "train", train)
    _extend_profiling()


def _is_profiled(trainer: Any, name: str) -> bool:
    return hasattr(getattr(type(trainer), name, None), "__wrapped__")  # by TRL's decorator


@functools.cache
def _extend_profiling() -> None:
    """Let TRL's profiling open phases too."""
    profiling = sys.modules.get("trl.extras.profiling")
    context = getattr(profiling, "ProfilingContext", None)
    if context is None:
        return
    enter, leave = context.__enter__, context.__exit__

    @functools.wraps(enter)
    def enter_phase(self: Any) -> Any:
        self.barograph_phase = _phase_of(self.name)
        self.barograph_phase.__enter__()
        return enter(self)

    @functools.wraps(leave)
    def leave_phase(self: Any, *problem: Any) -> Any:
        try:
            return leave(self, *problem)
        finally:
            self.barograph_phase.__exit__(*problem)

    context.__enter__, context.__exit__ = enter_phase, leave_phase


def _phase_of(name: str) -> AbstractContextManager[Any]:
    """Return the phase of a profiled section, which TRL names as ``GRPOTrainer._prepare_inputs``."""
    if not _trained:
        return nullcontext()
    callback, trainer = _trained[-1]
    section = str(name).partition(".")[2] or str(name)
    if section in getattr(trainer, "reward_func_names", ()):
        return callback.phase(f"reward/{section}")
    return callback.phase(section.lstrip("_"))
