"""Notes of reports: Markdown with blocks that place charts and tables."""

import pytest

from barograph.answers.reports.notes import OptionError, parse_notes, range_option, split_list, title_of

NOTES = """\
# Lower KL ##

Words.

```chart
reward, "odd, name"
val:acc
title: With: a colon
runs: kl-*, "a, b"
```

````markdown
# not a title
```chart
quoted
```
````
~~~runs
a
by: seeds
"""


def test_blocks_are_markdown_charts_and_runs():
    """Fenced blocks of other languages are part of the Markdown, and one that is not closed ends with the text."""
    blocks = parse_notes(NOTES)
    assert [(block.kind, block.line) for block in blocks] == [("note", 1), ("chart", 5), ("note", 11), ("runs", 18)]
    chart, code, runs = blocks[1:]
    assert chart.items == ("reward", "odd, name", "val:acc")
    assert chart.options == {"title": "With: a colon", "runs": 'kl-*, "a, b"'}
    assert split_list(chart.options["runs"]) == ("kl-*", "a, b")
    assert "quoted" in code.source
    assert (runs.items, runs.options) == (("a",), {"by": "seeds"})


def test_sources_of_blocks_are_the_notes_again():
    """What the page joins after a change is read as the same blocks."""
    blocks = parse_notes(NOTES)
    again = parse_notes("\n\n".join(block.source for block in blocks[:-1]))
    assert [block.source for block in again] == [block.source for block in blocks[:-1]]


def test_the_title_is_the_first_heading():
    """A line of code that begins with # is no heading."""
    assert title_of(parse_notes(NOTES)) == "Lower KL"
    assert title_of(parse_notes("```python\n# a comment\n```\n\ntext")) is None
    assert parse_notes("\n\n  \n") == []


def test_ranges_may_lack_an_end():
    """Both ends, the lower or the upper one; anything else is told with what is expected."""
    assert [range_option("y", text) for text in ("0 to 1", "-1e3 to", "to 5")] == [(0, 1), (-1000, None), (None, 5)]
    for text in ("", "to", "1", "a to b", "0-1"):
        with pytest.raises(OptionError, match="y: expected 0 to 1; got"):
            range_option("y", text)
