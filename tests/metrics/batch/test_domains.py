"""The data part by domain: the values of the sequences of each label, merged as those of all are."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reference
from test_device import assert_same, place, tensors  # noqa: F401 - place is a fixture
from test_harness import FORMS, OPTIONS, assert_agree, make, packed, plain

import barograph
from barograph.catalogue.describe import describe
from barograph.catalogue.names import recognise
from barograph.catalogue.registry import REGISTRY, vocabulary_name
from barograph.catalogue.spec import clean_label, has_domains
from barograph.journal.format.frames import Kind
from barograph.metrics.batch.arrays import Batch
from barograph.metrics.batch.inputs import MAX_DOMAINS, TOO_MANY, Options
from barograph.metrics.batch.quantities import QUANTITIES
from barograph.metrics.batch.step import Measurement, measure
from barograph.metrics.batch.values import DERIVED
from barograph.recording.collectors import measurements
from segment_frames import of_rank

LABELS = ["math", "code", None]


def of_rows(data: dict, rows: np.ndarray) -> dict:
    return {name: value if name == "eos_ids" else value[rows] for name, value in data.items()}


def by_domain(measured: dict) -> dict[str, dict[str, float]]:
    """Return the values of each domain by id."""
    names = {vocabulary_name(metric, "roll").pattern: metric.id for metric in REGISTRY.metrics()}
    found: dict[str, dict[str, float]] = {}
    for name, value in measured.items():
        base, separator, label = name.rpartition("/by/")
        if separator and not name.startswith("barograph/"):
            found.setdefault(label, {})[names[base]] = value
    return found


def expected(data: dict, labels: np.ndarray, label: Any, options: dict = OPTIONS) -> dict[str, float | None]:
    """Return the reference of one domain's sequences: the metrics that are measured by domain."""
    whole = reference(plain(of_rows(data, labels == label)), options)
    return {id: value for id, value in whole.items() if has_domains(REGISTRY.metric(id))}


def test_the_catalogue_knows_which_metrics_are_measured_by_domain():
    """All of the data part, without quantiles."""
    measured = {id for quantity in QUANTITIES if quantity.by_domain for id in quantity.metrics}
    derived = {id for id in DERIVED if REGISTRY.metric(id).part == "data"}
    known = {metric.id for metric in REGISTRY.metrics() if has_domains(metric)}
    assert measured | derived <= known
    assert all(REGISTRY.metric(id).state != "quantiles" for id in known)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 9), st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
def test_every_metric_of_a_domain_equals_the_reference_of_its_sequences(
    rows: int, seed: int, token_keep: bool, is_packed: bool
):
    """Padded and packed; sequences without a label are only in the values of all."""
    data = make(rows, 6, seed, token_keep and rows != rows * 6)
    labels = np.array([LABELS[n] for n in np.random.default_rng(seed).integers(0, 3, rows)], object)
    given = packed(data, np.full(rows, 6)) if is_packed else data
    measured = measure(Batch(**given, domains=labels), **OPTIONS)
    found = by_domain(measured)
    assert set(found) == {label for label in labels if label is not None}
    for label, values in found.items():
        assert_agree(values, expected(data, labels, label))
    alone = measure(Batch(**given), **OPTIONS)
    assert {name: value for name, value in measured.items() if "/by/" not in name} == pytest.approx(alone, nan_ok=True)
    assert measured.missing == alone.missing


@FORMS
@pytest.mark.parametrize("of_tensor", [False, True])
def test_device_and_host_agree(place: str, of_tensor: bool, form: str):  # noqa: F811
    """Labels may be on the device too; several batches of a step are computed together."""
    labels = np.array([3, 7, 3]) if of_tensor else np.array(["math", None, "code"], object)
    there, here = Measurement(), Measurement()
    for seed in range(2):
        random = np.random.default_rng(seed)
        data = make(12, 9, seed) | {"domains": labels[random.integers(0, 3, 12)]}
        if form == "packed":
            data = packed(data, random.integers(0, 10, 12))
        on_device, on_host = tensors({n: v for n, v in data.items() if of_tensor or n != "domains"}, place)
        more = {} if of_tensor else {"domains": data["domains"]}
        there.add(on_device.having(**more), options=Options.from_keywords(dict(OPTIONS)))
        here.add(on_host.having(**more), options=Options.from_keywords(dict(OPTIONS)))
    got = there.finish("roll")
    assert set(by_domain(got)) == ({"3", "7"} if of_tensor else {"math", "code"})
    assert_same(got, here.finish("roll"))


