"""``barograph show`` of runs with very many families, ranks, warnings and open phases."""

import pytest

import barograph
from barograph.apps.cli import main
from barograph.apps.terminal.show import MAX_FAMILIES, MAX_RANKS, MAX_WARNINGS
from barograph.base.model import Status
from barograph.journal.format import fields
from barograph.journal.read.attempt import Attempt

FAMILIES = MAX_FAMILIES + 20


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return what ``barograph show`` prints, as one line."""
    capsys.readouterr()
    assert main(["show", *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def write_ranks(count: int, restarted: int = 0) -> None:
    """Record a run of so many ranks, of which every third crashed."""
    for rank in (*range(count), *range(restarted)):
        run = barograph.init(id="ranks", rank=rank)
        run.log({"loss": 1.0}, step=0)
        run.finish(Status("crashed" if rank % 3 == 2 else "finished"))


def test_further_families_are_counted(capsys: pytest.CaptureFixture[str]):
    """--all shows their values, and so does a pattern."""
    run = barograph.init(id="families")
    run.log({f"family{n}/value": float(n) for n in range(FAMILIES)}, step=0)
    run.finish()
    text = shown(capsys, "families")
    assert f"{FAMILIES} metrics: family0 1, family1 1," in text
    assert "and 20 more families" in text
    assert "barograph show families --metrics 'family0/*' shows their values, --all everything" in text
    assert shown(capsys, "families", "--all").count("STEP value") == FAMILIES
    assert f"family{FAMILIES - 1}" in shown(capsys, "families", "--metrics", f"family{FAMILIES - 1}/*")


def test_names_are_looked_at_once_for_all_series(monkeypatch: pytest.MonkeyPatch):
    """Not once more for every key set of every series."""
    run = barograph.init(id="sets")
    for n in range(30):
        run.log({f"family{n}/value": float(n)}, step=0)
    run.finish()
    view = barograph.open("sets")
    [attempt] = view._attempts.values()
    looked = 0

    class Schemas(dict[int, tuple[str, ...]]):
        def get(self, *arguments: object) -> object:  # type: ignore[override]
            nonlocal looked
            looked += 1
            return super().get(*arguments)  # type: ignore[call-overload]

    monkeypatch.setattr(attempt, "_schemas", Schemas(attempt._schemas))
    assert isinstance(attempt, Attempt)
    assert [view.series(f"family{n}/value").last for n in range(30)] == list(range(30))
    assert looked == 30


def test_no_table_is_looked_at_for_status_steps_and_times():
    """A new row changes the answers all the same."""
    run = barograph.init(id="times")
    for n in range(20):
        run.log({f"family{n}/value": float(n)}, step=n)
    view = barograph.open("times")
    [attempt] = view._attempts.values()
    before = attempt.steps.row_span()
    assert (view.status.word, view.steps, attempt.steps.last_step()) == ("running", (0, 19), 19)
    run.log({"late": 1.0}, step=30)
    view.refresh()
    assert attempt.steps.last_step() == 30
    assert attempt.steps.row_span() > before
    assert not any(segment.resolved for segment in attempt._segments.values())
    run.finish()


def test_a_copy_of_a_schema_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch):
    """Writers repeat schemas, so that a damaged one costs little."""
    run = barograph.init(id="copies")
    for step in range(40):
        run.log({"loss": 1.0}, step=step)
    run.finish()
    decoded: list[bytes] = []
    decode = fields.decode_schema
    monkeypatch.setattr(fields, "decode_schema", lambda payload: decoded.append(payload) or decode(payload))
    assert barograph.open("copies").series("loss").last == 1.0
    assert len(decoded) == 1


def test_a_name_whose_schema_comes_later_is_found():
    """The names of a row may be written after it, by another process."""
    first = barograph.init(id="late")
    first.log({"loss": 1.0}, step=0)
    view = barograph.open("late")
    assert view.names() == ["loss"]
    first.log({"loss": 2.0, "kl": 3.0}, step=1)
    view.refresh()
    assert view.names() == ["loss", "kl"]
    assert view.series("kl").last == 3.0
    first.finish()


def test_many_ranks_are_summarised(capsys: pytest.CaptureFixture[str]):
    """The number of each status, and which ranks have the rarer ones."""
    write_ranks(12)
    assert "writers 12 ranks of trainer 8 finished, 4 crashed (2, 5, 8 and 1 more)" in shown(capsys, "ranks")


def test_few_ranks_are_listed(capsys: pytest.CaptureFixture[str]):
    """With the attempt of one that was started again."""
    write_ranks(MAX_RANKS, restarted=1)
    assert "trainer/0 (attempt 2) finished, trainer/1 finished, trainer/2 crashed" in shown(capsys, "ranks")


def test_restarted_ranks_of_many_are_counted(capsys: pytest.CaptureFixture[str]):
    """Each rank counts once, with its newest attempt."""
    write_ranks(9, restarted=2)
    assert "9 ranks of trainer 6 finished, 3 crashed (2, 5, 8), 2 restarted" in shown(capsys, "ranks")


def test_further_warnings_are_counted(capsys: pytest.CaptureFixture[str]):
    """--all shows them."""
    run = barograph.init(id="warned")
    run.log({"loss": 1.0, **{f"bad{n:03d}": None for n in range(MAX_WARNINGS + 5)}}, step=0)
    run.finish()
    text = shown(capsys, "warned")
    assert text.count("value is None") == MAX_WARNINGS
    assert "… 5 more: barograph show warned --all" in text
    assert shown(capsys, "warned", "--all").count("value is None") == MAX_WARNINGS + 5


def test_further_open_phases_are_counted(capsys: pytest.CaptureFixture[str]):
    """The first ones are named."""
    for rank in range(MAX_RANKS + 2):
        run = barograph.init(id="phases", rank=rank)
        run.phase("wait").__enter__()
    text = shown(capsys, "phases")
    assert text.count("wait of step 0") == MAX_RANKS
    assert "and 2 more" in text
