"""The page docs/doctor.md, written from the rules and from how often they are right: ``python -m barograph.doctor``
writes it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from barograph.diagnosis.rates import ORIGINS, measured, rate_of
from barograph.diagnosis.rule import Rule
from barograph.diagnosis.rules import RULES, critic, learning_signal, off_policy, policy, rewards, schedule, system
from barograph.diagnosis.signals import FAMILIES, SIGNALS

HEAD = """\
# The doctor

`barograph doctor RUN` says what is wrong with a run, since which step, and what to look at next. It reads recorded runs
and the logs of other programs ([Importing](importing.md)), while they train and afterwards.

```
barograph doctor @last                       # a run
barograph doctor outputs/trainer_state.json  # a log of another program
barograph doctor runs/                       # a line per run
barograph doctor runs/ --fleet --by actor.lr # the findings of all runs by rule, see below
barograph doctor @last --json                # as data; --lang zh for Chinese
barograph doctor --explain no_signal         # what a rule sees
```

A report has the verdict, the findings with the most important one first, what is over, what could not be looked for
and why (in short; `--all` gives the reason of each rule), and what was looked for and not found. A finding has its
curve with a bar at the onset, how sure it is, what speaks against it, what it explains, and what to do next.

In Python, `barograph.doctor(barograph.open("@last"))` returns the same as data: `verdict`, `findings` (each with
`rule`, `severity`, `onset`, `text`, `confidence`, `against`, `advice`, and the findings that it `explains`), `past`,
`fine` and `unmeasured`.

| verdict | meaning | exit code |
|---|---|---|
| healthy | the rules could look, and nothing is above info | 0 |
| watch | there is a warning | 1 |
| sick | there is a critical finding | 1 |
| cannot tell | there are too few rows, or the log has too little to judge by | 2 |

The exit code is for scripts and CI: 1 if there is a finding of the severity of `--fail-on` or worse (`info`, `warning`,
which is the default, or `critical`), also while the verdict is not *sick*; else 2 if no run could be judged, or none
could be read; else 0. Of several runs, one with a finding is enough for 1, and one that is judged is enough for 0.

A run is called healthy only if its trouble could have been seen: with a reward of at least 20 rows, two more signals
that move, and a reward that rises or a signal that shows whether there is something to learn from (the gradient norm,
or how rewards differ). A run that lacks the signal of its trouble can still be called healthy where these look well:
the report then says that this rule could not look, and how many could.

## Many runs

```
$ barograph doctor runs/ --fleet --by actor.lr
actor.lr = 1e-06  412 runs: 391 healthy, 21 watch
  RULE              WHAT                 RUNS  SHARE  CRITICAL  CAUSES  OVER  ONSET  FIRST  LAST
  truncation        Answers are cut off    21   5.1%         0      21     3    140     88   410
…
```

For each rule it says in how many runs it found something from warning on, and their share of the runs that could be
read; in how many it is critical; in how many it is a cause, which no other finding explains; and in how many it is
over. ONSET is the median of the steps since when, over runs, FIRST and LAST are the lowest and the highest. `--by`
makes a group of each value of `project`, `group`, `status`, or any key of the config. `--json` has all groups, and
the paths of the runs with the first and the last onset.

Verdicts that are known are not made again: those of the page, of `barograph ls --health` and of earlier calls
(`.page/health.index` in the directory). Configs are kept likewise (`.page/configs.index`). A run that cannot be read is
named at the end, and the others count. After Ctrl-C the next call goes on with what is left.

## How it judges

- A rule looks at signals by their meaning, so that it works for every framework. A name whose meaning is ambiguous is
  not used: `barograph names RUN` lists it, and `--source` decides it.
- A run is compared with its own start. Absolute limits are used only where the scale is known, such as shares.
- A rule looks at each row with what was known then, and counts after several rows in a row. It says the same while the
  run goes on as afterwards.
- A finding that another one explains is listed under it: answers that are cut off make rewards equal, which leaves no
  gradient. This is one finding.
- What cannot be judged is said, with the reason. A sensor that never moves is not a collapsed policy.
- The confidence is high where the log states the fact, or after 30 rows with nothing against it; low below 10 rows;
  else medium. A reward that still rises, and rows without the trouble since, speak against a finding.
- A finding is closed after 10 rows without it, and listed as over.

"""

MEASURED = """\
## How often it is right

`scripts/bench doctor judge` compares the doctor with {real} real runs, which people have judged by reading the curves,
and with {demo} runs of the demo. A rule is right if it fires where it is expected, and gives no warning on a healthy
run, neither at its end nor at 10, 25 and 50 % of it.

