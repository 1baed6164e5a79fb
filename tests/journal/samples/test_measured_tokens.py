"""Values of tokens from ``run.measure``, joined with samples by their ids."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import barograph
from barograph.apps.cli import main
from barograph.base.model import Sample
from barograph.journal.samples.token_sums import all_values

WIDTH, SEQUENCES = 10, 6
NAMES = {"old": "old_log_probs", "reference": "ref_log_probs", "rollout": "rollout_log_probs"}


def arrays(seed: int = 0, sequences: int = SEQUENCES, width: int = WIDTH) -> dict[str, Any]:
    """Return a padded batch of answers with a tool's tokens inside of them, which are masked."""
    draw = np.random.default_rng(seed)
    mask = np.arange(width) < draw.integers(5, width + 1, (sequences, 1))
    mask[:, 2] = False
    old = -draw.exponential(0.5, mask.shape).astype(np.float32)
    return {
        "response_mask": mask,
        "old_log_probs": old,
        "ref_log_probs": old + draw.normal(0, 0.1, old.shape).astype(np.float32),
        "rollout_log_probs": old + draw.normal(0, 0.02, old.shape).astype(np.float32),
        "old_entropy": draw.random(old.shape).astype(np.float32),
        "advantages": draw.normal(0, 1, old.shape).astype(np.float32),
        "actions": draw.integers(0, 500, old.shape),
        "ids": [f"s{n}" for n in range(sequences)],
    }


def spell(ids: list[int]) -> str:
    return "".join(f" w{id}" for id in ids)


def update(data: dict[str, Any]) -> np.ndarray:
    """Return log-probs after an update."""
    return data["old_log_probs"] + np.random.default_rng(9).normal(0, 0.3, data["old_log_probs"].shape)


def read(run: barograph.Run) -> dict[str, Sample]:
    """Return the samples of a run with tokens, by id."""
    return {str(sample.id): sample for sample in barograph.open(run.path).samples(where="tokens > 0", limit=99)}


def assert_equal(sample: Sample, data: dict[str, Any], now: np.ndarray | None = None, clip: float = 0.2) -> None:
    """Check every value at every token, from the first of the response to the last."""
    row = int(str(sample.id)[1:])
    mask = data["response_mask"][row]
    span = slice(int(mask.argmax()), len(mask) - int(mask[::-1].argmax()))
    at = mask[span]
    values = {name: np.array(array) for name, array in sample.token_values.items()}
    assert list(values.pop("mask")) == list(at.astype(float))
    expected = {name: data[array][row] for name, array in NAMES.items()}
    expected |= {"entropy": data["old_entropy"][row], "advantage": data["advantages"][row]}
    if now is not None:
        ratio = np.exp(now[row] - data["old_log_probs"][row].astype(float))
        advantage = data["advantages"][row]
        clipped = ((ratio > 1 + clip) & (advantage > 0)) | ((ratio < 1 - clip) & (advantage < 0))
        expected |= {"log_prob": now[row], "clipped": clipped.astype(float)}
        np.testing.assert_allclose(all_values(sample.token_values)["ratio"][at], ratio[span][at], rtol=1.3e-4)
    assert values.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(values[name][at], array[span][at], rtol=1e-3, atol=2.5e-4, err_msg=name)


@pytest.mark.parametrize("order", ["text first", "text last"])
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_values_are_those_of_the_trainer_at_the_right_tokens(order: str, kind: str):
    """Masks included, with the ratio and the clip that an update tells, and the text that was logged."""
    data = arrays()
    now = update(data)
    given = data
    if kind == "torch":
        torch = pytest.importorskip("torch")
        given = {name: torch.tensor(array) if name != "ids" else array for name, array in data.items()}
    run = barograph.init()
    run.tokenizer(spell)

    def log_texts() -> None:
        for n in range(SEQUENCES):
            run.sample("question", f"answer {n}", id=f"s{n}", reward=float(n))

    if order == "text first":
        log_texts()
    batch = barograph.Batch(**given)
    run.measure(batch)
    for micro, rows in zip(batch.split(2), (slice(0, 3), slice(3, 6)), strict=True):
        run.measure(micro.having(log_probs=now[rows] if kind == "numpy" else torch.tensor(now[rows])), part="policy")
    if order == "text last":
        log_texts()
    run.commit(3)
    run.finish()
    samples = read(run)
    assert len(samples) == 4
    assert {sample.columns["chosen"] for sample in samples.values()} == {
        "mismatch", "kl", "highest entropy", "lowest entropy",
    }  # fmt: skip
    for id, sample in samples.items():
        row = int(id[1:])
        assert (sample.completion, sample.reward, sample.step) == (f"answer {row}", float(row), 3)
        mask = data["response_mask"][row]
        places = range(len(mask) - int(mask[::-1].argmax()))
        assert list(sample.tokens) == [spell([data["actions"][row, place]]) for place in places]
        assert_equal(sample, data, now)
    census = barograph.open(run.path).sample_census()
    assert (census.kept, census.seen) == (SEQUENCES, SEQUENCES)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("prompts", [0, 3])
