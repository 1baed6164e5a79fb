"""What the config of a run says about its numbers: updates per batch, the estimator of a KL, what is not computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

_OFF = ("False", "None", "0", "0.0", "")
_ESTIMATORS = {
    "k1": "k1", "kl": "k1", "k2": "k2", "mse": "k2", "k3": "k3", "low_var_kl": "k3", "abs": "abs", "full": "exact",
}  # fmt: skip
_ESTIMATOR_SETTINGS = {
    # veRL and slime: kl_loss_type; SkyRL: kl_estimator_type; OpenRLHF and TRL's PPO: kl_estimator.
    "policy/kl_loss": ("kl_loss_type", "kl_estimator_type", "kl_estimator"),
    "policy/ref_kl_k1": ("kl_penalty", "kl_estimator"),
}


class Shown(NamedTuple):
    """A fact, and the settings that show it."""

    value: Any
    settings: str


class ConfigFacts:
    """The settings of a run by the last word of their key; of several with one word, the actor's count."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings as text."""
        if not self._config:
            return {}
        from windsock.formatting import flatten  # which a run without a config does not need

        found: dict[str, tuple[bool, str]] = {}
        for key, value in flatten(self._config):
            word, is_actors = key.rpartition(".")[2], "actor" in key.split(".")
            if is_actors or not found.get(word, (False, ""))[0]:
                found[word] = is_actors, str(value)
        return {word: value for word, (_, value) in found.items()}

    @cached_property
    def updates_per_batch(self) -> Shown | None:
        """How many updates a batch of rollouts is used for, where the config decides it."""
        for words, count in _UPDATES:
            numbers = [self._number(word) for word in words]
            if None not in numbers:
                updates = count(*[number for number in numbers if number is not None])
                return Shown(max(1, math.ceil(updates)), self._listed(words))
        # TRL generates once per optimizer step unless another batch size is set.
        alone, others = self._number("num_iterations"), ("generation_batch_size", _PER_GENERATION)
        if alone and all(self.settings.get(word, "None") in _OFF for word in others):
            return Shown(int(alone), self._listed(("num_iterations",)))
        return None

    def kl_estimator(self, metric: str) -> Shown | None:
        """Return the estimator that is configured for a KL to the reference."""
        for word in _ESTIMATOR_SETTINGS.get(metric, ()):
            found = _ESTIMATORS.get(self.settings.get(word, "").rstrip("+"))
            if found:
                return Shown(found, self._listed((word,)))
        return None

    @cached_property
    def reference_kl_off(self) -> str | None:
        """The settings by which no KL to the reference is computed; None where they do not say so."""
        if self._is_off("beta") and "num_generations" in self.settings:  # of TRL's trainers with rollouts
            return self._listed(("beta",))
        words = [word for word in ("use_kl_loss", "use_kl_in_reward") if word in self.settings]
        return self._listed(words) if words and all(map(self._is_off, words)) else None

    def _is_off(self, word: str) -> bool:
        return word in self.settings and self.settings[word] in _OFF

    def _number(self, word: str) -> float | None:
        try:
            number = float(self.settings[word])
        except (KeyError, ValueError):
            return None
        return number if number > 0 and math.isfinite(number) else None

    def _listed(self, words: Iterable[str]) -> str:
        return ", ".join(f"{word} = {self.settings[word]}" for word in words)


_PER_GENERATION = "steps_per_generation"
_UPDATES: tuple[tuple[tuple[str, ...], Callable[..., float]], ...] = (
    # TRL's GRPO and RLOO, TRL's PPO, veRL, OpenRLHF, AReaL.
    (("num_iterations", _PER_GENERATION, "gradient_accumulation_steps"), lambda times, per, steps: times * per / steps),
    (("num_ppo_epochs", "num_mini_batches"), lambda epochs, parts: epochs * parts),
    (("ppo_epochs", "train_batch_size", "ppo_mini_batch_size"), lambda epochs, batch, part: epochs * batch / part),
    (
        ("max_epochs", "rollout_batch_size", "n_samples_per_prompt", "train_batch_size"),
        lambda epochs, prompts, samples, part: epochs * prompts * samples / part,
    ),
    (("ppo_n_minibatches",), lambda parts: parts),
)
