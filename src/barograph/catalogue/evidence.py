"""Evidence of a run for the sources of its names: the names that each source knows, and what its config says, such as
updates per batch, the estimator of a KL, what is not computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from barograph.catalogue.sources import (
    SIGNS,
    TRL_PREFIXES,
    NameShape,
    heirs_of,
    joined_bits,
    producer_bits,
    source_bits,
    sources_of,
)
from barograph.catalogue.spec import ERAS, Text

_OFF = ("False", "None", "0", "0.0", "")

_ESTIMATORS = {
    "k1": "k1", "kl": "k1", "k2": "k2", "mse": "k2", "k3": "k3", "low_var_kl": "k3", "abs": "abs", "full": "exact",
}  # fmt: skip

_ESTIMATOR_SETTINGS = {
    # veRL and slime: kl_loss_type; SkyRL: kl_estimator_type; OpenRLHF and TRL's PPO: kl_estimator.
    "policy/kl_loss": ("kl_loss_type", "kl_estimator_type", "kl_estimator"),
    "policy/ref_kl_k1": ("kl_penalty", "kl_estimator"),
}


class ShownFact(NamedTuple):
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
        from barograph.base.formatting import flatten  # which a run without a config does not need

        found: dict[str, tuple[bool, str]] = {}
        for key, value in flatten(self._config):
            word, is_actors = key.rpartition(".")[2], "actor" in key.split(".")
            if is_actors or not found.get(word, (False, ""))[0]:
                found[word] = is_actors, str(value)
        return {word: value for word, (_, value) in found.items()}

    @cached_property
    def updates_per_batch(self) -> ShownFact | None:
        """How many updates a batch of rollouts is used for, where the config decides it."""
        for words, count in _UPDATES:
            numbers = [self._number(word) for word in words]
            if None not in numbers:
                updates = count(*[number for number in numbers if number is not None])
                return ShownFact(max(1, math.ceil(updates)), self._listed(words))
        # TRL generates once per optimizer step unless another batch size is set.
        alone, others = self._number("num_iterations"), ("generation_batch_size", _PER_GENERATION)
        if alone and all(self.settings.get(word, "None") in _OFF for word in others):
            return ShownFact(int(alone), self._listed(("num_iterations",)))
        return None

    def kl_estimator(self, metric: str) -> ShownFact | None:
        """Return the estimator that is configured for a KL to the reference."""
        for word in _ESTIMATOR_SETTINGS.get(metric, ()):
            found = _ESTIMATORS.get(self.settings.get(word, "").rstrip("+"))
            if found:
                return ShownFact(found, self._listed((word,)))
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

_WEAK = 0.25  # weight of a name that only fits a pattern which takes almost any name

_MARGIN = 3.0  # a source is better where it alone knows this many times the names that only the other one knows

_FEW = 4  # names from which on the absence of a name says something

_EXAMPLES = 3


class Evidence:
    """The sources that know each name of a run, as bits, and what its config says. ``names`` has their shapes."""

    def __init__(self, names: Mapping[str, NameShape], config: Mapping[str, Any]) -> None:
        self._names = names
        self.facts = ConfigFacts(config)
        self._compared: dict[tuple[int, int], bool] = {}
        self._best: dict[tuple[str, ...], tuple[tuple[str, ...], Text | None]] = {}
        self._refuted = 0

    def refute(self, bits: int) -> None:
        """Exclude sources that the values of a name contradict."""
        self._refuted |= bits
        self._compared.clear()
        self._best.clear()
        for derived in ("_impossible", "_weights"):
            self.__dict__.pop(derived, None)

    def _known_by(self, shape: NameShape) -> tuple[int, float]:
        """Return the possible sources that know names of a shape, and the weight of such a name as evidence."""
        return (shape.strong or shape.weak) & ~self._impossible, 1.0 if shape.strong else _WEAK

    @cached_property
    def _weights(self) -> dict[int, float]:
        found: dict[int, float] = {}
        for shape, count in Counter(self._names.values()).items():
            bits, weight = self._known_by(shape)
            if bits:
                found[bits] = found.get(bits, 0.0) + weight * count
        return found

    def weight(self, bits: int) -> float:
        """Return the weight of the names that one of the sources knows."""
        return sum(weight for known, weight in self._weights.items() if known & bits)

    def _only(self, bits: int, others: int) -> float:
        """Return the weight of the names that the first sources know and the others do not."""
        return sum(weight for known, weight in self._weights.items() if _is_only(known, bits, others))

    def beats(self, bits: int, others: int) -> bool:
        """Return whether one of the first sources explains the run clearly better than each of the others."""
        key = bits, others
        if key not in self._compared:
            self._compared[key] = any(
                all(self._better(one, other) for other in _single(others)) for one in _single(bits)
            )
        return self._compared[key]

    def _better(self, bits: int, others: int) -> bool:
        alone = self._only(bits, others)
        return alone >= 1.0 and alone >= _MARGIN * self._only(others, bits)

    def why_better(self, bits: int, others: int) -> Text:
        """Return a sentence with names that the first sources know and the others do not."""
        best = max(_single(bits), key=lambda bit: self._only(bit, others))
        shown = {shape for shape in set(self._names.values()) if _is_only(self._known_by(shape)[0], best, others)}
        names = [name for name, shape in self._names.items() if shape in shown]
        listed = ", ".join(names[:_EXAMPLES])
        one, other = _listed(best), _listed(others)
        if len(names) == 1:
            return Text(
                f"One other name of this run is written by {one} and not by {other}: {listed}.",
                f"该实验另有一个名字由 {one} 写入、而 {other} 不写：{listed}。",
            )
        return Text(
            f"{len(names)} other names of this run are written by {one} and not by {other}, such as {listed}.",
            f"该实验另有 {len(names)} 个名字由 {one} 写入、而 {other} 不写，例如 {listed}。",
        )

    def best_producers(self, producers: tuple[str, ...], prior: str | None) -> tuple[tuple[str, ...], Text | None]:
        """Return the frameworks that no other one beats, and the reason why the others are not among them.

        A prior is kept unless another one alone knows more names.
        """
        if producers not in self._best:
            self._best[producers] = self._of_prior(producers, prior) or self._unbeaten(producers)
        return self._best[producers]

    def _of_prior(self, producers: tuple[str, ...], prior: str | None) -> tuple[tuple[str, ...], Text] | None:
        stated = 0 if prior is None else source_bits(prior)
        kept = tuple(producer for producer in producers if producer_bits(producer) & stated)
        if not kept:
            return None
        for producer in producers:
            bits = producer_bits(producer)
            if self._only(bits, stated) > self._only(stated, bits):
                return None
        return kept, Text(f"The run states {prior} as its source.", f"该实验声明的来源是 {prior}。")

    def _unbeaten(self, producers: tuple[str, ...]) -> tuple[tuple[str, ...], Text | None]:
        left = self._without_idle_heirs(producers)
        bits = {producer: producer_bits(producer) for producer in left}
        beaten = {other: one for other in left for one in left if self._better(bits[one], bits[other])}
        kept = tuple(producer for producer in left if producer not in beaten) or left
        if not beaten:
            return kept, None
        other, one = next(iter(beaten.items()))
        return kept, self.why_better(bits[one], bits[other])

    def _without_idle_heirs(self, producers: tuple[str, ...]) -> tuple[str, ...]:
        """Drop the frameworks that add no name of this run to those of the framework that they are built on."""
        idle = {
            heir
            for base in producers
            for heir in heirs_of(base)
            if self._only(producer_bits(heir), producer_bits(base)) < 1.0
        }
        return tuple(producer for producer in producers if producer not in idle)

    def era_of(self, producer: str) -> str:
        """Return the era of a framework that explains the names better than its other eras; "" where none does."""
        eras = {era: source_bits(f"{producer}/{era}") & ~self._impossible for era in ERAS.get(producer, ())}
        possible = {era: bits for era, bits in eras.items() if bits and self.weight(bits)}
        for era, bits in possible.items():
            if all(self._better(bits, other) for other in possible.values() if other != bits):
                return era if len(possible) > 1 else ""
        return ""

    # signs: names that are always there, and settings

    @cached_property
    def _present(self) -> frozenset[str]:
        found = set(self._names)
        for name in self._names:
            if name.startswith(TRL_PREFIXES):
                found.add(next(name[len(prefix) :] for prefix in TRL_PREFIXES if name.startswith(prefix)))
        return frozenset(found)

    @cached_property
    def _impossible(self) -> int:
        bits = self._refuted
        for source, signs in SIGNS.items():
            if len(self._names) >= _FEW and signs.always and 2 * len(self._there(signs.always)) < len(signs.always):
                bits |= source_bits(source)
        for producer in dict.fromkeys(source.partition("/")[0] for source in self._configured):
            configured = [source for source in self._configured if source.partition("/")[0] == producer]
            bits |= producer_bits(producer) & ~joined_bits(map(source_bits, configured))
        return bits

    @cached_property
    def _configured(self) -> dict[str, str]:
        """The sources that the config or a mark in a name shows, and what shows it."""
        found = {}
        settings = self.facts.settings
        for source, signs in SIGNS.items():
            for key, values in signs.config:
                if key in settings and (not values or settings[key] in values):
                    found[source] = f"{key} = {settings[key]}"
            if signs.mark and any(signs.mark in name for name in self._names):
                found[source] = next(name for name in self._names if signs.mark in name)
        return found

    def _there(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self._present]

    def possible(self, name: str) -> int:
        """Return the bits of the sources that can have written a name of this run."""
        bits = -1 & ~self._impossible
        # Without a KL term, TRL's trainers do not compute the KL to the reference.
        if name.rpartition("/")[2] == "kl" and self.facts.settings.get("beta") in ("0", "0.0"):
            bits &= ~(source_bits("trl/grpo") | source_bits("trl/rloo"))
        return bits

    @cached_property
    def configured(self) -> int:
        """The bits of the sources that the config or a mark shows, and of those that are built on them; 0 for none."""
        heirs = [heir for source in self._configured for heir in heirs_of(source.partition("/")[0])]
        return joined_bits((*map(source_bits, self._configured), *map(producer_bits, heirs)))

    def why_impossible(self, bits: int) -> Text | None:
        """Return a sentence about the sources that are impossible."""
        for source, shown in self._configured.items():
            return Text(f"The run has {shown}, as {source}.", f"该实验有 {shown}，属于 {source}。")
        for source in (each for each in SIGNS if source_bits(each) & bits & self._impossible):
            lacks = ", ".join(name for name in SIGNS[source].always if name not in self._present)
            return Text(f"{source} also logs {lacks}; this run does not.", f"{source} 还会记录 {lacks}，该实验没有。")
        return None


def _is_only(known: int, bits: int, others: int) -> bool:
    return bool(known & bits and not known & others)


def _single(bits: int) -> list[int]:
    """Return the bits one by one."""
    return [1 << place for place in range(bits.bit_length()) if bits >> place & 1]


def _listed(bits: int) -> str:
    return ", ".join(list(sources_of(bits))[:_EXAMPLES])
