"""Conditions as people write them, on runs and on samples."""

import pytest

from barograph.base.expressions import parse_conditions

VALUES = {
    "status": "running", "actor.lr": 1e-5, "tag": ["sweep", "big"], "note": "Look here", "on": True, "steps": 12,
    "word": "12", "empty": None, "lost": float("nan"),
}  # fmt: skip


def holds(text: str) -> bool:
    return bool(parse_conditions(text).evaluate(lambda condition: condition.holds(VALUES.get(condition.name))))


@pytest.mark.parametrize(
    "text",
    [
        "", "status = running and actor.lr > 1e-6 and tag = sweep", "status == running", "tag = big", "tag != small",
        "note ~ look", "note !~ else", 'note = "Look here"', "on = true", "steps = 12.0",
        "steps >= 12, status != killed",
        "word > 11", "empty = none", "status != none", "missing = none", "lost != none", "steps = 12 && on = yes",
        "status = killed or steps = 12", "not (status = killed or steps < 12)",
    ],
)  # fmt: skip
def test_what_holds(text: str):
    """Numbers compare as numbers, a list by any of its elements, and an absent value only with none."""
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "status = killed", "actor.lr < 1e-6", "tag = swee", "tag != big", "note ~ nothing", "note !~ here", "on = 0",
        'steps = "12.0"', "empty > 0", "empty != 3", "missing = 3", "lost > 0", "lost < 0", "status > 3",
        "status = none",
    ],
)  # fmt: skip
def test_what_does_not_hold(text: str):
    """An absent value and NaN fulfil no comparison."""
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("status", "expected NAME < VALUE; got 'status'; an example is 'status = running and actor.lr > 1e-6'"),
        ("a = 1 and", None),
        ("a = 1 and b", "got 'b'"),
        ("a >", "got 'a >'"),
        ("a < high", "< compares numbers; got 'high'"),
    ],
)  # fmt: skip
def test_a_bad_expression_is_reported_with_what_is_expected(text: str, message: str | None):
    """And with the part that was not understood; a last ``and`` does no harm."""
    if message is None:
        assert len(parse_conditions(text).parts()) == 1
        return
    with pytest.raises(ValueError, match="where: ") as raised:
        parse_conditions(text)
    assert message in str(raised.value)