def test_a_packed_batch_has_its_values_at_the_same_tokens(kind: str, prompts: int):
    """Sequences of several lengths in one stream, with prompts before and a tool's tokens inside, which are masked."""
    data = arrays()
    data["log_probs"] = now = update(data).astype(np.float32)
    lengths = [int(np.flatnonzero(mask)[-1]) + 1 for mask in data["response_mask"]]

    def packed(names: list[str], rows: range) -> dict[str, Any]:
        """Return some arrays of some sequences as streams, with their bounds and ids."""
        zeros = {name: np.zeros(prompts, data[name].dtype) for name in names}
        found = {
            name: np.concatenate([part for row in rows for part in (zeros[name], data[name][row, : lengths[row]])])
            for name in names
        }
        found["cu_seqlens"] = np.cumsum([0, *(prompts + lengths[row] for row in rows)])
        if kind == "torch":
            torch = pytest.importorskip("torch")
            found = {name: torch.tensor(array) for name, array in found.items()}
        return {**found, "ids": [data["ids"][row] for row in rows]}

    run = barograph.init(token_samples_per_step=SEQUENCES)
    run.tokenizer(spell)
    run.measure(packed([name for name in data if name not in ("ids", "log_probs")], range(SEQUENCES)))
    for rows in (range(3), range(3, SEQUENCES)):
        run.measure(packed(["response_mask", "log_probs", "old_log_probs", "advantages"], rows), part="policy")
    for n in range(SEQUENCES):
        run.sample("question", f"answer {n}", id=f"s{n}")
    run.commit(0)
    run.finish()
    samples = read(run)
    assert samples.keys() == set(data["ids"])
    for id, sample in samples.items():
        row = int(id[1:])
        assert list(sample.tokens) == [spell([token]) for token in data["actions"][row, : lengths[row]]]
        assert (sample.completion, list(sample.token_values["mask"])[2]) == (f"answer {row}", 0.0)
        assert_equal(sample, data, now)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_what_is_not_finite_is_stored_and_costs_other_values_nothing(kind: str):
    """NaN of a tool's tokens and of padding, one of an answer's token, an infinity, and an array of NaN alone."""
    data = arrays()
    mask = data["response_mask"]
    for name in ("rollout_log_probs", "old_entropy", "ref_log_probs"):
        data[name][~mask] = np.nan
    data["old_log_probs"][1, 0] = np.nan
    data["rollout_log_probs"][2, 1] = -np.inf
    data["advantages"][3] = np.nan
    data["ref_log_probs"][4] = np.nan
    now = update(data)
    given = data
    if kind == "torch":
        torch = pytest.importorskip("torch")
        given = {name: torch.tensor(array) if name != "ids" else array for name, array in data.items()}
    run = barograph.init(token_samples_per_step=SEQUENCES)
    batch = barograph.Batch(**given)
    run.measure(batch)
    run.measure(batch.having(log_probs=now if kind == "numpy" else torch.tensor(now)), part="policy")
    run.commit(0)
    run.finish()
    samples = read(run)
    assert samples.keys() == set(data["ids"])
    for sample in samples.values():
        assert_equal(sample, data, now)


