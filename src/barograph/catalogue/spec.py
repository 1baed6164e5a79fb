"""Records of the catalogue: a metric, its names and texts, the words it may use, the checks of a declaration, and the
metrics by domain.

A metric of the data part has one for each label that a trainer gives, with its id and names, ``/by/`` and the
label; these are not declared, as they follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from barograph.base.errors import BarographError, did_you_mean

FAMILIES = (
    "validation", "value", "reward", "tokens", "policy", "evaluation", "ppo", "sft", "system", "time",
    "engine", "memory", "rollout", "eval", "pipeline", "sample", "custom",
)  # fmt: skip

POPULATIONS = (
    "tokens", "sequences", "episodes", "groups", "tasks", "runs", "samples", "shards", "ranks", "devices",
    "processes", "engines", "hosts", "phases", "updates", "steps", "calls", "run",
)  # fmt: skip

QUANTILES = ("p1", "p10", "p50", "p90", "p99")

STATISTICS = ("mean", "max", "min", "std", "var", *QUANTILES, "share", "sum", "count", "last", "quotient", "other")

STATES = ("mean", "moments", "extrema", "sum", "last", "ratio", "quantiles", "comoments", "none")

ESTIMATORS = ("", "k1", "k2", "k3", "exact", "sampled", "bootstrap", "unbiased", "bins")

DIRECTIONS = ("higher", "lower", "band", "none")

PARTS = ("", "data", "policy", "value")

INPUTS = frozenset((
    "log_probs", "old_log_probs", "ref_log_probs", "rollout_log_probs", "advantages", "raw_advantages", "returns",
    "values", "old_values", "rewards", "unclipped_rewards", "scores", "entropy", "old_entropy", "logits", "old_logits",
    "ref_logits", "exact_kl", "exact_ref_kl", "highest_logits", "lowest_logits",
    "actions", "eos_ids", "finished", "response_mask", "prompt_mask", "prompt_lengths", "cu_seqlens", "groups",
    "episodes", "domains", "weights", "keep",
    "clip", "dual_clip", "value_clip", "reward_clip", "kl_coef", "kl_loss_coef", "entropy_coef", "loss", "loss_norm",
    "loss_batch",
    "max_response_length", "max_prompt_length", "right_score", "temperature", "truncate", "reject", "level",
    "tokens", "samples", "devices", "flops",
))  # fmt: skip
"""Inputs of a metric: the fields of a batch, then the settings and counts that the caller gives."""

FRAMEWORKS = (
    "roll", "trl", "trinity", "verl", "slime", "prime-rl", "areal", "transformers", "openrlhf", "skyrl", "nemo-rl",
    "miles", "rllm", "ms-swift", "open-instruct", "llama-factory", "agent-lightning", "tinker", "deepspeed-chat",
    "axolotl", "torchtune", "rlinf", "cleanrl", "stable-baselines3", "wandb", "common",
)  # fmt: skip

OURS = ("barograph:roll", "barograph:trl", "barograph:trinity")

TAUGHT = "names.yaml"
"""The source of names that a user has described in a file."""

PRODUCERS = ("barograph", *OURS, *FRAMEWORKS, TAUGHT)

ERAS = {
    "roll": ("0.2", "2025-11", "2025-05"),
    "trl": (
        "grpo", "rloo", "sft", "dpo", "kto", "reward", "ppo", "online-dpo", "prm", "cpo", "orpo", "bco", "gkd",
        "async-1.16", "async-1.10", "ppo-0.11", "experimental",
    ),
    "trinity": ("0.6",),
    "verl": ("engine", "legacy", "v1", "bypass", "validation", "agentgym", "easyr1", "ragen", "agent"),
    "torchtune": ("sft", "grpo", "ppo", "async"),
}  # fmt: skip
"""Eras of the frameworks, the likeliest first: versions, dates, trainers or modes in which names differ."""

KINDS = (
    "sign", "estimator", "unit", "population", "denominator", "window", "mask", "reducer", "ddof", "moment",
    "clamp", "sentinel", "sum", "meaning",
)  # fmt: skip

_PLACEHOLDER = re.compile(r"\{(\w+)\}")

_ID = re.compile(r"(?:[a-z0-9_@^]+|\{\w+\})+(?:/(?:[a-z0-9_@^]|\{\w+\})+)*")


class CatalogueError(BarographError, ValueError):
    """A metric is declared incompletely, twice, or with a word that the catalogue does not know."""


@dataclass(frozen=True, slots=True)
class Text:
    """One text in English and in Chinese."""

    en: str
    zh: str

    def get(self, lang: str) -> str:
        """Return the text in a language."""
        return self.zh if lang == "zh" else self.en

    def format(self, lang: str, **facts: object) -> str:
        """Return the text in a language with facts in their places."""
        return self.get(lang).format(**facts)


NO_TEXT = Text("", "")

PLAIN_LOOK = Text(
    "There is no general rule: compare it with your earlier runs.", "没有通用的判断标准：请与自己以前的实验比较。"
)

PLAIN_NEXT = Text("The other values of the step at which it changes.", "看它变化的那一步上其他指标有何不同。")
"""Advice for the reader of a metric of which only the meaning is known."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference between a logged number and the metric that its name stands for.

    The logged number times ``factor`` is the metric; None where no arithmetic converts it. With ``comparable=False``
    the two must not be compared, even with the note.
    """

    kinds: tuple[str, ...]
    note: Text
    factor: float | None = None
    comparable: bool = True


@dataclass(frozen=True, slots=True)
class MetricName:
    """Name of a metric as one producer writes it. The era is a version, a date or a trainer; "" means any."""

    pattern: str
    producer: str
    era: str = ""
    difference: Difference | None = None

    @property
    def factor(self) -> float | None:
        """Factor from a number under this name to the metric; None when there is none."""
        return 1.0 if self.difference is None else self.difference.factor

    @property
    def source(self) -> str:
        """The producer, followed by the era where there is one: ``trl/grpo``."""
        return f"{self.producer}/{self.era}" if self.era else self.producer


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Range of a metric in a healthy run, and the source that says so; None leaves a side open."""

    low: float | None
    high: float | None
    source: Text


