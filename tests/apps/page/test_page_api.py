"""Every endpoint of the API, on real runs."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving_runs import HTML, Serve, decoded, eventually

import barograph
from barograph.answers.comparison import ComparedRun, comparison
from barograph.answers.reports.embedded import report_data
from barograph.answers.views.charts import logged_band
from barograph.apps.page.http import run_handlers
from barograph.apps.page.http.app import ENDPOINTS
from barograph.catalogue.resolution import RunNames
from barograph.delivery.relay.state import DeliveryState, write_delivery_state
from barograph.journal.view import View

DOCS = Path(__file__).parents[3] / "docs" / "api.md"


def fetch(client: Any, path: str, **query: Any) -> Any:
    response = client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


def test_the_list_has_every_run_then_only_changes(serve: Serve, demo: barograph.Run):
    """Facts at once, the reward and its sparkline as soon as it is read; a cursor gets only changed runs."""
    client = serve()
    eventually(lambda: fetch(client, "/api/runs")["pending"] == 0)
    first = eventually(lambda: (found := fetch(client, "/api/runs"))["runs"][0]["health"] and found)
    [run] = first["runs"]
    assert (run["key"], run["name"], run["status"], run["last_step"]) == ("demo", f"frozen {HTML}", "finished", 39)
    assert (run["project"], run["vocabulary"], run["tags"]) == ("agentic", "roll", ["t"])
    assert run["reward"]["name"] == "critic/score/mean"
    assert len(run["reward"]["spark"]["min"]) == 40
    assert max(run["reward"]["spark"]["min"]) == pytest.approx(run["reward"]["last"], rel=1e-4)
    assert fetch(client, "/api/runs", since=first["cursor"])["runs"] == []
    other = barograph.init(project="agentic", name="second", id="second")
    other.log({"a": 1.0}, step=0)
    other.finish()
    news = eventually(lambda: fetch(client, "/api/runs", since=first["cursor"])["runs"])
    assert [one["key"] for one in news] == ["second"]
    assert fetch(client, "/api/runs", since="nonsense-1")["reset"]


def test_a_removed_run_is_reported_as_gone(serve: Serve, demo: barograph.Run):
    """By the list since a cursor; its views are not found."""
    import shutil

    client = serve()
    cursor = fetch(client, "/api/runs")["cursor"]
    shutil.rmtree(demo.path)
    assert eventually(lambda: fetch(client, "/api/runs", since=cursor)["gone"]) == ["demo"]
    assert client.get("/api/runs/demo/overview").status_code == 404


def test_annotations_are_stored_and_shared_by_two_servers(serve: Serve, demo: barograph.Run):
    """Pins, names, notes, colours, hiding and saved views are not in the run's folder; the newest change wins."""
    one, two = serve(), serve()
    changed = one.patch("/api/runs/demo", json={"pinned": True, "name": "Best", "note": f"look {HTML}"}).json()
    assert (changed["pinned"], changed["name"], changed["note"]) == (True, "Best", f"look {HTML}")
    seen = eventually(lambda: [r for r in fetch(two, "/api/runs")["runs"] if r["pinned"]])[0]
    assert (seen["name"], changed["logged_name"], seen["hidden"]) == ("Best", f"frozen {HTML}", False)
    two.patch("/api/runs/demo", json={"name": None, "hidden": True})
    [later] = fetch(serve(), "/api/runs")["runs"]
    assert (later["name"], later["hidden"], later["pinned"]) == (f"frozen {HTML}", True, True)
    assert one.patch("/api/runs/demo", json={"colour": 11}).json()["colour"] == 11
    refused = one.patch("/api/runs/demo", json={"colour": 12}).json()
    assert refused == {"error": "colour: expected an integer from 0 to 11"}
    assert one.patch("/api/runs/demo", json={"colour": None}).json()["colour"] is None
    one.post("/api/views", json={"name": " loss ", "state": "tab=charts&filter=loss"})
    [view] = two.post("/api/views", json={"name": "b", "state": "x=time"}).json()["views"][1:]
    assert (view["name"], view["state"]) == ("loss", "tab=charts&filter=loss")
    assert [view["name"] for view in two.post("/api/views", json={"name": "b"}).json()["views"]] == ["loss"]
    assert one.post("/api/views", json={"name": " ", "state": ""}).status_code == 400
    assert barograph.open("demo").status.word == "finished"
    assert len(barograph.open("demo").writers()) == 1


