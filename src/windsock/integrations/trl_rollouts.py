"""What GRPO and RLOO generate: completions with their rewards become samples, and by request batches are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from hashlib import blake2b
from itertools import islice
from math import isnan
from typing import TYPE_CHECKING, Any

from windsock.errors import SettingsError
from windsock.problems import Problems, guarded

if TYPE_CHECKING:
    from windsock.integrations.transformers import WindsockCallback

LOSSES = {
    "grpo": "seq-mean-token-mean", "bnpo": "token-mean", "dapo": "token-mean", "dr_grpo": "seq-mean-token-sum-norm",
}  # fmt: skip
"""The reduction of each type of loss that has the clipped ratio."""
IDS = "windsock_ids"
"""Where a generated batch has the numbers of its completions: TRL shuffles and splits all that is in it."""


class Rollouts:
    """The completions and batches of one trainer. A trainer that generates nothing has none."""

    def __init__(self, trainer: Any, measure: bool) -> None:
        self._trainer = trainer
        self._measures = measure
        self._callback: WindsockCallback | None = None
        self._log_probs: tuple[Any, Any] = (None, None)  # of the newest forward pass, with entropies
        self._completions = 0  # so far
        self._tokenized: Any = None  # the run that has the tokenizer
        if measure:
            _check_measurable(trainer)

    @property
    def _problems(self) -> Problems | None:
        return None if self._callback is None else self._callback._problems

    def record(self, callback: WindsockCallback) -> None:
        """Submit the completions of a training from now on, and measure its batches if that was asked for."""
        from windsock.integrations.trl import extend

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
    """Return the arrays of a batch of TRL under the names of ``windsock.Batch``."""
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