def test_a_sequence_without_a_logged_text_is_a_sample_and_says_so():
    """Its text is that of the token ids where there is a tokenizer; without one the ids are shown."""
    data = arrays()
    for tokenizer, text in ((spell, "from actions"), (None, "not logged")):
        run = barograph.init(name=text)
        if tokenizer:
            run.tokenizer(tokenizer)
        run.measure(data)
        run.commit()
        run.finish()
        for sample in read(run).values():
            assert sample.columns["text"] == text
            ids = data["actions"][int(str(sample.id)[1:])].tolist()
            if tokenizer:
                assert sample.completion == "".join(sample.tokens) == spell(ids[: len(sample.tokens)])
            else:
                assert (sample.completion, sample.tokens[1]) == ("", f"[{ids[1]}]")
            assert_equal(sample, data)


@pytest.mark.parametrize("part", ["span", "response", "whole row", "wrong", "unknown"])
def test_own_tokens_of_a_sample_are_aligned_by_their_number(part: str, capsys: pytest.CaptureFixture[str]):
    """They may be all from the first to the last of the response, those of the response, or the prompt's too."""
    data = arrays(sequences=1)
    del data["actions"]
    data["response_mask"][:] = [0, 0, 1, 1, 0, 1, 1, 0, 0, 0]
    places = {"span": range(2, 7), "response": (2, 3, 5, 6), "whole row": range(7), "wrong": range(3)}
    tokens = [f" t{place}" for place in places[part]] if part != "unknown" else None
    run = barograph.init(token_samples_per_step=1)
    run.measure(data)
    run.sample(completion="x", id="s0", tokens=tokens)
    run.commit()
    run.finish()
    [sample] = barograph.open(run.path).samples()
    assert sample.columns["chosen"] == "mismatch"
    if part == "wrong":
        assert len(sample.token_values) == 0
        assert "3 tokens were given, the batch has 4 of the response" in capsys.readouterr().err
        return
    expected = [*places[part]] if tokens else [*range(2, 7)]
    values = np.array(sample.token_values["old"])
    mask = data["response_mask"][0, expected]
    np.testing.assert_allclose(values[mask], data["old_log_probs"][0, expected][mask], atol=2.5e-4)
    assert list(sample.token_values["mask"]) == mask.astype(float).tolist()
    assert list(sample.tokens) == (tokens or ["▯"] * 5)


def test_own_values_of_a_sample_count():
    """What a user gives is not replaced by what was measured."""
    data = arrays(sequences=1)
    size = int(np.flatnonzero(data["response_mask"][0])[-1]) + 1
    run = barograph.init()
    run.sample(id="s0", tokens=["t"] * size, token_values={"entropy": [9.0] * size, "mine": [1.0] * size})
    run.measure(data)
    run.commit()
    run.finish()
    [sample] = read(run).values()
    assert set(sample.token_values["entropy"]) == {9.0}
    assert {"mine", "old", "mask"} <= set(sample.token_values)


def test_two_ranks_choose_their_own(tmp_path: Path):
    """Every process keeps as many as it is asked for, and a reader sees all of them."""
    batches = [arrays(seed) for seed in (1, 2)]
    for rank, data in enumerate(batches):
        data["ids"] = [f"s{n}{rank}" for n in range(SEQUENCES)]
    runs = [barograph.init(id="ranks", dir=tmp_path, rank=rank, world_size=2) for rank in range(2)]
    for run, data in zip(runs, batches, strict=True):
        run.measure(data, tokens=3)
        run.commit(0)
    for run in runs:
        run.finish()
    samples = read(runs[0])
    assert sorted(id[-1] for id in samples) == ["0"] * 3 + ["1"] * 3
    for id, sample in samples.items():
        rank, row = int(id[-1]), id[:-1]
        assert_equal(
            Sample(**{**{f: getattr(sample, f) for f in ("tokens", "token_values")}, "id": row}), batches[rank]
        )


def test_several_steps_may_be_open_and_unnamed_ones_get_their_number():
    """A step's tokens belong to its own samples, though other steps have the same ids."""
    run = barograph.init(token_samples_per_step=6)
    for step in (0, 1):
        run.measure(arrays(step), step=step)
        for n in range(SEQUENCES):
            run.sample(completion=f"{step}/{n}", id=f"s{n}", step=step)
    run.commit(0)
    run.commit(1)
    run.measure(arrays(2))
    run.sample(completion="2/0", id="s0")
    run.commit(2)
    run.finish()
    for step in range(3):
        found = barograph.open(run.path).samples(step=step, where="tokens > 0", limit=20)
        assert len(found) == 6
        for sample in found:
            assert_equal(sample, arrays(step))
            assert sample.completion in ("", f"{step}/{str(sample.id)[1:]}")