def test_the_overview_has_verdicts_in_both_languages(serve: Serve, demo: barograph.Run):
    """And headline values with curves and bands, and the time of phases."""
    found = fetch(serve(), "/api/runs/demo/overview")
    reward = found["crucial"][0]
    assert (reward["key"], reward["word"], reward["verdict"]) == ("reward", "good", {"en": "good", "zh": "正常"})
    assert reward["text"]["en"].startswith("rising")
    assert reward["text"]["zh"].startswith("在上升")
    assert found["health"]["word"] == "bad"  # a NaN in the approximate KL
    assert found["findings"][0]["rule"] == "nonfinite"
    assert found["findings"][0]["onset"] == 13
    assert found["findings"][0]["title"]["zh"] == "NaN 或无穷"
    vital = {one["key"]: one for one in found["vital"]}
    assert vital["reward"]["names"] == {what: f"critic/score/{what}" for what in ("mean", "max", "min")}
    assert vital["reward"]["curves"]["mean"]["last"][-1] == vital["reward"]["last"]
    assert vital["kl_now"]["curves"]["line"]["last"][13] == "NaN"
    assert (
        found["metrics"]["policy/ratio/mean"]["band"]["low"] < 1 < found["metrics"]["policy/ratio/mean"]["band"]["high"]
    )
    assert {one["name"] for one in found["time"]["phases"]} == {"actor_infer/generate", "actor_train/train_step"}
    assert found["run"]["key"] == "demo"
    assert found["steps"] == [0, 39]


def test_a_missing_value_has_a_reason(serve: Serve):
    """The one that ``measure`` recorded, else the inputs that the metric needs."""
    run = barograph.init(id="lacking")
    ones = np.ones((2, 3))
    run.measure(barograph.Batch(response_mask=ones > 0, log_probs=ones, old_log_probs=ones, scores=ones[:, 0]))
    run.commit(0)
    run.finish()
    absent = {one["key"]: one for one in fetch(serve(), "/api/runs/lacking/overview")["absent"]}
    assert absent["kl"]["reason"]["en"] == "Not measured: the batch has no ref_log_probs."
    assert "ref_log_probs" in absent["kl"]["reason"]["zh"]
    assert absent["value_loss"]["reason"]["en"].startswith("This run does not log it.")


def test_names_are_charts_with_families_and_explanations(serve: Serve, demo: barograph.Run):
    """Mean, maximum and minimum share a chart; unknown names follow by prefix, in natural order."""
    found = fetch(serve(), "/api/runs/demo/names")
    charts = {chart["key"]: chart for chart in found["charts"]}
    assert charts["critic/score"]["lines"]["min"] == "critic/score/min"
    assert charts["mine/thing"]["lines"] == {"mean": "mine/thing/mean", "max": "mine/thing/max"}
    assert charts[HTML]["lines"] == {"line": HTML}
    assert charts[HTML]["metric"] is None
    families = [family["key"] for family in found["families"]]
    assert families.index("reward") < families.index("memory") < families.index("other:")
    assert families.index("other:layer2") < families.index("other:layer10")
    metric = found["metrics"][charts["critic/score"]["metric"]]
    assert metric["about"]["en"]
    assert metric["look"]["zh"]
    assert found["histograms"] == ["actor/advantages"]
    assert found["axes"] == ["step", "time", "relative", "tokens", "samples"]


def test_series_are_the_same_in_binary_and_in_json(serve: Serve, demo: barograph.Run):
    """Both equal the run's own series; an unknown name does not affect the others."""
    client, names = serve(), ["critic/score/mean", "nowhere", HTML, "actor/approxkl"]
    response = client.get("/api/runs/demo/series", params={"name": names})
    assert response.headers["content-type"] == "application/vnd.barograph.series"
    binary = decoded(response.content)["series"]
    twin = fetch(client, "/api/runs/demo/series", name=names, format="json")["series"]
    assert [one["name"] for one in binary] == names
    assert [one["found"] for one in binary] == [True, False, True, True]
    for one, other in zip(binary, twin, strict=True):
        if one["found"]:
            series = barograph.open("demo").series(one["name"])
            np.testing.assert_array_equal(one["last"], series.values)
            np.testing.assert_array_equal(one["x"], series.steps)
            assert other["x"] == series.steps.tolist()
    assert twin[3]["last"][13] == "NaN"
    assert client.get("/api/runs/demo/series?name=a", headers={"accept": "application/json"}).json()["series"]


@pytest.mark.parametrize(("x", "expected"), [("tokens", 40000.0), ("samples", 320.0), ("step", 39.0)])
def test_series_can_be_on_any_axis(x: str, expected: float, serve: Serve, demo: barograph.Run):
    """Steps, times, and running totals of tokens and samples."""
    client = serve()
    [one] = fetch(client, "/api/runs/demo/series", name="critic/score/mean", x=x, format="json")["series"]
    assert one["x"][-1] == expected
    [relative] = fetch(client, "/api/runs/demo/series", name="critic/score/mean", x="relative", format="json")["series"]
    [wall] = fetch(client, "/api/runs/demo/series", name="critic/score/mean", x="time", format="json")["series"]
    assert 0 <= relative["x"][-1] < 600 < wall["x"][-1]


def test_a_range_of_steps_can_be_requested(serve: Serve, demo: barograph.Run):
    """Both ends are included."""
    [one] = fetch(serve(), "/api/runs/demo/series", name=HTML, format="json", **{"from": 5, "to": 8})["series"]
    assert one["last"] == [5, 6, 7, 8]


