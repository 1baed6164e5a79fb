"""Users declare metrics of their own, under the same checks."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

import barograph
from barograph.catalogue.describe import describe
from barograph.catalogue.names import recognise
from barograph.catalogue.registry import REGISTRY, vocabulary_name
from barograph.catalogue.spec import Band, CatalogueError, Difference, Metric, MetricName, Text
from barograph.catalogue.user_metrics import define


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Remove the metrics that a test defined."""
    before = {metric.id for metric in REGISTRY.metrics()}
    yield
    for metric in REGISTRY.metrics():
        if metric.id not in before:
            REGISTRY.remove(metric.id)


def test_an_own_metric_is_recognised_and_explained():
    """A defined metric is found by its id and by its name, even after a failed look-up of the name."""
    assert not recognise("tool/{tool}/success".replace("{tool}", "calc")).matches
    define(
        "custom/tool_success/{tool}",
        "How often a tool call works.",
        unit="fraction",
        names=[MetricName("tool/{tool}/success", "verl")],
    )
    match = recognise("tool/calc/success").match
    assert match is not None
    assert match.id == "custom/tool_success/calc"
    explanation = describe("custom/tool_success/calc")
    assert explanation is not None
    assert explanation.about == "How often a tool call works."


def test_an_own_metric_may_have_two_languages():
    """Each language shows its own text."""
    define("custom/x", Text("An x.", "一个 x。"), unit="1")
    explanation = describe("custom/x", "zh")
    assert explanation is not None
    assert explanation.about == "一个 x。"


def test_everything_that_define_takes_is_public():
    """A metric with every field can be declared with names of ``barograph`` alone."""
    ws = barograph
    per_cent = ws.Difference(("unit",), ws.Text("In per cent.", "以百分数表示。"), 0.01)
    metric = ws.define(
        "custom/full",
        ws.Text("An x.", "一个 x。"),
        unit="1",
        healthy=ws.Band(0.0, 1.0, ws.Text("a guess", "猜测")),
        names=[ws.MetricName("x", "verl", "", per_cent)],
        traps=[ws.Trap("verl", ws.Text("Not y.", "不是 y。"))],
        related=[ws.RelatedMetric("policy/kl_k2", ws.Text("Another thing.", "另一个量。"))],
    )
    assert isinstance(metric, ws.Metric)
    assert ws.translate("x", to="barograph", source="verl").factor == 0.01


def test_an_id_cannot_be_defined_twice():
    """The error names the metric that has the id."""
    with pytest.raises(CatalogueError, match=r"policy/kl_k2.*Approximate KL \(k2\)"):
        define("policy/kl_k2", "Mine.", unit="1")


def test_a_name_cannot_belong_to_two_metrics():
    """The error names both metrics and the name."""
    with pytest.raises(CatalogueError, match=r"custom/mine.*policy/clip_fraction.*actor/pg_clipfrac"):
        define("custom/mine", "Mine.", unit="1", names=[MetricName("actor/pg_clipfrac", "verl")])
    assert not recognise("custom/mine").matches


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": "Policy KL"}, "lower-case"),
        ({"id": "/x"}, "lower-case"),
        ({"family": "polcy"}, "unknown family 'polcy', did you mean 'policy'"),
        ({"state": "average"}, "unknown state 'average'"),
        ({"population": "words"}, "unknown population 'words'"),
        ({"statistic": "avg"}, "unknown statistic 'avg'"),
        ({"direction": "up"}, "unknown direction 'up'"),
        ({"part": "actor"}, "unknown part 'actor'"),
        ({"estimator": "k4"}, "unknown estimator 'k4'"),
        ({"about": Text("Only English.", " ")}, "about is missing in Chinese"),
        ({"needs": ("logprobs",)}, "unknown input in needs 'logprobs'"),
        ({"formula": Text("", "")}, "formula is missing in English"),
        ({"unit": " "}, "unit is missing"),
        ({"healthy": Band(1.0, 0.0, Text("a", "b"))}, "low 1.0 is above high 0.0"),
        ({"healthy": Band(None, None, Text("a", "b"))}, "at least one of low and high"),
        ({"healthy": Band(0.0, 1.0, Text("", ""))}, "source"),
        ({"names": (MetricName("x", "nobody"),)}, "'nobody'"),
        ({"names": (MetricName("x", "trl", "grop"),)}, "unknown era of trl 'grop'"),
        ({"names": (MetricName("x", "trl", "", Difference(("colour",), Text("a", "b"))),)}, "colour"),
        ({"names": (MetricName("x", "trl", "", Difference(("sign",), Text("a", ""))),)}, "note is missing in Chinese"),
        (
            {"names": (MetricName("x", "barograph:trl", "", Difference(("sign",), Text("a", "b"), -1.0)),)},
            "only its unit may differ",
        ),
    ],
)
def test_an_incomplete_metric_cannot_be_added(change: dict[str, object], problem: str):
    """Every field of a user's own metric is checked."""
    metric = REGISTRY.metric("policy/kl_k2")
    with pytest.raises(CatalogueError, match=problem):
        REGISTRY.add(replace(metric, **change))


def test_a_metric_is_frozen():
    """A declaration does not change after it is made."""
    with pytest.raises(AttributeError):
        REGISTRY.metric("policy/kl_k2").unit = "bits"  # type: ignore[misc]


def test_barograph_writes_an_id_where_a_vocabulary_has_no_name():
    """Every metric has a name in every vocabulary that barograph writes."""
    metric: Metric = REGISTRY.metric("policy/kl_k2")
    assert vocabulary_name(metric, "roll").pattern == "actor/approxkl"
    assert vocabulary_name(metric, "trinity").pattern == "policy/kl_k2"
    with pytest.raises(CatalogueError, match="unknown vocabulary 'verl'"):
        vocabulary_name(metric, "verl")
