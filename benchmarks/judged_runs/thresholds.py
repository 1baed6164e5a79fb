"""Rules with stricter and looser thresholds, and the choice of thresholds without the runs of a framework.

A rule compares values with numbers. ``scaled_rules`` returns rules in which every such number is scaled by one factor,
so that the rule fires later (above 1) or earlier (below 1), and which count after as many times more rows. So a rule
has one dial, and no rule needs to know of it. What a rule looks at, and over how many rows, stays as it is.
"""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from barograph.diagnosis.rule import Rule
from barograph.diagnosis.rules import RULES
from judged_runs.outcomes import Answers, rule_outcome, run_outcome
from judged_runs.runs import HEALTHY, UNHEALTHY, JudgedRun

FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)
UP, DOWN = "__at_least", "__at_most"
Choice = Callable[[Sequence[float]], float]


def _middle(factors: Sequence[float]) -> float:
    return factors[len(factors) // 2]


class Scaling(ast.NodeTransformer):
    """Scales the right side of comparisons. Tests of control flow, and of numbers of rows, stay as they are."""

    def visit_If(self, node: ast.If) -> ast.AST:
        """Leave the test as it is."""
        node.body = [self.visit(one) for one in node.body]
        node.orelse = [self.visit(one) for one in node.orelse]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Leave the test as it is."""
        node.body, node.orelse = self.visit(node.body), self.visit(node.orelse)
        return node

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """Leave it as it is."""
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Replace ``value > limit`` by ``value > at_least(limit)``, and ``<`` likewise."""
        self.generic_visit(node)
        if len(node.ops) != 1 or _is_count(node.left):
            return node
        name = UP if isinstance(node.ops[0], ast.Gt | ast.GtE) else DOWN
        if isinstance(node.ops[0], ast.Gt | ast.GtE | ast.Lt | ast.LtE):
            limit = ast.Call(ast.Name(name, ast.Load()), [node.comparators[0]], [])
            return ast.copy_location(ast.Compare(node.left, node.ops, [limit]), node)
        return node


def _is_count(node: ast.expr) -> bool:
    """Return whether an expression counts rows, as in ``len(track) >= 20``."""
    names = {one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)}
    return "len" in names


def scaled_rules(factor: float) -> dict[str, Rule]:
    """Return the rules with their thresholds scaled."""
    known = dict(RULES)
    try:
        for name in dict.fromkeys(rule.judge.__module__ for rule in known.values()):
            _run_scaled(sys.modules[name], factor)
        return {id: replace(RULES[id], persist=max(1, math.ceil(rule.persist * factor))) for id, rule in known.items()}
    finally:
        RULES.clear()
        RULES.update(known)


def _run_scaled(module: ModuleType, factor: float) -> None:
    tree = ast.fix_missing_locations(Scaling().visit(ast.parse(inspect.getsource(module))))
    scope: dict[str, Any] = {"__name__": module.__name__, UP: _scale(factor), DOWN: _scale(1 / factor)}
    exec(compile(tree, f"{module.__file__} x {factor:g}", "exec"), scope)


def _scale(factor: float) -> Any:
    """Return a function that moves a limit: away from 0 above 1, whatever its sign is."""

    def scale(limit: Any) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return limit * np.where(np.asarray(limit) >= 0, factor, 1 / factor)

    return scale


@dataclass(frozen=True)
class LeftOut:
    """The runs of a framework, judged with thresholds that the runs of the others choose.

    Often several factors are equally good on the other runs. Then the middle one is taken; at worst, it is the
    strictest for what should be found, and the loosest for alarms.
    """

    framework: str
    unhealthy: int
    found: int
    found_at_worst: int
    healthy: int
    alarms: int
    alarms_at_worst: int
    others: int
    others_right: int


ByFactor = Mapping[float, Mapping[str, Answers]]
"""What rules say about runs, by the factor of their thresholds and the id of the run."""


def left_out(runs: Sequence[JudgedRun], said: ByFactor) -> list[LeftOut]:
    """Return how well thresholds that are chosen on the other frameworks do on each framework."""
    return [_left_out(framework, runs, said) for framework in dict.fromkeys(run.framework for run in runs)]


def _left_out(framework: str, runs: Sequence[JudgedRun], said: ByFactor) -> LeftOut:
    best = {rule: best_factors(rule, [run for run in runs if run.framework != framework], said) for rule in RULES}
    own = [run for run in runs if run.framework == framework]

    def count(is_meant: Callable[[JudgedRun], bool], outcome: str, which: Choice = _middle) -> int:
        factors = {rule: which(factors) for rule, factors in best.items()}
        return sum(run_outcome(run, mixed(run, said, factors)) == outcome for run in own if is_meant(run))

    return LeftOut(
        framework,
        unhealthy=sum(map(_is_unhealthy, own)),
        found=count(_is_unhealthy, "hit"),
        found_at_worst=count(_is_unhealthy, "hit", max),
        healthy=sum(map(_is_healthy, own)),
        alarms=count(_is_healthy, "false alarm"),
        alarms_at_worst=count(_is_healthy, "false alarm", min),
        others=sum(map(_is_between, own)),
        others_right=count(_is_between, "hit"),
    )


def best_factors(rule: str, runs: Sequence[JudgedRun], said: ByFactor) -> list[float]:
    """Return the factors with which a rule is wrong on the fewest runs, in order: all, where runs do not tell."""
    wrong = {
        factor: sum(rule_outcome(rule, run, said[factor][run.id]) in ("miss", "false alarm") for run in runs)
        for factor in said
    }
    return sorted(factor for factor, count in wrong.items() if count == min(wrong.values()))


def mixed(run: JudgedRun, said: ByFactor, factors: Mapping[str, float]) -> Answers:
    """Return what rules say about a run, each with its own factor."""
    shares = said[1.0][run.id]
    return {share: {rule: said[factor][run.id][share][rule] for rule, factor in factors.items()} for share in shares}


def _is_unhealthy(run: JudgedRun) -> bool:
    return run.verdict == UNHEALTHY


def _is_healthy(run: JudgedRun) -> bool:
    return run.verdict == HEALTHY


def _is_between(run: JudgedRun) -> bool:
    return run.verdict not in (HEALTHY, UNHEALTHY)
