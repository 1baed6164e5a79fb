"""One real training in each vocabulary: all documented names are logged, and their values are consistent."""

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from small import trained

import barograph
from barograph.apps.demo import recording
from barograph.catalogue.spec import placeholders
from barograph.importers.summary import run_names

SEED = Path(__file__).parents[2] / "data" / "seed_metrics.tsv"
ONLY_WITH_A_GPU = {
    # what a device allocates and reserves: there is none; examples/torch_ppo.py has them on a GPU
    "roll": r"memory/\{metric_infix\}/.*\{device_id\}",
    "trl": r"(?!)",
    # the same, as peaks of the step
    "trinity": r"perf/max_memory_(allocated|reserved)_gb",
}
FILLED = {
    "metric_infix": ".+", "taskset": "[a-z_]+", "metric": "[a-z_]+", "k": r"\d+", "operation": "[a-z_]+",
    "operator": "[a-z_]+", "mean|std|max|min": "(mean|std|max|min)",
}  # fmt: skip
OF_EVERY_STEP = ("actor/", "critic/", "loss/", "objective/", "policy/", "tokens/", "time/actor_train/")
STEPS = 6


@pytest.fixture(scope="module", params=["roll", "trl", "trinity"])
def view(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> barograph.View:
    """Return a short training in one vocabulary; nothing is filtered, so that all means are over the same episodes."""
    folder = tmp_path_factory.mktemp(request.param)
    return trained(folder, STEPS, vocabulary=request.param, drop_at_most=0.0)


def documented(vocabulary: str) -> list[str]:
    """Return the documented names that a CPU can produce, as patterns with placeholders."""
    rows = csv.DictReader(SEED.read_text().splitlines(), delimiter="\t")
    names = [row["name"] for row in rows if row["vocabulary"] == vocabulary]
    return [name for name in names if not re.fullmatch(ONLY_WITH_A_GPU[vocabulary], name)]


def expression(name: str) -> re.Pattern[str]:
    """Return a regular expression that matches a documented name with its placeholders filled."""
    pieces = re.split(r"\{([^}]*)\}", name)
    return re.compile("".join(FILLED[piece] if n % 2 else re.escape(piece) for n, piece in enumerate(pieces)))


def test_every_documented_name_is_logged_and_finite(view: barograph.View):
    """All documented names that need no accelerator are in the journal with finite values."""
    names = view.names()
    for wanted in documented(view.info.vocabulary):
        found = [name for name in names if expression(wanted).fullmatch(name)]
        assert found, f"{wanted} is missing; there are {[n for n in names if n.split('/')[0] == wanted.split('/')[0]]}"
        for name in found:
            assert np.isfinite(view.series(name).values).all(), name


def test_every_name_that_is_logged_is_explained(view: barograph.View):
    """The page says how many names of a run it does not know: of the demo it knows all."""
    names = run_names(view)
    assert not names.unknown
    assert not names.ambiguous


def test_only_device_memory_names_are_missing_on_a_cpu():
    """The documented names that the demo does not log are those of device memory."""
    left = list(csv.DictReader(SEED.read_text().splitlines(), delimiter="\t"))
    skipped = [row["name"] for row in left if re.fullmatch(ONLY_WITH_A_GPU[row["vocabulary"]], row["name"])]
    assert len(skipped) == 20
    assert all("device_id" in placeholders(name) or "max_memory" in name for name in skipped)


def test_measured_metrics_are_in_every_step(view: barograph.View):
    """No step is missing a metric that other steps have."""
    for name in view.names():
        if name.startswith(OF_EVERY_STEP):
            assert len(view.series(name)) == STEPS, name


def test_means_are_between_extremes(view: barograph.View):
    """Minimum ≤ mean ≤ maximum for all metrics that have all three."""
    names = set(view.names())
    seen = 0
    for name in names:
        low, high = (re.sub(r"mean(@\d+/mean)?$", other, name) for other in ("min", "max"))
        if name.endswith("mean") and low in names and high in names and low != name:
            mean, least, most = (view.series(n).values for n in (name, low, high))
            slack = 1e-9 + 1e-9 * np.abs(mean)
            assert (least <= mean + slack).all(), name
            assert (mean <= most + slack).all(), name
            seen += 1
    assert seen >= 4


def test_a_phases_total_is_the_sum_of_its_stages(view: barograph.View):
    """The total equals onload + execute + offload for every worker's phase."""
    totals = view.names("time/*/total")
    assert len(totals) >= 6
    for name in totals:
        stem = name.removesuffix("total")
        parts = [view.series(stem + stretch).values for stretch in ("onload", "execute", "offload")]
        assert view.series(name).values == pytest.approx(sum(parts), abs=1e-9)
        assert all((part > 0).all() for part in parts), name


def one(view: barograph.View, name: str) -> np.ndarray:
    return view.series(name).values


def test_trls_reward_is_the_sum_of_its_parts(tmp_path: Path):
    """objective/rlhf_reward = objective/scores + objective/non_score_reward, which is -β · objective/kl."""
    view = trained(tmp_path, 3, vocabulary="trl", drop_at_most=0.0)
    score, rest = one(view, "objective/scores"), one(view, "objective/non_score_reward")
    assert one(view, "objective/rlhf_reward") == pytest.approx(score + rest)
    assert rest == pytest.approx(-one(view, "objective/kl_coef") * one(view, "objective/kl"))
    assert one(view, "episode")[-1] == 3 * 24 * 8


def test_rolls_losses_and_samples_are_consistent(tmp_path: Path):
    """Shares equal their counts, samples sum over steps, and no clipped loss is below the unclipped one."""
    view = trained(tmp_path, 3)
    share = one(view, "actor/valid_samples") / one(view, "actor/total_samples")
    assert one(view, "actor/valid_sample_ratio") == pytest.approx(share)
    assert (share < 1).any(), "the filter drops something"
    assert one(view, "pipeline/experience_count") == pytest.approx(one(view, "actor/valid_samples"))
    outside = one(view, "actor/ppo_ratio_high_clipfrac") + one(view, "actor/ppo_ratio_low_clipfrac")
    assert one(view, "actor/ppo_ratio_clipfrac") == pytest.approx(outside)
    assert (one(view, "critic/loss") >= one(view, "critic/error") / 2 - 1e-12).all()
    assert (one(view, "actor/policykl") >= 0).all()
    assert one(view, "system/samples") == pytest.approx(np.cumsum(one(view, "actor/valid_samples")))
    assert all(sample.columns["correct"] == (sample.reward == 1) for sample in view.samples(where="correct != none"))


def test_corrections_domains_and_logits_are_consistent(tmp_path: Path):
    """Weights are truncated as the trainer does, starts near the goal are solved more often, and the policy moves."""
    view = trained(tmp_path, 3, sync_every=3, largest_weight=1.1, drop_at_most=0.0)
    truncated = "policy/mismatch/truncated_weight"
    assert one(view, f"{truncated}/mean") == pytest.approx(one(view, "actor/sample_weights_mean"))
    assert one(view, f"{truncated}/clip_fraction")[-1] > 0, "the explorer's weights are old"
    assert (one(view, "critic/score/mean/by/near") > one(view, "critic/score/mean/by/far")).all()
    assert (one(view, "policy/ref_kl_exact") > 0).all()
    assert (one(view, "policy/logits/max") > one(view, "policy/logits/min")).all()
    assert one(view, "policy/mismatch/rejected/sequences").tolist() == [0, 0, 0], "no weight is too small"


@pytest.fixture
def trained_on(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """Return the episodes that the mini-batches of each step have, as soon as one is trained."""
    found: list[set[int]] = []
    record_experience, record_policy = recording.record_experience, recording.record_policy

    def experience(run, e, config, version) -> None:
        found.append(set())
        record_experience(run, e, config, version)

    def policy(run, e, rows, *more) -> None:
        found[-1].update(rows.tolist())
        record_policy(run, e, rows, *more)

    monkeypatch.setattr(recording, "record_experience", experience)
    monkeypatch.setattr(recording, "record_policy", policy)
    return found


def test_rejected_episodes_are_not_trained_on(tmp_path: Path, trained_on: list[set[int]]):
    """The recorded share is that of the episodes that no mini-batch has."""
    view = trained(tmp_path, 3, sync_every=3, smallest_weight=0.8, drop_at_most=0.0)
    rejected = one(view, "policy/mismatch/rejected/sequences")
    assert rejected.tolist() == pytest.approx([1 - len(rows) / (24 * 8) for rows in trained_on])
    assert rejected[0] == 0 < rejected[-1] < 1, "the explorer's weights are old"
    assert one(view, "policy/mismatch/rejected/tokens")[-1] > 0


def test_samples_tell_why_an_episode_is_not_trained_on(tmp_path: Path, trained_on: list[set[int]]):
    """Those that no mini-batch has are discarded, for their weight or because their group has equal scores."""
    view = trained(tmp_path, 3, sync_every=3, smallest_weight=0.8)
    samples = view.samples()
    for sample in samples:
        assert (sample.discarded is None) == (int(str(sample.id)) in trained_on[sample.step])
    assert {sample.discarded for sample in samples} == {None, "equal scores", "small weight"}
    groups: dict[tuple[int, str], set[float]] = {}
    for sample in view.samples(where="discarded = 'equal scores'"):
        groups.setdefault((sample.step, sample.group), set()).add(sample.reward)
    assert groups
    assert all(len(rewards) == 1 for rewards in groups.values())


def test_the_ratios_of_episodes_are_recorded_where_they_are_clipped(tmp_path: Path):
    """With the level of sequences; one ratio for each episode differs less from 1 than those of its tokens."""
    view = trained(tmp_path, 3, level="sequence", clip=0.02, drop_at_most=0.0)
    episodes, tokens = (one(view, name) for name in ("policy/sequence_ratio/max", "actor/ratio_max"))
    assert (episodes < tokens).all()
    assert (one(view, "policy/sequence_ratio/clip_fraction") > 0).any()
    assert not trained(tmp_path, 1).names("policy/sequence_ratio/*")


def test_an_evaluation_has_the_ks_that_its_tasks_ask_for(tmp_path: Path):
    """The others have the powers of two."""
    view = trained(tmp_path, 1, vocabulary="trinity")
    for names, ks in (("bench/classic", {1, 3}), ("eval/held_out", {2, 4})):
        assert {int(name.rsplit("@")[1]) for name in view.names(f"{names}/score/best@*")} == ks


def test_the_explorer_and_the_trainer_are_two_roles_of_one_run(tmp_path: Path):
    """Rollouts and evaluations are the explorer's, updates the trainer's, and samples are readable."""
    view = trained(tmp_path, 3)
    assert {writer.role for writer in view.writers()} == {"explorer", "trainer"}
    assert len(view.series("weight_version", role="explorer")) == 3
    assert view.series("weight_version").values.tolist() == [0, 1, 2]
    samples = view.samples(step=2)
    assert len(samples) >= 64  # and those of measured tokens that are not among them
    for sample in samples:
        assert set("".join((sample.prompt or "").split())) == set("FGHS")
        assert set((sample.completion or "").split()) <= {"left", "down", "right", "up", "end"}
