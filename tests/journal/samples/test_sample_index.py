"""Finding samples again."""

import multiprocessing
import os
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import barograph
from barograph.base.model import Sample, Writer
from barograph.journal.format import frames
from barograph.journal.samples import index
from barograph.journal.samples.query import Query, compiled, required_literal
from barograph.journal.write.writer import JournalWriter

WORDS = [
    "alpha",
    "Beta",
    "GAMMA",
    "straße",
    "ÜBER",
    "über",
    "字符",
    "Привет",
    "приВЕт",
    "\\boxed{4}",
    "a\nb",
    '"quoted"',
    "\ud800",
    "\0",
]


def make(count: int = 300, seed: int = 1) -> barograph.Run:
    """Return a finished run with samples of every kind."""
    draw = random.Random(seed)
    run = barograph.init(samples_per_step=1000)
    for n in range(count):
        run.sample(
            prompt=" ".join(draw.choices(WORDS, k=3)),
            completion=" ".join(draw.choices(WORDS, k=4)),
            messages=[{"role": "user", "content": draw.choice(WORDS)}] if n % 5 == 0 else None,
            reward=draw.choice([None, draw.random(), float("nan")]),
            rewards={"a": draw.random()} if n % 3 == 0 else None,
            advantage=draw.gauss(0, 1),
            length=draw.randrange(100),
            finish_reason=draw.choice(["stop", "length", None]),
            task=f"t{n % 7}",
            group=f"g{n % 11}",
            run=n % 2,
            weight_version=n % 4,
            step=n % 20,
        )
    run.finish()
    return run


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[barograph.View, list[Sample]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BAROGRAPH_DIR", str(tmp_path_factory.mktemp("runs")))
        view = barograph.open(make().path)
    return view, view.samples()


def reward_of(sample: Sample) -> float:
    """Return the reward that filters compare; NaN matches no bound."""
    if sample.reward is None and len(sample.rewards) == 1:
        return next(iter(sample.rewards.values()))
    return float("nan") if sample.reward is None else sample.reward


def texts_of(sample: Sample) -> list[str]:
    return [sample.prompt, sample.completion, *(message["content"] for message in sample.messages)]


REFERENCE: dict[str, Callable[[Sample, object], bool]] = {
    "step": lambda s, v: s.step in v if isinstance(v, range) else s.step == v,
    "min_reward": lambda s, v: reward_of(s) >= v,  # type: ignore[operator]
    "max_reward": lambda s, v: reward_of(s) <= v,  # type: ignore[operator]
    "task": lambda s, v: s.task == v,
    "group": lambda s, v: s.group == v,
    "run": lambda s, v: s.run == v,
    "finish_reason": lambda s, v: s.finish_reason == v,
    "weight_version": lambda s, v: s.weight_version == v,
    "grep": lambda s, v: any(str(v).lower() in text.lower() for text in texts_of(s)),
    "regex": lambda s, v: any(re.search(str(v), text) for text in texts_of(s)),
}
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "step": st.integers(-1, 21) | st.builds(range, st.integers(0, 9), st.integers(9, 20), st.integers(1, 3)),
        "min_reward": st.floats(0, 1),
        "max_reward": st.floats(0, 1),
        "task": st.sampled_from(["t1", "t6", "none"]),
        "group": st.sampled_from(["g1", "g10"]),
        "run": st.sampled_from(["0", "1"]),
        "finish_reason": st.sampled_from(["stop", "length"]),
        "weight_version": st.integers(0, 4),
        "grep": st.sampled_from(
            ["alpha", "BETA", "a", "über", "字", "{4}", "\n", '"', "\ud800", "STRASSE", "aß", "ПРИВЕТ", "привЕ", "зима"]
        ),
        "regex": st.sampled_from(
            ["alpha|Beta", r"boxed\{\d\}", "^ÜBER", "字$", "beta", "(?i)beta", "al?pha", "字*符", "(?x) a l", "a{0}B"]
        ),
    },
)


@given(FILTERS)
@settings(max_examples=200, deadline=None)
def test_every_filter_agrees_with_plain_python(
    samples: tuple[barograph.View, list[Sample]], filters: dict[str, object]
):
    """Any combination of filters, compared with a loop over all samples."""
    view, everything = samples
    expected = [s for s in everything if all(REFERENCE[name](s, value) for name, value in filters.items())]
    assert repr(view.samples(**filters)) == repr(expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["step", "reward", "advantage", "length", "time"])