def test_a_cursor_gets_only_new_buckets(serve: Serve):
    """Only the last, incomplete bucket is sent again; the increments add up to the complete series."""
    client, run = serve(), barograph.init(id="live")
    values = np.random.default_rng(0).normal(size=1000)
    held: dict[str, list[Any]] = {}
    since, sent = None, []
    for stop in (10, 300, 301, 640, 999, 1000):
        for step in range(0 if since is None else run.step + 1, stop):  # type: ignore[operator]
            run.log({"v": values[step]})
            run.commit(step)
        query = {"name": "v", "points": 100, "format": "json", **({"since": since} if since else {})}
        [one] = eventually(
            lambda q=query: (s := fetch(client, "/api/runs/live/series", **q)["series"])[0]["found"] and s
        )
        for column in ("x", "x_end", "min", "max", "last", "count"):
            known = held.get(column, [])[: one["keep"]]
            held[column] = known + (one[column] if column in one else one[{"x_end": "x"}.get(column, "last")])
        sent.append((one["keep"], len(one["x"])))
        since = one["cursor"]
    [whole] = fetch(client, "/api/runs/live/series", name="v", points=100, format="json")["series"]
    assert {name: held[name] for name in ("x", "x_end", "min", "max", "last", "count")} == {
        name: whole[name] for name in ("x", "x_end", "min", "max", "last", "count")
    }
    assert sent[2][0] > 0
    assert sent[2][1] <= 2
    run.finish()


def test_superseded_attempts_are_branches(serve: Serve):
    """A restart supersedes the steps that it logs again; the older attempt is still available."""
    for attempt, steps in ((1, range(10)), (2, range(5, 8))):
        run = barograph.init(id="twice")
        for step in steps:
            run.log({"a": float(attempt)}, step=step)
        run.finish()
    found = fetch(serve(), "/api/runs/twice/series", name="a", branches=1, format="json")["series"]
    assert [(one["attempt"], one["branch"], one["last"]) for one in found] == [
        (None, False, [1, 1, 1, 1, 1, 2, 2, 2]),
        (1, True, [1] * 10),
    ]


def test_each_of_three_attempts_is_a_branch_to_its_end(serve: Serve):
    """The series has the newest value of each step up to the last attempt's end; both older attempts are complete."""
    for attempt, steps in ((1, range(10)), (2, range(5, 13)), (3, range(3, 7))):
        run = barograph.init(id="thrice")
        for step in steps:
            run.log(
                {"a": attempt + step / 100, "only_first": 0.0} if attempt == 1 else {"a": attempt + step / 100},
                step=step,
            )
        run.finish()
    client = serve()
    response = fetch(client, "/api/runs/thrice/series", name=["a", "only_first"], branches=1, format="json")
    curves = {(one["name"], one["attempt"]): one for one in response["series"]}
    assert list(curves) == [("a", None), ("a", 1), ("a", 2), ("only_first", None), ("only_first", 1)]
    assert curves["a", None]["last"] == [1.0, 1.01, 1.02, 3.03, 3.04, 3.05, 3.06]
    assert curves["a", 1]["last"] == [1 + step / 100 for step in range(10)]
    assert (curves["a", 2]["x"], curves["a", 2]["last"][-1]) == (list(range(5, 13)), 2.12)
    assert [one["branch"] for one in curves.values()] == [False, True, True, False, True]
    assert curves["only_first", None]["x"] == [0, 1, 2]
    [single] = fetch(client, "/api/runs/thrice/series", name="a", attempt=2, branches=1, format="json")["series"]
    assert (single["attempt"], single["branch"], single["x"]) == (2, False, list(range(5, 13)))


def test_branches_are_attempts_of_the_same_writer(serve: Serve):
    """Another rank's attempts are no branches of the series."""
    for rank, steps in ((0, range(4)), (1, range(6)), (0, range(2, 4))):
        run = barograph.init(id="ranks", rank=rank)
        for step in steps:
            run.log({"a": 1.0, f"of_{rank}": 2.0}, step=step)
        run.finish()
    response = fetch(serve(), "/api/runs/ranks/series", name="of_0", branches=1, format="json")
    assert [(one["attempt"], one["branch"], one["points"]) for one in response["series"]] == [
        (None, False, 4),
        (1, True, 4),
    ]


def test_series_of_several_runs_are_in_one_response(serve: Serve, demo: barograph.Run):
    """With factors, in the order of the request."""
    other = barograph.init(id="other")
    other.log({"b": 2.0}, step=0)
    other.finish()
    wanted = [{"run": "other", "name": "b", "factor": -3}, {"run": "demo", "name": "critic/score/max"}]
    response = serve().post("/api/series", json={"series": wanted, "points": 50})
    found = decoded(response.content)["series"]
    assert [(one["run"], float(one["last"][0])) for one in found] == [("other", -6.0), ("demo", 1.0)]