@pytest.mark.parametrize("parts", [1, 3])
def test_domains_merge_over_micro_batches_ranks_and_an_exchange(parts: int):
    """A rank may lack a domain; layouts of different domains merge by name."""
    data = make(18, 7, 5)
    labels = np.array(["math"] * 6 + ["code"] * 6 + ["math"] * 3 + ["games"] * 3, object)
    options = Options.from_keywords(dict(OPTIONS))
    merged, shares = Measurement(), []
    for rank, rows in enumerate(np.array_split(np.arange(18), parts)):
        part = Measurement(rank)
        part.add(Batch(**of_rows(data, rows), domains=labels[rows]), options=options)
        shares.append(measurements.measured_share(part))
        merged.merge(part)
    found = by_domain(merged.finish("roll"))
    assert set(found) == {"math", "code", "games"}
    for label, values in found.items():
        assert_agree(values, expected(data, labels, label))
    assert measurements.finished_measurement(
        measurements.merged_measurement_of(shares), shares, "roll"
    ) == pytest.approx(merged.finish("roll"), nan_ok=True)


def test_a_reader_merges_the_domains_of_ranks(tmp_path: Path):
    """Their layouts are written once each, whichever domains a step has."""
    data = make(12, 7, 5)
    labels = np.array(["math", "code"] * 6, object)
    runs = [barograph.init(id="domains", rank=rank, world_size=2, concurrent=True) for rank in range(2)]
    for step in range(6):
        for rank, run in enumerate(runs):
            rows = np.arange(rank * 6, rank * 6 + 6)
            one = of_rows(data, rows) | {"domains": labels[rows] if step % 2 else np.full(6, "math")}
            run.measure(one, **OPTIONS)
            run.commit(step)
    view = barograph.open(runs[0].path)
    read = {name: float(view.series(name).values[-1]) for name in view.names() if "/by/" in name}
    assert read == pytest.approx(
        {n: v for n, v in measure(Batch(**data, domains=labels), **OPTIONS).items() if n in read}
    )
    assert set(by_domain(read)) == {"math", "code"}
    assert view.series("critic/score/mean/by/code").steps.tolist() == [1, 3, 5]
    assert len(list(of_rank(runs[0].path, 1, Kind.LAYOUT))) == 4  # of quantiles, of two domains, of the others
    for run in runs:
        run.finish()


def test_labels_are_texts_or_numbers():
    """Numbers without a fraction look like integers; None and NaN are no label."""
    batch = {"response_mask": np.ones((4, 2)), "scores": np.arange(4.0)}
    for labels in ([3, 3, 7, 7], np.array([3.0, 3.0, 7.0, 7.0]), np.array(["3", "3", "7", "7"])):
        assert set(by_domain(measure(Batch(**batch, domains=labels)))) == {"3", "7"}
    assert set(by_domain(measure(Batch(**batch, domains=[None, math.nan, "a", None])))) == {"a"}
    assert by_domain(measure(Batch(**batch, domains=[None] * 4))) == {}


@pytest.mark.parametrize(
    ("given", "label"),
    [
        ("math", "math"), ("gsm8k/train", "gsm8k_train"), ("a\nb\x00c", "a_b_c"), ("", "_"), ("  x ", "x"),
        ("x" * 200, "x" * 64), ("{k}", "_k_"), ("数学", "数学"), ("\ud800", "_"), (2.5, "2.5"), (True, "True"),
    ],
)  # fmt: skip
def test_labels_are_cleaned_for_names(given: object, label: str):
    """One segment of a path, printable and short; cleaning twice changes nothing."""
    assert clean_label(given) == label == clean_label(label)
    measured = measure(Batch(response_mask=[[1]], scores=[0.5], domains=[given]))
    assert measured[f"critic/score/mean/by/{label}"] == 0.5
    match = recognise(f"critic/score/mean/by/{label}").matches[0]
    assert match.id == f"reward/score/mean/by/{label}"
    assert match.metric.title.en == "Score: mean, by domain"