def test_samples_are_sorted_with_missing_values_last(samples: tuple[barograph.View, list[Sample]], name: str):
    """Ascending, or with a minus descending."""
    view, _ = samples
    for sort, down in ((name, False), (f"-{name}", True)):
        found = view.samples(sort=sort)
        values = [reward_of(s) if name == "reward" else getattr(s, name) for s in found]
        known = [value for value in values if value == value]
        assert values[: len(known)] == sorted(known, reverse=down)
    assert view.samples(sort=f"-{name}", limit=3) == view.samples(sort=f"-{name}")[:3]


def test_a_range_of_steps_is_given_in_several_ways(samples: tuple[barograph.View, list[Sample]]):
    """One step, a range, or a pair with both ends included, either of them open."""
    view, _ = samples
    for step, expected in (
        (3, {3}),
        (range(3, 5), {3, 4}),
        ((3, 5), {3, 4, 5}),
        ((18, None), {18, 19}),
        ((None, 0), {0}),
    ):
        assert {sample.step for sample in view.samples(step)} == expected  # type: ignore[arg-type]
    assert view.samples(range(0)) == []
    assert view.samples(np.int64(3), min_reward=np.float32(0)) == view.samples(3, min_reward=0)  # type: ignore[arg-type]
    assert repr(view.samples(run=1, limit=2)) == repr(view.samples(run="1", limit=2))  # type: ignore[arg-type]


def test_wrong_queries_raise_with_a_reason():
    """An order by nothing and an invalid regular expression."""
    with pytest.raises(ValueError, match="sort: expected step, reward, .* or another column, got '-'"):
        Query(sort="-")
    with pytest.raises(ValueError, match=r"regex '\(': missing \)"):
        Query(regex="(")


@pytest.mark.parametrize(
    ("regex", "literal"),
    [
        (r"\b77[78]$", "77"),
        ("[0-9]+ apples", " apples"),
        ("(ab)+c", "ab"),
        ("(?:long word|x)y", "y"),
        ("a(?i:bcd)e", "a"),
        ("(?i)abc", ""),
        ("(?x) a b c", "abc"),
        ("(long)?x", "x"),
        (r"ab\Z", "ab"),
        ("a|b", ""),
        ("(?=abc)a", "a"),
        ("(?!abc)d", "d"),
        ("字[ab]符文", "符文"),
    ],
)
def test_every_match_contains_the_required_literal(regex: str, literal: str):
    """It is the longest that is obvious."""
    assert required_literal(compiled(regex)) == literal


@given(
    st.lists(st.sampled_from(["a", "b", "[ab]", "a?", "(ab)+", "(a|b)", "b*", "^", "$", ".", "(?:ba){2}"]), max_size=5)
)
def test_no_match_is_lost_to_the_required_literal(parts: list[str]):
    """A text without it does not match."""
    pattern = compiled("".join(parts))
    for size in range(6):
        for number in range(2**size):
            text = f"{number:0{size}b}".replace("0", "a").replace("1", "b") if size else ""
            assert not pattern.search(text) or required_literal(pattern) in text


def test_the_census_counts_all_samples(samples: tuple[barograph.View, list[Sample]]):
    """Stored and submitted samples, with the ranges of steps and rewards."""
    view, everything = samples
    census = view.sample_census()
    rewards = [reward_of(s) for s in everything if reward_of(s) == reward_of(s)]
    assert (census.kept, census.seen, census.steps) == (300, 300, (0, 19))
    assert census.rewards == (min(rewards), max(rewards))
    assert view.find_samples(Query(grep="alpha"), 1).matched == len(view.samples(grep="alpha"))


@pytest.mark.parametrize(("wanted", "other"), [("kız", "KIZ"), ("ſ", "S"), ("\N{KELVIN SIGN}", "k")])
def test_letters_whose_other_case_is_ascii_are_found(wanted: str, other: str):
    """The upper case of a dotless i is I, that of a long s is S; the lower case of the kelvin sign is k."""
    run = barograph.init()
    for completion in (wanted, other, "nobody"):
        run.sample("", completion)
    run.commit(0)
    assert {sample.completion for sample in barograph.open(run.path).samples(grep=wanted)} == {wanted, other}


def test_the_index_follows_a_run_that_grows():
    """New samples are found by the same view after a refresh, and none twice."""
    run = barograph.init()
    view = barograph.open(run.path)
    assert view.samples() == []
    assert not (run.path / "index").exists()
    for step in range(3):
        run.sample("p", f"c{step}")
        run.commit(step)
        view.refresh()
        assert [sample.completion for sample in view.samples()] == [f"c{n}" for n in range(step + 1)]