def test_the_load_of_engines_is_beside_the_phases(serve: Serve):
    """Totals only: values by engine and by phase are in Charts. A run without them has none."""
    run = barograph.init(id="engines")
    for step in range(3):
        run.log({
            "engine/requests/running": 10.0 + step, "engine/kv_cache_use": 0.5, "engine/kv_cache_use/max": 0.9,
            "engine/requests/running/by/node:8000": 5.0, "engine/requests/running/during/rollout": 10.0, "x": 1.0,
        }, step=step)  # fmt: skip
    run.finish()
    barograph.init(id="other").finish()
    client = serve()
    found = fetch(client, "/api/runs/engines/phases")["engine"]
    assert found["title"] == {"en": "Inference engine", "zh": "推理引擎"}
    assert {name for chart in found["charts"] for name in chart["lines"].values()} == {
        "engine/requests/running", "engine/kv_cache_use", "engine/kv_cache_use/max",
    }  # fmt: skip
    assert found["metrics"]["engine/requests/running"]["title"]["zh"] == "运行中的请求数"
    assert fetch(client, "/api/runs/other/phases")["engine"] == {"title": None, "charts": [], "metrics": {}}


def test_histograms_phases_timeline_and_memory(serve: Serve, demo: barograph.Run):
    """Each has an endpoint."""
    client = serve()
    histograms = fetch(client, "/api/runs/demo/histograms", name="actor/advantages")
    assert (histograms["total"], histograms["histograms"][0]["count"]) == (4, 50)
    phases = fetch(client, "/api/runs/demo/phases")
    assert phases["from"] == "spans"
    assert {one["name"] for one in phases["summaries"]} >= {"actor_infer/generate", "inner"}
    assert phases["ranks"][0]["writer"] == "trainer/0"
    assert len(phases["steps"]) == 40
    timeline = fetch(client, "/api/runs/demo/timeline", step=3)
    rows = [row for group in timeline["groups"] for row in group["rows"]]
    assert [(row["name"], row["depth"]) for row in rows] == [
        ("actor_infer/generate", 0),
        ("inner", 1),
        ("actor_train/train_step", 0),
    ]
    assert rows[2]["spans"][0]["onload"] is not None
    assert client.get("/api/runs/demo/timeline?step=99").status_code == 404
    memory = fetch(client, "/api/runs/demo/memory", step=4)
    stairs = [s for s in memory["stairs"] if s["phase"] == "actor_infer/generate" and s["device"] == "0"]
    assert [(s["moment"], s["allocated"]) for s in stairs] == [("start/offload", 1.0), ("end/onload", 3.0)]
    assert memory["capacity"]["0"] == pytest.approx(80.0)


def test_evaluation_is_parsed_through_the_catalogue(serve: Serve, demo: barograph.Run):
    """Task sets with their statistics over k and steps, coverage, and validation."""
    evaluation = fetch(serve(), "/api/runs/demo/evaluation")
    [found] = [one for one in evaluation["sets"] if one["metric"] == "accuracy"]
    assert (found["suite"], found["taskset"]) == ("eval", "gsm8k")
    by = {(one["statistic"], one["k"]): one for one in found["statistics"]}
    assert by["mean", 2]["curve"]["x"] == [0, 10, 20, 30]
    assert by["mean", 2]["last"] == 1.0
    assert found["by_k"]["best"]["k"][-1] == 2
    assert evaluation["coverage"][0]["counts"]["tasks_observed"]["last"] == 2
    assert [one["name"] for one in evaluation["validation"]] == ["val/score/mean"]


def test_samples_are_searched_filtered_and_paged(serve: Serve, demo: barograph.Run):
    """By step, reward, length, task and text; HTML in a prompt is data."""
    client = serve()
    found = fetch(client, "/api/runs/demo/samples", min_reward=0.5, task="q1", sort="-reward", limit=3)
    assert [sample["step"] for sample in found["samples"]] == [37, 33, 29]
    assert (found["matched"], found["more"], found["census"]["kept"]) == (5, True, 40)
    rest = fetch(client, "/api/runs/demo/samples", min_reward=0.5, task="q1", sort="-reward", limit=3, offset=3)
    assert [sample["step"] for sample in rest["samples"]] == [25, 21]
    assert fetch(client, "/api/runs/demo/samples", grep="PROMPT 7 ")["samples"][0]["prompt"] == f"prompt 7 {HTML}"
    assert fetch(client, "/api/runs/demo/samples", min_length=39, max_length=39)["samples"][0]["step"] == 38


