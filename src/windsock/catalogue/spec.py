"""What a metric is: one frozen record per metric, complete in two languages, and the checks that none gets past."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from windsock.errors import WindsockError

Language = Literal["en", "zh"]

FAMILIES = (
    "validation",
    "value",
    "reward",
    "tokens",
    "policy",
    "evaluation",
    "ppo",
    "sft",
    "system",
    "time",
    "memory",
    "rollout",
    "eval",
    "pipeline",
    "sample",
    "custom",
)
POPULATIONS = (
    "tokens",
    "sequences",
    "episodes",
    "groups",
    "tasks",
    "runs",
    "samples",
    "shards",
    "ranks",
    "devices",
    "processes",
    "hosts",
    "phases",
    "updates",
    "steps",
    "calls",
    "run",
)
STATISTICS = ("mean", "max", "min", "std", "var", "share", "sum", "count", "last", "quotient", "other")
STATES = ("mean", "moments", "extrema", "sum", "last", "ratio", "quantiles", "none")
ESTIMATORS = ("", "k1", "k2", "k3", "exact", "sampled", "bootstrap", "unbiased")
DIRECTIONS = ("higher", "lower", "band", "none")
PARTS = ("", "data", "policy", "value")
INPUTS = frozenset((
    "log_probs", "old_log_probs", "ref_log_probs", "rollout_log_probs", "advantages", "raw_advantages", "returns",
    "values", "old_values", "rewards", "unclipped_rewards", "scores", "entropy", "old_entropy", "logits", "old_logits",
    "exact_kl",
    "actions", "eos_ids", "finished", "response_mask", "prompt_mask", "prompt_lengths", "cu_seqlens", "groups",
    "episodes", "weights", "keep",
    "clip", "dual_clip", "value_clip", "reward_clip", "kl_coef", "kl_loss_coef", "entropy_coef", "loss", "loss_norm",
    "max_response_length", "max_prompt_length", "tokens", "samples", "devices", "flops",
))  # fmt: skip
"""What a metric can be computed from: the fields of a batch, then the facts and counts that the caller gives."""
FRAMEWORKS = ("roll", "trl", "trinity", "verl", "slime", "prime-rl")
OURS = ("windsock:roll", "windsock:trl", "windsock:trinity")
PRODUCERS = ("windsock", *OURS, *FRAMEWORKS)
ERAS = {
    "roll": ("0.2", "2025-11", "2025-05"),
    "trl": ("grpo", "rloo", "ppo", "online-dpo", "async-1.16", "async-1.10", "ppo-0.11"),
    "trinity": ("0.6",),
    "verl": ("engine", "legacy", "v1", "bypass", "validation"),
}
"""The eras that names are told apart by, the likeliest first: versions, dates, trainers or modes of a framework."""
KINDS = (
    "sign",
    "estimator",
    "unit",
    "population",
    "denominator",
    "window",
    "mask",
    "reducer",
    "ddof",
    "moment",
    "clamp",
    "sentinel",
    "sum",
    "meaning",
)

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_ID = re.compile(r"(?:[a-z0-9_@^]+|\{\w+\})+(?:/(?:[a-z0-9_@^]|\{\w+\})+)*")


class CatalogueError(WindsockError, ValueError):
    """A metric is declared incompletely, twice or against the catalogue's words."""


@dataclass(frozen=True, slots=True)
class Text:
    """The same thing said in English and in Chinese."""

    en: str
    zh: str

    def say(self, lang: str) -> str:
        """Return the text in a language."""
        return self.zh if lang == "zh" else self.en


@dataclass(frozen=True, slots=True)
class Difference:
    """How a number that somebody logs differs from the metric it stands for.

    ``factor`` turns their number into ours by multiplication; None where no arithmetic on the logged number does.
    ``refuse`` says that the two must not be taken for each other, even with a note.
    """

    kinds: tuple[str, ...]
    note: Text
    factor: float | None = None
    refuse: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """What one producer, in one era, calls a metric. The era is a version, a date or a trainer; "" means any."""

    pattern: str
    producer: str
    era: str = ""
    difference: Difference | None = None

    @property
    def same(self) -> bool:
        """Whether a number under this name is the metric itself, with nothing to say about it."""
        return self.difference is None

    @property
    def factor(self) -> float | None:
        """What a number under this name is multiplied with to get the metric; None when that is not known."""
        return 1.0 if self.difference is None else self.difference.factor


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """Where a healthy run keeps a metric, and who says so; None leaves a side open."""

    low: float | None
    high: float | None
    source: Text