def test_a_newer_attempt_supersedes_the_samples_of_the_older():
    """From its first step on, per role and rank; other writers are not affected."""

    def attempt(first: int, **settings: object) -> barograph.Run:
        run = barograph.init(id="again", **settings)  # type: ignore[arg-type]
        for step in range(first, 5):
            run.sample("p", f"{run.writer} {run.writer.attempt} {step}")
            run.log({"x": 1.0})
            run.commit(step)
        run.finish()
        return run

    attempt(0)
    attempt(0, role="explorer", rank=1)
    view = barograph.open(attempt(3).path)
    assert [sample.completion for sample in view.samples(grep="trainer")] == [
        "trainer/0 1 0", "trainer/0 1 1", "trainer/0 1 2", "trainer/0 2 3", "trainer/0 2 4",
    ]  # fmt: skip
    assert len(view.samples(grep="explorer")) == 5
    assert (view.sample_census().kept, view.sample_census().seen) == (10, 10)


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b"no database at all"),
        lambda path: path.write_bytes(path.read_bytes()[: 3 * 16384]),
        lambda path: path.write_bytes(b""),
        lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 99").connection.close(),
        lambda path: sqlite3.connect(path).execute("DROP TABLE blocks").connection.close(),
    ],
    ids=["deleted", "foreign", "torn", "empty", "another version", "a table gone"],
)
def test_a_missing_or_damaged_index_is_made_again(harm: Callable[[Path], object]):
    """All of its contents are in the journal."""
    view = barograph.open(make(100).path)
    before = view.samples()
    path = view.path / "index" / "samples.sqlite"
    harm(path)
    assert repr(view.samples()) == repr(before)
    assert path.exists()


def test_an_index_of_another_segment_is_made_again():
    """A run that was removed and recorded again under the same id is not confused with the old one."""
    for words in ("old", "new"):
        run = barograph.init(id="same")
        run.sample("p", words)
        run.finish()
        assert [sample.completion for sample in barograph.open(run.path).samples()] == [words]
        (run.path / "trainer.0.1.0.seg").unlink()


def test_the_index_of_a_read_only_run_is_temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A folder that is not writable can still be searched."""
    run = make(50)
    (run.path / "index").write_text("in the way")
    monkeypatch.setattr(index.tempfile, "tempdir", str(tmp_path))
    assert len(barograph.open(run.path).samples()) == 50
    [folder] = tmp_path.glob("barograph-*")
    assert oct(folder.stat().st_mode)[-3:] == "700"
    monkeypatch.setattr(index.tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(barograph.JournalError, match="cannot make an index of samples"):
        barograph.open(run.path).samples()


def _search(path: Path, answers: "multiprocessing.Queue[int]") -> None:
    answers.put(len(barograph.open(path).samples(grep="alpha")))


def test_processes_can_make_the_index_at_once():
    """Each gets the complete result, with every sample once."""
    run = make(400)
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[int] = context.Queue()
    processes = [context.Process(target=_search, args=(run.path, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    found = {answers.get(timeout=60) for _ in processes}
    for process in processes:
        process.join()
    view = barograph.open(run.path)
    assert found == {len(view.samples(grep="alpha"))}
    assert view.sample_census().kept == 400


def test_damaged_frames_do_not_affect_others(tmp_path: Path):
    """The rest is found, and the damage is reported."""
    writer = JournalWriter(tmp_path, Writer("trainer", 0, 1))
    writer.samples(1, 1, [b'{"completion":"before"}'])
    head = frames.sample_payload(2, 0.0, 1, [])[: frames.SAMPLE_HEAD.size]
    writer.segment.append(frames.frame(head + b"no zlib"))
    writer.samples(3, 2, [b'{"completion":"beside"}', b"17"])
    writer.samples(4, 1, [b'{"completion":"flipped"}'])
    writer.samples(5, 1, [b'{"completion":"after"}'])
    writer.close()
    path = tmp_path / "trainer.0.1.0.seg"
    data = bytearray(path.read_bytes())
    data[data.rfind(frames.FRAME_MAGIC) - 3] ^= 1
    path.write_bytes(data)
    view = barograph.open(tmp_path)
    assert [sample.completion for sample in view.samples()] == ["before", "beside", "after"]
    assert len(view.damage()) == 1
    assert len(view.sample_census().damage) == 2


def test_an_archive_leaves_the_index_out(capsys: pytest.CaptureFixture[str]):
    """It is made again after a restore."""
    from barograph.journal.archive import pack, unpack

    run = make(30)
    before = barograph.open(run.path).samples()
    assert os.listdir(run.path / "index") == ["samples.sqlite"]
    folder = unpack(pack(run.path))
    assert not (folder / "index").exists()
    assert repr(barograph.open(folder).samples()) == repr(before)