"""

LEFT_OUT = """
The rules were written with these runs in sight, so that the figures say little about other runs. The following ones
say more. Each rule has a dial: all numbers that it compares with, and the rows after which it counts, times 0.5, 0.7,
1, 1.4 or 2. For each framework the dial is set on the runs of all other frameworks, by the fewest mistakes of the rule,
and the runs of this framework are judged with it. Where several settings are equally good the middle one is taken; *at
worst* is the strictest for what is found and the loosest for alarms. What the rules look at, and the windows, are not
chosen anew, and where no other framework has the trouble the middle setting is the published one.

"""

RULES_TITLE = """
## Rules

The source *corpus* is the collection of real runs above. `barograph doctor --explain RULE` prints the same.

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
    rules = "\n".join(line for title, module in PARTS.items() for line in _part(title, module.__name__))
    return HEAD + _measured(measured()) + RULES_TITLE + rules


def _measured(known: Mapping[str, Any]) -> str:
    totals = {origin: sum(known["runs"][origin].values()) for origin in ORIGINS}
    overall = "\n".join([*_overall(known), *_beside_rlwatch(known)])
    return MEASURED.format(**totals) + overall + "\n" + LEFT_OUT + "\n".join(_left_out(known)) + "\n"


def _overall(known: Mapping[str, Any]) -> Iterator[str]:
    yield "| | real | demo |\n|---|---|---|"
    yield _row("unhealthy runs, found with their cause", known, "unhealthy", "found")
    for share in ("10", "25", "50", "100"):
        when = "at their end" if share == "100" else f"at {share} %"
        yield _row(f"healthy runs with a warning {when}", known, "healthy", f"at_{share}")
    yield _row(
        "mixed and flat runs, with what should and nothing that must not fire", known, "between", "between_right"
    )


def _row(title: str, known: Mapping[str, Any], verdict: str, figure: str) -> str:
    cells = []
    for origin in ORIGINS:
        runs, figures = known["runs"][origin], known["overall"][origin]
        others = sum(runs.values()) - runs.get("healthy", 0) - runs.get("unhealthy", 0)
        total = others if verdict == "between" else runs.get(verdict, 0)
        cells.append(f"{figures[figure]} of {total}" if total else "–")
    return f"| {title} | {' | '.join(cells)} |"


def _beside_rlwatch(known: Mapping[str, Any]) -> Iterator[str]:
    peer = known["rlwatch"]
    yield f"\nrlwatch {peer['version']}, given the same signals by its own names, with its defaults:\n"
    yield "| | real | demo |\n|---|---|---|"
    for key, title, verdict in (
        ("unhealthy_warned", "unhealthy runs with any alert", "unhealthy"),
        ("unhealthy_critical", "unhealthy runs with a critical alert", "unhealthy"),
        ("healthy_warned", "healthy runs with an alert", "healthy"),
        ("healthy_critical", "healthy runs with a critical alert", "healthy"),
    ):
        cells = (f"{peer[origin][key]} of {known['runs'][origin].get(verdict, 0)}" for origin in ORIGINS)
        yield f"| {title} | {' | '.join(cells)} |"


def _left_out(known: Mapping[str, Any]) -> Iterator[str]:
    yield "| left out | unhealthy runs found | at worst | healthy runs with a warning | at worst | others right |"
    yield "|---|---|---|---|---|---|"
    for one in known["left_out"]:
        cells = (
            _of(one["found"], one["unhealthy"]),
            _of(one["found_at_worst"], one["unhealthy"]),
            _of(one["alarms"], one["healthy"]),
            _of(one["alarms_at_worst"], one["healthy"]),
            _of(one["others_right"], one["others"]),
        )
        yield f"| {one['framework']} | {' | '.join(cells)} |"


def _of(count: int, total: int) -> str:
    return f"{count} of {total}" if total else "–"


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
    yield f"Measured: {rate_of(rule.id).en}.\n"
    yield f"Sources: {'; '.join(words.sources)}.\n"


def _metrics(rule: Rule) -> Iterator[str]:
    """Yield the metrics that a rule can use, by their ids."""
    known = {**SIGNALS, **FAMILIES}
    return (f"`{id}`" for id in dict.fromkeys(id for key in rule.needs for id in known[key]))


def main(arguments: list[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m barograph.diagnosis", description=__doc__)
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="folder of the pages (default: docs)")
    print(write(parser.parse_args(arguments).docs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
