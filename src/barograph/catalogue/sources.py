"""Sources of names: a framework, with a trainer, mode or version where its names depend on it.

A source is written ``trl``, ``trl/rloo``, ``verl/0.9`` or ``trl/ppo/0.11``. Each era of a framework has a bit, so that
the sources that know a name are one integer.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache

from barograph.catalogue.spec import ERAS, FRAMEWORKS, OURS, PRODUCERS, CatalogueError, Text, unknown

TRL_PREFIXES = ("train/", "eval/", "eval_", "test/", "test_")
"""Prefixes that transformers adds to the keys of an evaluation, and its tracker integrations to every key."""

Rank = tuple[int, tuple[int, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class NameShape:
    """What names of the same patterns have in common: of which declared names they are, and who writes those.

    A run may have thousands of names and has few shapes: what follows from the patterns alone is computed per shape.
    """

    places: tuple[tuple[int, Rank, int], ...]  # of each candidate the number of its entry, its rank and its bits
    strong: int  # bits of the sources that write it
    weak: int  # bits of those that only have a pattern which takes any name
    metrics: int  # how many metrics the candidates mean


HEIRS = {
    "transformers": ("trl", "ms-swift", "llama-factory", "axolotl"),
    "verl": ("trinity", "rllm", "agent-lightning"),
    "slime": ("miles",),
}
"""Frameworks that write the names of another one as well, since they are built on it."""

ALIKE = {"trl": ("ms-swift", "llama-factory", "axolotl")}
"""Frameworks that write many names of another one; without a name that only they write, a run is of the other one."""

COMMON = "common"
"""Names that hand-written loops use; a framework's own meaning of such a name is preferred."""

VERSIONS: dict[str, tuple[str, str]] = {
    "roll/2025-05": ("0", "0.1"),
    "roll/2025-11": ("0.1", "0.2"),
    "roll/0.2": ("0.2", ""),
    "trl/ppo-0.11": ("0", "0.12"),
    "trl/ppo": ("0.12", ""),
    "trl/grpo": ("0.14", ""),
    "trl/rloo": ("0.22", ""),
    "trl/async-1.10": ("1.0", "1.16"),
    "trl/async-1.16": ("1.16", ""),
    "trinity/0.6": ("0.6", ""),
    "verl/legacy": ("0", "0.9"),
    "verl/engine": ("0.6", ""),
    "verl/v1": ("0.7", ""),
}
"""The first version of an era, and the first one after it; an era that is not listed is of all versions."""


@dataclass(frozen=True, slots=True)
class SourceSigns:
    """Signs of a source: names that it always logs, settings (with their values) that only it has, and a mark.

    The mark is a part of a name that only this source writes, such as the class of the trainer.
    """

    always: tuple[str, ...] = ()
    config: tuple[tuple[str, tuple[str, ...]], ...] = ()
    mark: str = ""


_GRPO_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "cispo", "sapo", "vespo", "luspo")