@dataclass(frozen=True, slots=True, eq=False)
class Trap:
    """A fact that misleads readers of a metric, in one framework or ("") in all."""

    where: str
    note: Text


@dataclass(frozen=True, slots=True, eq=False)
class RelatedMetric:
    """A similar metric. With ``comparable=True`` it may replace the metric in a translation, with the note.

    ``fill`` gives values of placeholders, of either metric, for which the relation holds.
    """

    to: str
    note: Text
    comparable: bool = False
    fill: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Placeholder:
    """A name between braces. ``kind``: one path segment, many, digits, or one of the choices."""

    name: str
    kind: str
    about: Text
    choices: tuple[tuple[str, Text], ...] = ()


@dataclass(frozen=True, slots=True)
class Headline:
    """A value that is shown first, or one that shows whether a run is healthy, and how it looks there.

    It is taken from the first of its metrics that the run has.
    """

    key: str
    title: Text
    metrics: tuple[str, ...]
    meaning: Text = NO_TEXT


# Compared and hashed by identity: metrics are keys of caches, and comparing all their texts would be slow.
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Metric:
    """One metric: definition, population, statistic, advice for its reader, and names.

    ``needs`` lists inputs: ``a|b`` accepts either, ``a?`` is optional.
    """

    id: str
    family: str
    title: Text
    about: Text
    unit: str
    population: str = "steps"
    statistic: str = "other"
    state: str = "none"
    formula: Text = NO_TEXT  # given for every metric that barograph computes
    look: Text = PLAIN_LOOK  # how the curve of a healthy run looks
    next: Text = PLAIN_NEXT  # where to look when it does not
    direction: str = "none"
    healthy: Band | None = None
    needs: tuple[str, ...] = ()
    part: str = ""
    estimator: str = ""
    crucial: bool = False
    names: tuple[MetricName, ...] = ()
    traps: tuple[Trap, ...] = ()
    related: tuple[RelatedMetric, ...] = ()

    def __repr__(self) -> str:
        return f"Metric({self.id!r})"

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names between braces in the id, in order."""
        return placeholders(self.id)


def placeholders(pattern: str) -> tuple[str, ...]:
    """Return the names between braces, in order."""
    return tuple(_PLACEHOLDER.findall(pattern)) if "{" in pattern else ()


def inputs(need: str) -> tuple[str, ...]:
    """Return the inputs that an entry of ``needs`` names, the preferred one first."""
    return tuple(need.removesuffix("?").split("|"))


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """Return the message about an unknown word, with the nearest known one or all of them."""
    words = [each for each in known if each]
    hint = did_you_mean(word, words, f"known are {', '.join(sorted(words))}", cutoff=0.4)
    return f"unknown {what} {word!r}, {hint}"


def problems(metric: Metric) -> Iterator[str]:
    """Yield everything that is wrong with a metric."""
    if not _ID.fullmatch(metric.id):
        yield "an id is made of lower-case words joined by '/', e.g. 'policy/kl_k2'"
    for field, words in _WORDS:
        if getattr(metric, field) not in words:
            yield unknown(field, getattr(metric, field), words)
    unknown_inputs = [name for need in metric.needs for name in inputs(need) if name not in INPUTS]
    yield from (unknown("input in needs", name, INPUTS) for name in unknown_inputs)
    yield from _text_problems(metric)
    if metric.healthy is not None:
        yield from _band_problems(metric.healthy)
    for name in metric.names:
        yield from (f"name {name.pattern!r}: {problem}" for problem in _name_problems(name))


_WORDS = (
    ("family", FAMILIES),
    ("population", POPULATIONS),
    ("statistic", STATISTICS),
    ("state", STATES),
    ("direction", DIRECTIONS),
    ("part", PARTS),
    ("estimator", ESTIMATORS),
)


def _text_problems(metric: Metric) -> Iterator[str]:
    for field in ("title", "about", "look", "next"):
        yield from missing_languages(field, getattr(metric, field))
    # A metric with a state is computed here, so its formula is known.
    if metric.state != "none" or metric.formula.en or metric.formula.zh:
        yield from missing_languages("formula", metric.formula)
    if not metric.unit.strip():
        yield "unit is missing"
    for trap in metric.traps:
        if trap.where and trap.where not in PRODUCERS:
            yield f"traps: {unknown('producer', trap.where, PRODUCERS)}"
        yield from missing_languages("traps: note", trap.note)
    for related in metric.related:
        yield from missing_languages(f"related {related.to!r}: note", related.note)


def missing_languages(field: str, text: Text) -> Iterator[str]:
    """Yield a message for each language in which a text is empty."""
    for lang, language in (("en", "English"), ("zh", "Chinese")):
        if not text.get(lang).strip():
            yield f"{field} is missing in {language}"


def _band_problems(band: Band) -> Iterator[str]:
    yield from missing_languages("healthy: source", band.source)
    if band.low is None and band.high is None:
        yield "healthy needs at least one of low and high"
    if band.low is not None and band.high is not None and band.low > band.high:
        yield f"healthy: low {band.low} is above high {band.high}"


def _name_problems(name: MetricName) -> Iterator[str]:
    if name.producer not in PRODUCERS:
        yield unknown("producer", name.producer, PRODUCERS)
    elif name.era and name.era not in ERAS.get(name.producer, ()):
        yield unknown(f"era of {name.producer}", name.era, ERAS.get(name.producer, ()))
    difference = name.difference
    if difference is None:
        return
    yield from (unknown("kind of difference", kind, KINDS) for kind in difference.kinds if kind not in KINDS)
    if not difference.kinds:
        yield "a difference needs at least one kind"
    yield from missing_languages("note", difference.note)
    # Names that barograph writes are translated by arithmetic alone, so nothing but the unit may differ.
    if name.producer.startswith("barograph") and (difference.kinds != ("unit",) or difference.factor is None):
        yield "barograph writes this name: only its unit may differ, with a factor"


BY = "/by/"

PLACEHOLDER = "{domain}"

MAX_LABEL = 64  # characters


def has_domains(metric: Metric) -> bool:
    """Return whether barograph computes a metric by domain: of the data part, and not a quantile."""
    return metric.part == "data" and metric.state not in ("none", "quantiles")


def split_domain(name: str) -> tuple[str, str]:
    """Return the id or name of the metric, and the label, which is empty where there is none."""
    base, separator, domain = name.rpartition(BY)
    return (base, domain) if separator else (name, "")


def clean_label(given: object) -> str:
    """Return a label as a part of a name: one segment of a path, printable, and not too long."""
    number = given.item() if hasattr(given, "item") else given
    text = str(int(number) if isinstance(number, float) and number.is_integer() else number)[:MAX_LABEL].strip()
    return "".join(char if char.isprintable() and char not in "/{}" else "_" for char in text) or "_"


@lru_cache(maxsize=1 << 14)  # 64 domains of every metric, in two vocabularies
def of_domain(metric: Metric, domain: str = PLACEHOLDER) -> Metric:
    """Return a metric of one domain, or of any with the placeholder for the label."""
    ours = (name for name in metric.names if name.producer.startswith("barograph"))
    return replace(
        metric,
        id=f"{metric.id}{BY}{domain}",
        title=Text(f"{metric.title.en}, by domain", f"{metric.title.zh}（按领域）"),
        about=Text(f"{metric.about.en} Of the sequences of one domain.", f"{metric.about.zh}只统计某一领域的序列。"),
        needs=(*metric.needs, "domains"),
        names=tuple(replace(name, pattern=f"{name.pattern}{BY}{domain}") for name in ours),
        crucial=False,
        healthy=None,
        traps=(),
        related=(),
    )
