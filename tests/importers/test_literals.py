"""Dicts as programs print them, without running what is in them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barograph.importers.reading import values
from barograph.importers.reading.values import literal_of, parse_dict


def test_what_programs_print_is_read():
    """Quotes of both kinds, numbers of NumPy and PyTorch, texts, nested values."""
    text = """{'a': 1, 'b': -1.5e-07, "c's": np.float64(-2.5), 'd': tensor(0.5, device='cuda:0'), 'e': None,
        'f': [1, (2, 3)], 'g': {'h': True}, 'i': 'nan', 'j': np.True_}"""
    assert parse_dict(text) is None  # np.True_ is no call
    assert parse_dict(text.replace(", 'j': np.True_", "")) == {
        "a": 1, "b": -1.5e-07, "c's": -2.5, "d": 0.5, "e": None, "f": [1, (2, 3)], "g": {"h": True}, "i": "nan",
    }  # fmt: skip


def test_bare_nan_and_inf_are_numbers():
    """Also where they are part of a name, which stays."""
    found = parse_dict("{'a/nan': nan, 'inf': -inf, 'b': inf, 'an inf': 1}")
    assert found is not None
    assert math.isnan(found.pop("a/nan"))
    assert found == {"inf": -math.inf, "b": math.inf, "an inf": 1}


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "}", "{'a'", "[1]", "1", "{'a': print(1)}", "{'a': __import__('os')}", "{'a': 1 + 1}", "{'a': b}",
        "{'a': [" + "[" * 5000 + "]" * 5000 + "]}", "{'a': " + "-" * 100_000 + "1}", "{'a': " + "1+" * 100_000 + "1}",
        "{'a': " + "(" * 150 + "1" + ")" * 150 + "}  {", "{[]: 1}", "{**a}", "{'a': \ud800}", "{'a': -'b'}",
        "{'a': " + "9" * 5000 + "}", "{'a': '" + "b" * 600_000 + "\\''}",
    ],
)  # fmt: skip
def test_what_is_no_literal_is_none(text: str):
    """Nothing is called or computed, and no size or depth raises."""
    assert not parse_dict(text)


def test_the_quick_way_and_the_careful_one_agree():
    """A dict is the same whichever way reads it."""

    @given(
        st.dictionaries(
            st.text(max_size=8), st.floats() | st.integers() | st.text(max_size=8) | st.none() | st.booleans()
        )
    )
    def check(found: dict[str, object]) -> None:
        text = repr(found)
        careful = literal_of(text)
        assert repr(parse_dict(text)) == repr(careful)
        assert repr(careful) == text

    check()


def test_the_quick_way_is_taken(monkeypatch: pytest.MonkeyPatch):
    """A plain dict of numbers needs no syntax tree."""
    monkeypatch.setattr(values, "literal_of", None)
    assert parse_dict("{'loss': -0.0, 'reward': '1.2', 'kl': nan}") is not None
