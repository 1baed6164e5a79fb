"""Expressions of filters and questions, as people write them."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.base.errors import ExpressionError
from barograph.base.expressions import MAX_DEPTH, Call, ComparisonTerm, Word, comparisons, evaluate, parse

FUNCTIONS = ("at", "last", "max")


def value_of(expression: str, facts: dict[str, Any]) -> bool:
    """Return whether an expression holds, where ``=`` compares texts and ``<`` numbers."""

    def holds(one: ComparisonTerm) -> bool:
        assert isinstance(one.left, Word)
        assert isinstance(one.right, Word)
        fact, number = facts[one.left.text], one.right.number
        return fact == one.right.text if one.order == "=" else number is not None and fact < number

    return bool(evaluate(parse(expression), holds))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = x", True),
        ("a = y", False),
        ("not a = y", True),
        ("not not a = y", False),
        ("a = y or b < 2", True),
        ("a = y || b < 2", True),
        ("a = y and b < 2 or a = x", True),
        ("a = y and (b < 2 or a = x)", False),
        ("(a = x) && ((b<2))", True),
        ("a = x, b < 1", False),
        ("a = x AND NOT b < 1", True),
    ],
)
def test_and_binds_closer_than_or(text: str, expected: bool):
    """Parentheses and not change what is joined; commas and the signs of C are other spellings."""
    assert value_of(text, {"a": "x", "b": 1.5}) is expected


@pytest.mark.parametrize(
    "name", ["val/score", "actor.lr", "grad-norm", "val/acc@32", "a+b", "步数", "_x", "layer[0]/w", "and/or", "x:y"]
)
def test_names_need_no_quotes(name: str):
    """Slashes, dots, dashes and most signs are parts of names, also in calls."""
    assert parse(f"{name}=1") == ComparisonTerm(Word(name), "=", Word("1"))
    assert parse(f"last({name})>=1", FUNCTIONS) == ComparisonTerm(Call("last", (Word(name),)), ">=", Word("1"))


def test_values_are_taken_as_they_are_written():
    """A value may have spaces, signs and parentheses; quotes make a text of it."""
    found = list(
        comparisons(parse('a = number theory and b = f(x, 1) and c = "1 and \\"2\\"" and d = x=3 and e != "7"'))
    )
    assert [one.right for one in found] == [
        Word("number theory"),
        Word("f(x, 1)"),
        Word('1 and "2"', is_quoted=True),
        Word("x=3"),
        Word("7", is_quoted=True),
    ]


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("a = 'number theory'", Word("number theory", is_quoted=True)),
        ("a='it\\'s \"2\"'", Word('it\'s "2"', is_quoted=True)),
        ("a = 'it's'", Word("it's", is_quoted=True)),
        ("a = ''", Word("", is_quoted=True)),
        ("a = it's", Word("it's")),
        ("a = 'tis", Word("'tis")),
        ("a = rock 'n' roll", Word("rock 'n' roll")),
    ],
)
def test_single_quotes_are_quotes_around_a_name_or_a_value(text: str, right: Word):
    """An apostrophe within a word is none; a value that only begins with one is taken as it is written."""
    assert parse(text) == ComparisonTerm(Word("a"), "=", right)
    named = parse(f"'the score' > 1 and {text}")
    assert [one.right for one in comparisons(named)] == [Word("1"), right]
    assert next(comparisons(named)).left == Word("the score", is_quoted=True)


def test_calls_have_arguments():
    """On either side, with names that are quoted or not."""
    found = parse('AT("a, (b)", 10) > last(val/score)', FUNCTIONS)
    left = Call("at", (Word("a, (b)", is_quoted=True), Word("10")))
    assert found == ComparisonTerm(left, ">", Call("last", (Word("val/score"),)))
    assert str(found) == 'at("a, (b)", 10) > last(val/score)'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected NAME < VALUE; got nothing"),
        ("a", "expected NAME < VALUE; got 'a'"),
        ("a <", "expected NAME < VALUE; got 'a <'"),
        ("a = ", "expected NAME < VALUE; got 'a ='"),
        ("a = 1 and b", "expected NAME < VALUE; got 'b'"),
        ("a = 1 and", "expected NAME < VALUE; got nothing"),
        ("(a = 1", "expected ')'; got nothing"),
        ("a = 1) and b = 2", "expected 'and' or 'or'; got ') and b = 2'"),
        ("a b = 1", "a name that has spaces or parentheses in quotes; got 'a b = 1'"),
        ("last() > 1", "expected a name or a number between the parentheses; got 'last() > 1'"),
        ("last(a, ) > 1", "expected a name or a number between the parentheses; got"),
        ("lats(a) > 1", "unknown function 'lats': expected at, last, max; got 'lats(a) > 1'"),
        ("(" * 99 + "a = 1" + ")" * 99, f"more than {MAX_DEPTH} parentheses within each other"),
    ],
)
def test_an_error_says_what_is_expected(text: str, message: str):
    """With the text from where it is not."""
    with pytest.raises(ExpressionError) as problem:
        parse(text, FUNCTIONS)
    assert message in str(problem.value)


@given(st.text(st.sampled_from("ab1 ()'\"=<!~,&|\\not r"), max_size=40))
def test_any_text_is_an_expression_or_an_expression_error(text: str):
    """Nothing else is raised, whatever is typed."""
    with suppress(ExpressionError):
        assert list(comparisons(parse(text, FUNCTIONS)))
