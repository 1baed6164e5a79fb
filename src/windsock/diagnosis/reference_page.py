"""The page docs/doctor.md, written from the rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from windsock.diagnosis.case import FAMILIES, SIGNALS
from windsock.diagnosis.rule import Rule
from windsock.diagnosis.rules import RULES, critic, learning_signal, off_policy, policy, rewards, schedule, system

HEAD = """\
# The doctor

`windsock doctor RUN` says what is wrong with a run, since which step, and what to look at next. It reads recorded runs
and the logs of other programs ([Importing](importing.md)), while they train and afterwards.

```
windsock doctor @last                       # a run
windsock doctor outputs/trainer_state.json  # a log of another program
windsock doctor runs/                       # a line per run
windsock doctor @last --json                # as data; --lang zh for Chinese
windsock doctor --explain no_signal         # what a rule sees
```

In Python, `windsock.doctor(windsock.open("@last"))` returns the same as data: `verdict`, `findings` (each with `rule`,
`severity`, `onset`, `text`, `advice`, and the findings that it `explains`), `past`, `fine` and `unmeasured`.

| verdict | meaning | exit code |
|---|---|---|
| healthy | the rules looked, and nothing is above info | 0 |
| watch | there is a warning | 1 |
| sick | there is a critical finding | 1 |
| cannot tell | there are too few rows, or the log has too little to judge by | 2 |

`--fail-on critical` gives exit code 1 for critical findings only.

## How it judges

- A rule looks at signals by their meaning, so that it works for every framework. A name whose meaning is ambiguous is
  not used: `windsock names RUN` lists it, and `--source` decides it.
- A run is compared with its own start. Absolute limits are used only where the scale is known, such as shares.
- A rule looks at each row with what was known then, and counts after several rows in a row. It says the same while the
  run goes on as afterwards.
- A finding that another one explains is listed under it: answers that are cut off make rewards equal, which leaves no
  gradient. This is one finding.
- What cannot be judged is said, with the reason. A sensor that never moves is not a collapsed policy.
- A finding is closed after 10 rows without it, and listed as over.

## Rules

"""
PARTS = {
    "The learning signal": learning_signal,
    "The policy": policy,
    "The reward": rewards,
    "The critic": critic,
    "Other policies": off_policy,
    "The learning rate": schedule,
    "The machine": system,
}


def write(docs: Path) -> Path:
    """Write the page; return its path."""
    path = docs / "doctor.md"
    path.write_text(page(), encoding="utf-8")
    return path


def page() -> str:
    """Return the page."""
    return HEAD + "\n".join(line for title, module in PARTS.items() for line in _part(title, module.__name__))


def _part(title: str, module: str) -> Iterator[str]:
    yield f"### {title}\n"
    for rule in RULES.values():
        if rule.judge.__module__ == module:
            yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    words = rule.words
    yield f"#### `{rule.id}`: {words.title.en}\n"
    yield f"{words.sees.en}\n"
    for advice in words.advice:
        yield f"- {advice.en}"
    if words.advice:
        yield ""
    if rule.needs:
        yield f"Needs one of: {', '.join(_metrics(rule))}.\n"
    if rule.explains:
        yield f"Explains: {', '.join(f'`{other}`' for other in rule.explains)}.\n"
    yield f"Sources: {'; '.join(words.sources)}.\n"


def _metrics(rule: Rule) -> Iterator[str]:
    """Yield the metrics that a rule can use, by their ids."""
    known = {**SIGNALS, **FAMILIES}
    return (f"`{id}`" for id in dict.fromkeys(id for key in rule.needs for id in known[key]))