def test_domains_beyond_64_are_one(capsys: pytest.CaptureFixture[str]):
    """The first 64 of a run keep their names, the others are recorded together, and it is told once."""
    run = barograph.init()
    for step in range(3):
        labels = np.arange(step * 50, step * 50 + 50)
        run.measure({"response_mask": np.ones((50, 2)), "scores": labels * 1.0, "domains": labels})
        values = run.commit(step)
        assert len([name for name in values if name.startswith("critic/score/mean/by/")]) == (50, 15, 1)[step]
    assert values["critic/score/mean/by/other"] == np.arange(100, 150).mean()
    assert values["actor/total_samples/by/other"] == 50
    assert capsys.readouterr().err.count(TOO_MANY) == 1
    assert MAX_DOMAINS == 64
    run.finish()


def test_labels_that_cannot_be_read_cost_the_domains_only():
    """The error is reported, and all other values are there."""

    class Strange:
        def __hash__(self) -> int:
            raise ValueError("strange")

    told: list[str] = []
    measurement = Measurement(report=lambda what, error: told.append(f"{what}: {error}"))
    measurement.add(Batch(response_mask=[[1], [1]], scores=[0.5, 1.5], domains=[Strange(), "a"]))
    values = measurement.finish("roll")
    assert (values["critic/score/mean"], by_domain(values), told) == (1.0, {}, ["domains: strange"])


def test_a_name_of_a_domain_is_explained():
    """In every vocabulary, with the label; quantiles and other parts have no domains."""
    explained = describe("response_length/mean/by/math", source="barograph:trinity")
    assert explained is not None
    assert (explained.id, dict(explained.here)["math"][:10]) == ("tokens/response_length/mean/by/math", "the domain")
    in_chinese = describe("tokens/response_length/mean/by/math", lang="zh")
    assert in_chinese is not None
    assert in_chinese.title == "回复长度：均值（按领域）"
    assert not recognise("actor/ratio_mean/by/math").matches
    assert not recognise("tokens/response_length/p50/by/math").matches
    with pytest.raises(barograph.BarographError, match="no metric has the id"):
        REGISTRY.metric("policy/ratio/mean/by/math")


def test_readers_show_the_values_of_all_before_those_of_domains():
    """In a listing by family, and as charts of their own on the page."""
    from barograph.answers.views.charts import group_into_charts
    from barograph.base.formatting import by_family
    from barograph.catalogue.resolution import RunNames

    plain_names = ["critic/score/mean", "critic/score/max", "critic/values/mean"]
    names = [f"{name}/by/math" for name in plain_names] + plain_names
    assert by_family(names) == [("critic", sorted(plain_names) + sorted(names[:3]))]
    charts = [(chart.key, chart.lines) for chart in group_into_charts(names, RunNames(names, source="barograph:roll"))]
    assert ("critic/score", {"mean": "critic/score/mean", "max": "critic/score/max"}) in charts
    of_math = {"mean": "critic/score/mean/by/math", "max": "critic/score/max/by/math"}
    assert ("critic/score/by/math", of_math) in charts
    assert len(charts) == 4


def test_names_of_states_that_no_domain_has_are_unknown():
    """A journal may contain anything: such a layout cannot be read, as one of another version."""
    from barograph.journal.merge.measurements import DescribedLayout

    good = ["reward/score:moments/by/math", "moments"]
    assert DescribedLayout.parse({"layout": "1", "entries": [good]})[0] == 1
    for name in ("reward/score:moments/by/", "reward/score:moments/by/a/b", "policy/kl_k1/by/a", "x/by/a", "/by/a"):
        with pytest.raises(ValueError, match="does not know"):
            DescribedLayout.parse({"layout": "1", "entries": [[name, "moments"]]})
    with pytest.raises(ValueError, match="more than 10,000 states"):
        DescribedLayout.parse({"layout": "1", "entries": [[f"{good[0]}{n}", "moments"] for n in range(10_001)]})
