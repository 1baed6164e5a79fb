"""Every documented name has its metric, complete in both languages."""

import csv
import re
from pathlib import Path

import pytest

from barograph.catalogue.names import recognise
from barograph.catalogue.registry import REGISTRY, fill, vocabulary_name
from barograph.catalogue.spec import placeholders

SEED = Path(__file__).parents[1] / "data" / "seed_metrics.tsv"
HARD = {
    "metric_infix": "actor_train/train_step",
    "device_id": "15",
    "taskset": "openai/gsm8k",
    "metric": "format_score",
    "k": "128",
    "operation": "update_critic",
    "operator": "operator/0_GroupAdvantage",
    "mean|std|max|min": "std",
}
ROWS = list(csv.DictReader(SEED.read_text().splitlines(), delimiter="\t"))


def hard(pattern: str) -> str:
    """Fill the placeholders of a documented name with values that are hard to parse."""
    for name, value in HARD.items():
        pattern = pattern.replace(f"{{{name}}}", value)
    assert "{" not in pattern
    return pattern


def test_every_documented_name_has_one_complete_metric():
    """A documented name is found in barograph's vocabulary and in the framework's own, with every field filled."""
    for row in ROWS:
        name = hard(row["name"])
        where = f"{name} of {row['vocabulary']}"
        ours = recognise(name, source=f"barograph:{row['vocabulary']}").match
        assert ours is not None, f"{where} is not known as barograph's"
        assert recognise(name, source=row["vocabulary"]).matches, f"{where} is not known as the framework's own"
        metric = ours.metric
        for text in (metric.title, metric.about, metric.look, metric.next):
            assert len(text.en) > 0, where
            assert any("一" <= char <= "鿿" for char in text.zh) or text is metric.title, where
        filled = (metric.formula.en, metric.formula.zh, metric.unit, metric.population, metric.statistic, metric.state)
        assert all(filled), where
        assert vocabulary_name(metric, row["vocabulary"]).pattern.count("/") <= name.count("/"), where


def test_what_barograph_writes_is_the_documented_name():
    """The catalogue returns exactly the documented name, placeholders included."""
    for row in ROWS:
        name = hard(row["name"])
        match = recognise(name, source=f"barograph:{row['vocabulary']}").match
        assert match is not None, name
        assert fill(vocabulary_name(match.metric, row["vocabulary"]).pattern, match.filled) == name, row["vocabulary"]


def test_values_with_slashes_are_parsed():
    """Slashes in a phase or a task set stay in the placeholder they belong to."""
    memory = recognise("memory/actor_train/train_step/end/onload/max_allocated_frac/3", source="roll").match
    assert memory is not None
    assert dict(memory.filled) == {"phase": "actor_train/train_step", "device": "3"}
    best = recognise("eval/openai/gsm8k/accuracy/best@8", source="trinity").match
    assert best is not None
    assert dict(best.filled) == {"taskset": "openai/gsm8k", "metric": "accuracy", "k": "8"}
    stage = recognise("memory/reward-math/compute_rewards/start/offload/reserved/0").match
    assert stage is not None
    assert dict(stage.filled) == {"phase": "reward-math/compute_rewards", "device": "0", "moment": "start/offload"}


def test_only_digits_number_a_device_or_a_count():
    """A placeholder for a number does not match a word."""
    assert not recognise("memory/train/end/onload/allocated/gpu", source="roll").matches
    assert not recognise("eval/set/accuracy/best@many", source="trinity").matches


def test_every_metric_is_written_in_both_languages():
    """Every description is in both languages, and none is a copy of the other."""
    for metric in REGISTRY.metrics():
        for text in (metric.about, metric.look, metric.next):
            assert text.en.strip() != text.zh.strip(), metric.id
            assert any("一" <= char <= "鿿" for char in text.zh), f"{metric.id}: {text.zh}"
            assert not any("一" <= char <= "鿿" for char in text.en), f"{metric.id}: {text.en}"
        for name in metric.names:
            if name.difference is not None:
                assert any("一" <= char <= "鿿" for char in name.difference.note.zh), f"{metric.id} {name}"


def test_names_of_barograph_have_the_placeholders_of_the_id():
    """Every name that barograph writes can be filled with the placeholders of the id."""
    for metric in REGISTRY.metrics():
        for name in metric.names:
            if name.producer.startswith("barograph"):
                assert set(placeholders(name.pattern)) == set(metric.placeholders), (metric.id, name)


def test_an_id_has_one_unit_in_every_vocabulary():
    """A name that equals the id has the unit of the metric."""
    for metric in REGISTRY.metrics():
        for name in metric.names:
            if name.producer.startswith("barograph") and name.pattern == metric.id:
                assert name.difference is None, metric.id


MENTION = re.compile(
    r"\b(?:validation|value|reward|tokens|policy|evaluation|ppo|sft|system|time|memory|sample|pipeline)/[a-z0-9_/{}@]+"
)


def leads_somewhere(mention: str, ids: set[str]) -> bool:
    """Return whether a mention is an id, a prefix of ids, or a name when its placeholders are filled."""
    stem = mention.rstrip("/")
    filled = stem.replace("{phase}", "train_step").replace("{device}", "0").replace("{when}", "end")
    return stem in ids or any(id.startswith(f"{stem}/") for id in ids) or bool(recognise(filled).matches)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_related_and_mentioned_metrics_exist(lang: str):
    """Every id in a text exists."""
    ids = {metric.id for metric in REGISTRY.metrics()}
    for metric in REGISTRY.metrics():
        assert {related.to for related in metric.related} <= ids, metric.id
        for text in (metric.look, metric.next):
            lost = [found for found in MENTION.findall(text.get(lang)) if not leads_somewhere(found, ids)]
            assert lost == [], metric.id