@pytest.mark.parametrize("off", ["tokens=0", "setting", "no ids", "samples", "replica"])
def test_it_can_be_switched_off(off: str, capsys: pytest.CaptureFixture[str]):
    """With no tokens, no ids, no room for samples, or in a process whose data another one has too."""
    settings: dict[str, Any] = {
        "setting": {"token_samples_per_step": 0}, "samples": {"samples_per_step": 0}, "replica": {"replica": 1},
    }.get(off, {})  # fmt: skip
    run = barograph.init(**settings)
    data = arrays()
    if off == "no ids":
        del data["ids"]
        run.measure(data, tokens=3)
    else:
        run.measure(data, tokens=0 if off == "tokens=0" else None)
    run.commit()
    run.finish()
    assert read(run) == {}
    assert ("needs Batch(ids=…)" in capsys.readouterr().err) == (off == "no ids")


def test_a_wrong_number_is_reported_and_costs_no_training(capsys: pytest.CaptureFixture[str]):
    """The call is guarded like every other."""
    run = barograph.init()
    run.measure(arrays(), tokens=33)
    run.measure(arrays(), tokens=-1)
    run.commit()
    run.finish()
    assert "expected 0 to 32 sequences, got 33" in capsys.readouterr().err


def test_a_step_of_long_sequences_is_small_and_within_the_budget():
    """Four sequences of 8,192 tokens with all arrays, and their texts, take at most 300 kB."""
    data = arrays(3, 4, 8192)
    data["response_mask"][:] = True
    data["advantages"][:] = 0.7  # GRPO's are the same for all tokens
    draw = np.random.default_rng(1)
    data["actions"] = draw.zipf(1.4, (4, 8192)) % 5000  # a few words are frequent
    run = barograph.init()
    run.tokenizer(spell)
    batch = barograph.Batch(**data)
    run.measure(batch)
    run.measure(batch.having(log_probs=data["old_log_probs"] + draw.normal(0, 0.05, (4, 8192))), "policy")
    run.commit()
    run.finish()
    assert len(read(run)) == 4
    assert sum(file.stat().st_size for file in Path(run.path).glob("*.seg")) < 300_000


def test_tokens_beyond_the_budget_are_left_out(capsys: pytest.CaptureFixture[str]):
    """The samples are stored, as many with their tokens as the budget of bytes has room for."""
    run = barograph.init(sample_bytes_per_step=1500)
    run.measure(arrays())
    run.commit()
    run.finish()
    assert len(barograph.open(run.path).samples()) == 4
    assert 1 <= len(read(run)) < 4
    assert "need more than 1,500 bytes" in capsys.readouterr().err


def test_the_terminal_and_exports_show_measured_tokens(capsys: pytest.CaptureFixture[str]):
    """They are values of a sample like any others."""
    run = barograph.init(name="lake")
    run.tokenizer(spell)
    run.measure(arrays())
    run.commit()
    run.finish()
    assert main(["samples", "lake", "--where", "chosen = kl", "--tokens", "--value", "entropy"]) == 0
    [sample] = barograph.open(run.path).samples(where="chosen = kl")
    assert "".join(sample.tokens[:2]).strip() in capsys.readouterr().out
    assert main(["export", "lake", "--samples", "--to", "jsonl"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert next(line for line in lines if line["columns"]["chosen"] == "kl")["tokens"] == list(sample.tokens)


def test_a_commit_that_gathers_values_stores_tokens_too(tmp_path: Path):
    """Each process stores its own, before the exchange."""
    dist = pytest.importorskip("torch.distributed")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        run = barograph.init()
        run.measure(arrays())
        run.commit(0, gather=True)
        run.finish()
    finally:
        dist.destroy_process_group()
    samples = read(run)
    assert len(samples) == 4
    for sample in samples.values():
        assert_equal(sample, arrays())