_DPO_LOSSES = ("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "apo_zero")

SIGNS = {
    "trl/grpo": SourceSigns(
        ("reward",),
        (("loss_type", _GRPO_LOSSES), ("scale_rewards", ()), ("importance_sampling_level", ())),
        "GRPOTrainer.",
    ),
    "trl/rloo": SourceSigns(("kl",), (("normalize_advantages", ()), ("rloo_k", ())), "RLOOTrainer."),
    "trl/async-1.10": SourceSigns(("train_seq_len", "forward_time_s", "weight_sync_time_s", "buffer_qsize")),
    "trl/async-1.16": SourceSigns(
        ("perf/step_s", "sample/staleness_mean", "batch/samples_per_step", "rollout/duration_s")
    ),
    "trl/ppo": SourceSigns(("objective/kl", "objective/scores"), (("num_ppo_epochs", ()),)),
    "trl/ppo-0.11": SourceSigns(("ppo/loss/policy", "ppo/returns/mean", "env/reward_mean")),
    "trl/online-dpo": SourceSigns(("objective/kl", "objective/scores", "objective/scores_margin")),
    "trl/dpo": SourceSigns(("rewards/accuracies", "rewards/margins"), (("loss_type", _DPO_LOSSES),)),
    "trl/kto": SourceSigns(("rewards/chosen", "rewards/rejected", "logps/chosen"), (("desirable_weight", ()),)),
    "trl/reward": SourceSigns(
        ("min_reward", "mean_reward", "max_reward", "margin"), (("center_rewards_coefficient", ()),)
    ),
    "trl/prm": SourceSigns(("accuracy",), (("train_on_last_step_only", ()),)),
    "trl/cpo": SourceSigns(("nll_loss",), (("cpo_alpha", ()), ("simpo_gamma", ()))),
    "trl/orpo": SourceSigns(("log_odds_ratio", "log_odds_chosen")),
    "trl/bco": SourceSigns(("delta",), (("prompt_sample_size", ()),)),
    "trl/sft": SourceSigns((), (("completion_only_loss", ()), ("assistant_only_loss", ()))),
    "verl": SourceSigns((), (("ppo_micro_batch_size_per_gpu", ()), ("log_prob_micro_batch_size_per_gpu", ()))),
    "torchtune/ppo": SourceSigns(("scores", "rlhf_reward", "kl_reward", "ratios")),
    "torchtune/grpo": SourceSigns(("rewards", "successes", "ratios", "approx_policy_kl")),
    "torchtune/async": SourceSigns(("train_worker_training/loss", "train_worker_training/ratios")),
    "openrlhf": SourceSigns((), (("micro_rollout_batch_size", ()),)),
}


def heirs_of(producer: str) -> tuple[str, ...]:
    """Return the frameworks that write names of another one as well."""
    return (*HEIRS.get(producer, ()), *ALIKE.get(producer, ()))


def joined_bits(each: Iterable[int]) -> int:
    """Return the bits of all sources together."""
    return functools.reduce(operator.or_, each, 0)


_ALL = [(producer, era) for producer in PRODUCERS for era in ERAS.get(producer, ("",))]

_BITS = {source: 1 << place for place, source in enumerate(_ALL)}


@cache
def producer_bits(producer: str) -> int:
    """Return the bits of all eras of a framework."""
    return sum(bit for (each, _), bit in _BITS.items() if each == producer)


@lru_cache(maxsize=1 << 12)
def own_bits(producer: str, era: str) -> int:
    """Return the bits of the eras in which a framework writes a name; "" are all."""
    if producer == "barograph":  # barograph writes ids in every vocabulary
        return producer_bits("barograph") | sum(map(producer_bits, OURS))
    return _BITS[producer, era] if era else producer_bits(producer)


@cache
def heir_bits(producer: str) -> int:
    """Return the bits of the frameworks that write the names of a framework as well."""
    return sum(map(producer_bits, HEIRS.get(producer, ())))


def sources_of(bits: int) -> Iterator[str]:
    """Yield the sources of bits, the likeliest first; a framework without an era where all its eras are among them."""
    for producer in producers_of(bits):
        whole = producer_bits(producer)
        if bits & whole == whole:
            yield producer
        else:
            yield from (f"{producer}/{era}" for era in ERAS[producer] if bits & _BITS[producer, era])


@lru_cache(maxsize=1 << 12)
def producers_of(bits: int) -> tuple[str, ...]:
    """Return the frameworks of bits, the likeliest first."""
    return tuple(dict.fromkeys(producer for (producer, _), bit in _BITS.items() if bits & bit))


@lru_cache(maxsize=256)
def source_bits(source: str) -> int:
    """Return the bits that a source stands for; raise when it is unknown."""
    producer, *rest = source.split("/")
    if producer not in PRODUCERS:
        raise CatalogueError(f"unknown source {source!r}; it must be one of {', '.join(PRODUCERS)}")
    if producer == "barograph":
        return own_bits("barograph", "")
    bits = producer_bits(producer)
    for word in rest:
        is_era = word in ERAS.get(producer, ()) or not _is_version(word)
        bits &= _era_bits(producer, word, len(rest) > 1) if is_era else _version_bits(producer, word)
    if not bits:
        raise CatalogueError(f"source {source!r} contradicts itself: no era of {producer} is both")
    return bits


def check_source(source: str) -> None:
    """Raise when the framework, its trainer or its era is unknown."""
    source_bits(source)


def all_sources() -> list[str]:
    """Return every source that a user can state, each framework before its eras."""
    found = []
    for producer in (*OURS, *FRAMEWORKS):
        found += [producer, *(f"{producer}/{era}" for era in ERAS.get(producer, ()))]
    return found


def signs_of(source: str) -> Text | None:
    """Return what would show that a run is of a source: settings in its config, a mark in a name."""
    signs = SIGNS.get(source)
    if signs is None or not (signs.config or signs.mark):
        return None
    settings = [f"{key} = {values[0]}" if values else key for key, values in signs.config]
    parts = [", ".join(settings)] if settings else []
    named = f"{signs.mark}*" if signs.mark else ""
    en = " or ".join([f"{part} in the config" for part in parts] + ([f"a name with {named}"] if named else []))
    zh = "，或".join([f"配置中有 {part}" for part in parts] + ([f"名字中含 {named}"] if named else []))
    return Text(en, zh)


def _era_bits(producer: str, word: str, with_version: bool) -> int:
    """Return the bits of an era; with a version behind it, those of all its versions."""
    eras = ERAS.get(producer, ())
    exact = [era for era in eras if era == word and not with_version]
    found = exact or [era for era in eras if word in (era, era.partition("-")[0])]
    if not found:
        known = ", ".join(f"{producer}/{era}" for era in eras) or f"{producer} alone"
        raise CatalogueError(f"unknown era in source: {unknown('era', word, eras)}; it must be {known}, or a version")
    return sum(_BITS[producer, era] for era in found)


def _is_version(word: str) -> bool:
    return word.lstrip("v")[:1].isdigit()


def _version_bits(producer: str, word: str) -> int:
    wanted = _version(word)
    bits = 0
    for era in ERAS.get(producer, ("",)):
        since, until = VERSIONS.get(f"{producer}/{era}", ("0", ""))
        if _version(since) <= wanted and not (until and wanted >= _version(until)):
            bits |= _BITS[producer, era]
    return bits


def _version(text: str) -> tuple[int, ...]:
    digits = ["".join(filter(str.isdigit, part)) for part in text.lstrip("v").split(".")]
    return tuple(int(part) for part in digits if part)