@dataclass(frozen=True, slots=True, eq=False)
class Trap:
    """Something that misleads readers of a metric, in one framework or ("") anywhere."""

    where: str
    text: Text


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A metric that is close but not the same, and whether it may stand in (with the note) or must not.

    ``fill`` holds values of the placeholders, on whichever side of the link has them.
    """

    to: str
    note: Text
    refuse: bool = True
    fill: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Metric:
    """One metric: what it is, over what, how it is computed, how to read it, and its names.

    ``needs`` lists inputs: ``a|b`` is satisfied by either, ``a?`` is used when it is there.
    """

    id: str
    family: str
    title: Text
    about: Text
    formula: str
    unit: str
    population: str
    statistic: str
    state: str
    look: Text  # what healthy looks like
    next: Text  # what to look at when it does not
    direction: str = "none"
    healthy: Band | None = None
    needs: tuple[str, ...] = ()
    part: str = ""
    estimator: str = ""
    crucial: bool = False
    names: tuple[Name, ...] = ()
    traps: tuple[Trap, ...] = ()
    links: tuple[Link, ...] = ()

    def __post_init__(self) -> None:
        _check_words(self)
        _check_needs(self)
        _check_texts(self)
        _check_band(self)
        for name in self.names:
            _check_name(self, name)

    def __repr__(self) -> str:
        return f"Metric({self.id!r})"

    @property
    def placeholders(self) -> tuple[str, ...]:
        """The names between braces in the id, in order."""
        return placeholders(self.id)


def placeholders(pattern: str) -> tuple[str, ...]:
    """Return the names between braces, in order."""
    return tuple(_PLACEHOLDER.findall(pattern)) if "{" in pattern else ()


def _wrong(metric: Metric, problem: str) -> CatalogueError:
    return CatalogueError(f"metric {metric.id!r}: {problem}")


def _check_words(metric: Metric) -> None:
    if not _ID.fullmatch(metric.id):
        raise _wrong(metric, "an id is made of lower-case words joined by '/', e.g. 'policy/kl_k2'")
    for field, words in _WORDS:
        word = getattr(metric, field)
        if word not in words:
            raise _wrong(metric, f"{field} is {word!r}; it must be one of {', '.join(w or '(none)' for w in words)}")


_WORDS = (
    ("family", FAMILIES),
    ("population", POPULATIONS),
    ("statistic", STATISTICS),
    ("state", STATES),
    ("direction", DIRECTIONS),
    ("part", PARTS),
    ("estimator", ESTIMATORS),
)


def inputs(need: str) -> tuple[str, ...]:
    """Return the inputs that an entry of ``needs`` names, the preferred one first."""
    return tuple(need.removesuffix("?").split("|"))


def _check_needs(metric: Metric) -> None:
    unknown = [name for need in metric.needs for name in inputs(need) if name not in INPUTS]
    if unknown:
        raise _wrong(metric, f"it needs {', '.join(unknown)}, which no batch and no caller gives")


def _check_texts(metric: Metric) -> None:
    for field in ("title", "about", "look", "next"):
        text: Text = getattr(metric, field)
        if not text.en.strip() or not text.zh.strip():
            raise _wrong(metric, f"{field} must be written in English and in Chinese")
    for field in ("formula", "unit"):
        if not getattr(metric, field).strip():
            raise _wrong(metric, f"{field} is missing")


def _check_band(metric: Metric) -> None:
    band = metric.healthy
    if band is None:
        return
    if not band.source.en.strip() or not band.source.zh.strip():
        raise _wrong(metric, "a healthy band needs the source that defends it")
    if band.low is None and band.high is None:
        raise _wrong(metric, "a healthy band needs at least one end")
    if band.low is not None and band.high is not None and band.low > band.high:
        raise _wrong(metric, f"the healthy band runs from {band.low} to {band.high}")


def _check_name(metric: Metric, name: Name) -> None:
    if name.producer not in PRODUCERS:
        raise _wrong(metric, f"{name.pattern!r} is by {name.producer!r}; producers are {', '.join(PRODUCERS)}")
    if name.era and name.era not in ERAS.get(name.producer, ()):
        raise _wrong(metric, f"{name.pattern!r} is of an unknown era {name.era!r} of {name.producer}")
    difference = name.difference
    if difference is None:
        return
    unknown = [kind for kind in difference.kinds if kind not in KINDS]
    if unknown or not difference.kinds:
        raise _wrong(metric, f"{name.pattern!r} differs in {unknown or 'nothing'}; kinds are {', '.join(KINDS)}")
    if not difference.note.en.strip() or not difference.note.zh.strip():
        raise _wrong(metric, f"{name.pattern!r} differs without saying how in both languages")
    if name.producer.startswith("windsock") and (difference.kinds != ("unit",) or difference.factor is None):
        raise _wrong(metric, f"{name.pattern!r} is ours: only its unit may differ, with a factor")