def test_samples_by_any_column_and_one_with_its_tokens(serve: Serve):
    """Conditions, orders and expressions in the query; a list has turns, and one sample its arrays."""
    run = barograph.init(project="p", name="n", id="tokens")
    for n in range(4):
        run.sample(
            prompt=[{"role": "user", "content": "q"}],
            completion=[{"role": "assistant", "content": f"<think>{'x' * 5000}</think>{n}"}],
            reward=n, rewards={"format": n / 4}, correct=n % 2 == 0, tokens=["a", "b"],
            token_values={"entropy": [n, 0.5]}, step=0,
        )  # fmt: skip
    run.finish()
    client = serve()
    where = "correct = false and reward.format < 0.5"
    found = fetch(client, "/api/runs/tokens/samples", where=where, sort="-reward.format", texts="turns")
    [sample] = found["samples"]
    assert (sample["reward"], sample["tokens"], sample["token_values"]) == (1, 2, ["entropy"])
    assert "messages" not in sample
    assert [turn["role"] for turn in sample["turns"]] == ["user", "assistant"]
    reasoning, answer = sample["turns"][1]["parts"]
    assert (reasoning["kind"], reasoning["length"], len(reasoning["text"]) < 2100, answer["text"]) == (
        "reasoning", 5000, True, "1",
    )  # fmt: skip
    assert found["census"]["columns"]["correct"]["kind"] == "truth"
    whole = fetch(client, "/api/runs/tokens/sample", place=sample["place"])
    assert len(whole["turns"][1]["parts"][0]["text"]) == 5000
    assert np.frombuffer(base64.b64decode(whole["token_values"]["entropy"]), "<f4").tolist() == [1.0, 0.5]
    assert fetch(client, "/api/runs/tokens/samples", regex="^[23]$")["matched"] == 2
    assert fetch(client, "/api/runs/tokens/samples", max_reward=0)["matched"] == 1
    assert fetch(client, "/api/runs/tokens/samples", sort="-beauty")["unknown"] == ["beauty"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("samples?where=reward", "where: expected NAME < VALUE"),
        ("samples?regex=(", "regex '(': missing )"),
        ("samples?regex=(x%2B)%2B%24", "the regular expression takes more than 0.2 s"),
        ("sample?place=x", "no sample at 'x'"),
        ("sample", "place is missing"),
    ],
)
def test_a_search_that_cannot_be_answered_says_why(
    serve: Serve, query: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    """A slow expression is stopped, and blocks no other request."""
    monkeypatch.setattr(run_handlers, "REGEX_SECONDS", 0.2)
    run = barograph.init(project="p", name="n", id="slow")
    run.sample("p", "x" * 64 + "!", step=0)
    run.finish()
    response = serve().get(f"/api/runs/slow/{query}")
    assert response.status_code in (400, 404)
    assert message in response.json()["error"]


def test_details_events_and_texts(serve: Serve, demo: barograph.Run):
    """Config, environment, writers, events by number; HTML in a config is data."""
    write_delivery_state(Path(demo.path), DeliveryState("wandb").with_state("healthy", delivered=7, mark={"inner": 1}))
    client = serve()
    found = fetch(client, "/api/runs/demo/details")
    assert ["actor.note", HTML] in found["config_flat"]
    assert found["writers"][0]["status"] == "finished"
    [state] = found["relay"]
    assert (state["tracker"], state["state"], state["delivered"], "mark" in state) == ("wandb", "healthy", 7, False)
    events = fetch(client, "/api/runs/demo/events", limit=1)
    assert (events["events"][0]["event"], events["cursor"]) == ("start", 1)
    assert fetch(client, "/api/runs/demo/events", since=events["total"])["events"] == []
    texts = fetch(client, "/api/runs/demo/texts")
    assert [(text["name"], text["step"], text["text"]) for text in texts["texts"]] == [("prompt", 3, f"Answer. {HTML}")]
    assert fetch(client, "/api/runs/demo/texts", name="other")["texts"] == []


def test_runs_are_compared_across_vocabularies(serve: Serve):
    """Names that mean the same share a chart, and config differences are listed."""
    ours = barograph.init(id="ours", config={"lr": 1e-6, "same": 1})
    ours.log({"critic/score/mean": 0.5, "actor/pg_clipfrac": 0.1, "critic/entropy/mean": 1.0}, step=0)
    ours.finish()
    theirs = barograph.init(id="theirs", vocabulary="trl", config={"lr": 2e-6, "same": 1, "more": [1]})
    theirs.log({"objective/scores": 0.6, "policy/clipfrac_avg": 0.2, "objective/entropy": 90.0}, step=0)
    theirs.finish()
    found = fetch(serve(), "/api/compare", run=["ours", "theirs"])
    charts = {chart["key"]: chart for chart in found["charts"]}
    assert [(line["run"], line["name"]) for line in charts["critic/score/mean"]["lines"]] == [
        ("ours", "critic/score/mean"),
        ("theirs", "objective/scores"),
    ]
    assert found["charts"][0]["key"] == "critic/score/mean"
    assert found["config"] == [
        {"key": "lr", "values": [1e-6, 2e-6]},
        {"key": "more", "values": [{"absent": True}, [1]]},
    ]


def compared(key: str, source: str | None, *names: str) -> ComparedRun:
    """Return a run for a comparison, with names of a source."""
    return ComparedRun(key, key, RunNames(names, source=source), list(names), {})


def test_a_compared_chart_says_of_which_domain_it_is():
    """The titles of two domains would be the same otherwise."""
    names = [f"critic/score/mean/by/{domain}" for domain in ("gsm8k", "math")]
    charts = comparison([compared("a", "barograph:roll", *names), compared("b", "barograph:roll", *names)])["charts"]
    assert [chart["title"]["en"] for chart in charts] == ["Score: mean, by domain"] * 2
    assert [list(chart["here"].values()) for chart in charts] == [["gsm8k"], ["math"]]


def test_names_whose_numbers_cannot_be_compared_have_a_reason():
    """In both languages: veRL's estimator of the KL is configured."""
    ours, theirs = compared("o", "barograph:roll", "actor/kl_loss"), compared("t", "verl", "actor/kl_loss")
    [one] = comparison([ours, theirs])["refused"]
    assert (one["run"], one["name"]) == ("t", "actor/kl_loss")
    assert one["reason"]["en"]
    assert one["reason"]["zh"]


def test_names_that_mean_the_same_share_a_chart():
    """Whatever the frameworks call it, in whichever run it comes first; a difference that remains is a note."""
    grpo = compared("g", "trl/grpo", "reward", "entropy")
    areal = compared("a", "areal", "ppo_actor/task_reward/avg", "ppo_actor/update/entropy/avg", "ppo_actor/grad_norm")
    verl = compared("v", "verl", "actor/grad_norm", "critic/vf_loss")
    found = comparison([grpo, areal, verl])
    charts = {chart["key"]: [(line["run"], line["name"]) for line in chart["lines"]] for chart in found["charts"]}
    assert charts["reward"] == [("g", "reward"), ("a", "ppo_actor/task_reward/avg")]
    assert charts["ppo_actor/grad_norm"] == [("a", "ppo_actor/grad_norm"), ("v", "actor/grad_norm")]
    assert charts["critic/vf_loss"] == [("v", "critic/vf_loss")]
    reward = next(chart for chart in found["charts"] if chart["key"] == "reward")
    assert [line["same"] for line in reward["lines"]] == [True, False]
    assert reward["lines"][1]["note"]["en"].startswith("trl")


def test_one_name_of_two_meanings_has_two_charts():
    """The kl of GRPO and the kl of RLOO do not share an axis; an unknown name is joined by itself."""
    found = comparison([compared("g", "trl/grpo", "kl", "mine"), compared("r", "trl/rloo", "kl", "mine")])
    charts = {chart["key"]: (chart["metric"], len(chart["lines"])) for chart in found["charts"]}
    assert charts == {"mine": (None, 2), "kl": ("policy/kl_loss", 1), "kl (trl/rloo)": ("policy/ref_kl_k1", 1)}


def test_the_healthy_range_is_that_of_the_logged_number():
    """A count has no range of a share, and beside another sign the range is the metric's."""
    assert logged_band(RunNames(["actor/ppo_kl"], source="verl").match("actor/ppo_kl")) == {"low": -0.02, "high": 0.02}
    truncated = RunNames(["response_length/clip_ratio"], source="verl").match("response_length/clip_ratio")
    assert logged_band(truncated) == {"low": None, "high": 0.05}
    assert logged_band(RunNames(["rollout/zero_std/count_1"], source="slime").match("rollout/zero_std/count_1")) is None
    assert logged_band(None) is None
    runs = [compared("a", "areal", "ppo_actor/approx_kl/avg"), compared("v", "verl", "actor/ppo_kl")]
    assert comparison(runs)["charts"][0]["band"] == {"low": -0.02, "high": 0.02}


def test_each_run_has_one_line_in_a_chart():
    """Two names of one meaning keep their charts; another framework's name joins the first of them."""
    names = ("grpo_actor/task_reward/avg", "rollout/reward")
    runs = [
        compared("a", "areal", *names),
        compared("b", "areal", *reversed(names)),
        compared("t", "trl/grpo", "reward"),
    ]
    charts = {
        chart["key"]: [(line["run"], line["name"]) for line in chart["lines"]] for chart in comparison(runs)["charts"]
    }
    assert charts[names[0]][:2] == [("a", names[0]), ("b", names[0])]
    assert charts[names[1]][:2] == [("a", names[1]), ("b", names[1])]
    assert sum(("t", "reward") in lines for lines in charts.values()) == 1
    assert len(charts) == 2


def test_a_name_that_is_not_decided_is_drawn_apart():
    """An ambiguous kl does not share an axis with a known one, and the reason says what decides."""
    undecided = compared("u", None, "kl", "reward", "zz", "zy", "zx")
    assert undecided.meanings.ambiguous == ["kl"]
    found = comparison([compared("g", "trl/grpo", "kl"), undecided])
    assert {chart["key"]: len(chart["lines"]) for chart in found["charts"] if "kl" in chart["key"]} == {
        "kl": 1,
        "kl (u)": 1,
    }
    [one] = found["refused"]
    assert (one["run"], one["name"]) == ("u", "kl")
    assert "trl/grpo" in one["reason"]["en"]
    assert "来源" in one["reason"]["zh"]


def test_lines_of_different_scales_are_converted_to_the_metric():
    """AReaL's KL has the other sign: beside veRL's it is turned round, and alone it stays as logged."""
    areal, verl = compared("a", "areal", "ppo_actor/approx_kl/avg"), compared("v", "verl", "actor/ppo_kl")
    for runs in ([areal, verl], [verl, areal]):
        [chart] = comparison(runs)["charts"]
        assert {line["run"]: line["factor"] for line in chart["lines"]} == {"a": -1.0, "v": 1.0}
    [chart] = comparison([areal])["charts"]
    assert chart["lines"][0]["factor"] == 1.0


def test_what_cannot_be_compared_is_still_drawn():
    """In a chart of its own, which later runs of the same kind share."""
    runs = [compared("o", "barograph:roll", "actor/kl_loss"), *(compared(key, "verl", "actor/kl_loss") for key in "vw")]
    found = comparison(runs)
    lines = {chart["key"]: [line["run"] for line in chart["lines"]] for chart in found["charts"]}
    assert lines == {"actor/kl_loss": ["o"], "actor/kl_loss (verl)": ["v", "w"]}
    assert [one["run"] for one in found["refused"]] == ["v", "w"]


def test_names_are_explained(serve: Serve):
    """In both languages; an unknown name has the nearest known ones."""
    client = serve()
    found = fetch(client, "/api/explain", name="actor/ppo_kl", source="verl")
    assert found["known"]
    assert found["en"]["title"] != found["zh"]["title"]
    assert fetch(client, "/api/explain", name="actor/pp_kl")["nearest"]
    assert client.get("/api/explain?name=a&source=nobody").status_code == 400


def test_a_report_is_one_strict_json(serve: Serve, demo: barograph.Run):
    """Over HTTP and as a function, with all data of the run."""
    found = fetch(serve(), "/api/runs/demo/report", samples=5)
    assert {one["name"] for one in found["series"]} >= {"critic/score/mean", HTML}
    assert len(found["samples"]["samples"]) == 5
    assert found["overview"]["vital"]
    own = report_data(View(Path(demo.path)), samples=5)
    json.dumps(own, allow_nan=False)
    assert own["details"]["config"] == found["details"]["config"]


def test_an_unchanged_response_is_not_sent_again(serve: Serve, demo: barograph.Run):
    """With the first response's ETag, the API and the page's files response 304 without a body."""
    client = serve()
    for address in ("/api/runs/demo/names", "/api/runs/demo/series?name=critic/score/mean", "/", "/page.js"):
        etag = client.get(address).headers["etag"]
        again = client.get(address, headers={"if-none-match": etag})
        assert (again.status_code, again.content) == (304, b"")


def test_files_have_their_media_type_and_are_compressed(serve: Serve):
    """An unknown path is not found."""
    client = serve()
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    script = client.get("/page.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["content-encoding"] == "gzip"
    assert client.get("/nothing.js").status_code == 404


def test_data_is_compressed_over_loopback(serve: Serve, demo: barograph.Run):
    """An SSH tunnel ends there. A client that cannot decompress gets it as it is, and so does a short answer."""
    client = serve()
    found = client.get("/api/runs/demo/names")
    assert found.headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in found.headers["vary"]
    plain = client.get("/api/runs/demo/names", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.json() == found.json()
    assert int(found.headers["content-length"]) < len(plain.content) / 3
    assert "content-encoding" not in client.get("/api/views").headers


@pytest.mark.parametrize(
    "address",
    [
        "/api/runs/demo/series?name=a&points=-1",
        "/api/runs/demo/series?name=a&x=elsewhere",
        "/api/runs/demo/series?name=a&from=nan",
        "/api/runs/demo/samples?limit=0",
        "/api/runs/demo/histograms",
        "/api/compare",
    ],
)
def test_a_wrong_parameter_is_an_error(address: str, serve: Serve, demo: barograph.Run):
    """With status 400 and a message in JSON."""
    response = serve().get(address)
    assert response.status_code == 400
    assert response.json()["error"]


def test_every_endpoint_is_documented():
    """docs/api.md names every endpoint and parameter."""
    found = DOCS.read_text()
    for endpoint in ENDPOINTS:
        assert f"`{endpoint.method} {endpoint.path}" in found, endpoint.path
        for parameter in endpoint.parameters:
            assert parameter.name in found, (endpoint.path, parameter.name)


def test_event_files_are_runs_too(serve: Serve, tmp_path: Path):
    """With a key of their own, and through the same endpoints."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    folder = tmp_path / "runs" / "lab" / "grpo"
    writer = EventFileWriter(str(folder))
    for step in range(30):
        values = [Summary.Value(tag=tag, simple_value=step / 30) for tag in ("critic/score/mean", "actor/ppo_kl")]
        writer.add_event(Event(wall_time=1e9 + step, step=step, summary=Summary(value=values)))
    writer.close()
    client = serve()
    [run] = eventually(lambda: (t := fetch(client, "/api/runs"))["pending"] == 0 and t["runs"])
    assert (run["name"], run["project"], run["last_step"]) == ("grpo", "lab", 29)
    assert run["reward"]["name"] == "critic/score/mean"
    found = fetch(client, f"/api/runs/{run['key']}/overview")
    assert found["run"]["kind"] == "log"
    assert found["crucial"][0]["word"] == "good"
    [one] = fetch(client, f"/api/runs/{run['key']}/series", name="actor/ppo_kl", format="json")["series"]
    assert one["points"] == 30
    for part in ("names", "phases", "timeline", "memory", "evaluation", "samples", "details", "events", "texts"):
        fetch(client, f"/api/runs/{run['key']}/{part}")


def test_the_page_preloads_the_list(serve: Serve):
    """A header names it, so that the browser requests it while the script is still loading; not where it is another."""
    client = serve()
    link = client.get("/").headers["link"].split(">")[0].lstrip("<")
    assert link.startswith("api/runs?")  # below the page's own address, which may have a path
    assert client.get(f"/{link}").status_code == 200
    assert "link" not in client.get("/?run=a").headers


def test_superseded_attempts_follow_a_complete_series_only(serve: Serve):
    """An increment brings none, because the page already has them."""
    for steps in (range(10), range(5, 8)):
        run = barograph.init(id="twice")
        for step in steps:
            run.log({"a": 1.0}, step=step)
        run.finish()
    client, query = serve(), {"name": "a", "branches": 1, "format": "json"}
    whole, older = fetch(client, "/api/runs/twice/series", **query)["series"]
    assert (whole["branch"], older["branch"]) == (False, True)
    [new] = fetch(client, "/api/runs/twice/series", **query, since=whole["cursor"])["series"]
    assert new["keep"] == 7


def test_steps_before_the_first_count_are_at_zero(serve: Serve):
    """Also where the count is NaN at a step: every point has a position."""
    run = barograph.init(id="late")
    for step in range(8):
        run.log({"a": float(step)})
        if step > 2:
            run.log({"system/tokens": float("nan") if step == 5 else 10.0})
        run.commit(step)
    run.finish()
    client, query = serve(), {"name": "a", "x": "tokens", "format": "json"}
    [one] = fetch(client, "/api/runs/late/series", **query)["series"]
    assert one["x"] == [0, 0, 0, 10, 20, 20, 30, 40]
    [part] = fetch(client, "/api/runs/late/series", **query, **{"from": 0, "to": 10})["series"]
    assert part["last"] == [0, 1, 2, 3]


def test_a_run_without_an_axis_does_not_affect_the_others(serve: Serve, demo: barograph.Run):
    """Its series are not found; where no run has the axis, that is an error."""
    for id in ("bare", "bare2"):
        run = barograph.init(id=id)
        run.log({"b": 2.0}, step=0)
        run.finish()
    client = serve()

    def drawn(*runs: str) -> Any:
        wanted = [{"run": run, "name": "critic/score/mean" if run == "demo" else "b"} for run in runs]
        return client.post("/api/series", json={"series": wanted, "x": "tokens", "format": "json"})

    assert [one["found"] for one in drawn("bare", "demo").json()["series"]] == [False, True]
    assert drawn("bare").status_code == 400
    assert drawn("bare", "bare2").status_code == 400


def test_memory_is_of_the_last_step_that_has_any(serve: Serve):
    """A later step without memory, such as an evaluation, does not hide it."""
    run = barograph.init(id="last")
    run.log({"memory/actor_train/train/end/onload/allocated/0": 2.0}, step=3)
    run.log({"val/score/mean": 1.0}, step=4)
    run.finish()
    client = serve()
    found = fetch(client, "/api/runs/last/memory")
    assert (found["step"], [stair["allocated"] for stair in found["stairs"]]) == (3, [2.0])
    assert fetch(client, "/api/runs/last/memory", step=4)["stairs"] == []


def test_the_last_events_and_texts_can_be_requested(serve: Serve):
    """By counting from the end; heartbeats are left out."""
    run = barograph.init(id="long")
    for step in range(4):
        run.text("note", f"text {step}", step=step)
        run._recording.journal.event("heartbeat", dropped=0)
    run.finish()
    client = serve()
    every = [event["event"] for event in fetch(client, "/api/runs/long/events")["events"]]
    assert "heartbeat" not in every
    found = fetch(client, "/api/runs/long/events", since=-1)
    assert ([event["event"] for event in found["events"]], found["cursor"]) == (["finish"], found["total"])
    texts = fetch(client, "/api/runs/long/texts", since=-3, limit=2)
    assert ([text["text"] for text in texts["texts"]], texts["cursor"]) == (["text 1", "text 2"], 3)
    assert len(fetch(client, "/api/runs/long/texts", since=-99)["texts"]) == 4


def test_one_histogram_of_many_is_the_last(serve: Serve):
    """Where only one is requested."""
    run = barograph.init(id="wide")
    for step in range(5):
        run.log({"h": barograph.histogram(np.arange(9.0))}, step=step)
    run.finish()
    found = fetch(serve(), "/api/runs/wide/histograms", name="h", points=1)
    assert [one["step"] for one in found["histograms"]] == [4]
