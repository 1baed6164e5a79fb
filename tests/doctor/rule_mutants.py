"""Small changes of the doctor's rules: a limit shifted, a comparison that is strict or not, one at a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from barograph.diagnosis import rule as shared
from barograph.diagnosis.rules import RULES, critic, learning_signal, off_policy, policy, rewards, schedule, system

MODULES = (critic, learning_signal, off_policy, policy, rewards, schedule, shared, system)
STRICT = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
WORDS = {  # what only the sentence about a finding needs, and what is not a rule's own: test_rules.py holds that
    "_settings", "NONE", "CLEAN_ROWS", "topic_of", "_either", "number", "spells",
    "percent", "percent_points", "sign_note", "MAX_NAMES", "_more", "_solved", "_meanwhile", "_grown_phase",
    "_furthest", "facts",
}  # fmt: skip
COMPUTED = re.compile(r"trend|chance|effect|noise|rise\(|margin|growth|mean\(")  # no run gives exactly such a number


@dataclass(frozen=True)
class Change:
    """A node of a module's syntax tree, the function or constant that it is in, and which rules need that."""

    module: ModuleType
    tree: ast.Module
    name: str
    node: Any
    rules: tuple[str, ...]

    @property
    def place(self) -> str:
        """The function or constant, and what is changed in it."""
        return f"{self.name}: {ast.unparse(self.node)}"

    @contextmanager
    def made(self) -> Iterator[None]:
        """Run the module with the change, and put everything back."""
        judges = dict(RULES)
        names = {module: dict(vars(module)) for module in MODULES}
        undo = _shift(self.node)
        try:
            exec(compile(self.tree, str(self.module.__file__), "exec"), vars(self.module))
            for module in MODULES:
                for name in vars(self.module).keys() & vars(module).keys() if module is not self.module else ():
                    if names[module][name] is names[self.module].get(name):
                        setattr(module, name, getattr(self.module, name))
            yield
        finally:
            undo()
            RULES.update(judges)
            for module, before in names.items():
                vars(module).update(before)


def _shift(node: Any) -> Any:
    """Change a node, and return what changes it back."""
    if isinstance(node, ast.Compare):
        operators = list(node.ops)
        node.ops[0] = STRICT[type(operators[0])]()
        return lambda: node.ops.__setitem__(slice(None), operators)
    value = node.value
    node.value = value + 1 if isinstance(value, int) else value * 1.3 if value else 0.1
    return lambda: setattr(node, "value", value)


def changes() -> Iterator[Change]:
    """Yield every change of the rules."""
    trees = {module: ast.parse(Path(str(module.__file__)).read_text("utf-8")) for module in MODULES}
    bodies = [(module, name, one) for module, tree in trees.items() for one in tree.body for name in _defined(one)]
    for module, name, body in bodies:
        if name in WORDS or (module, name) == (system, "_rate"):
            continue
        using = _using(name, bodies)
        rules = tuple(rule for _, _, one in bodies if _name(one) in using for rule in _rules(one))
        for node in _changeable(body):
            yield Change(module, trees[module], name, node, rules)


def _defined(body: ast.stmt) -> list[str]:
    if isinstance(body, ast.Assign):
        return [name.id for target in body.targets for name in ast.walk(target) if isinstance(name, ast.Name)][:1]
    return [body.name] if isinstance(body, ast.FunctionDef) else []


def _name(body: ast.stmt) -> str:
    return next(iter(_defined(body)), "")


def _rules(body: ast.stmt) -> list[str]:
    calls = [one for one in getattr(body, "decorator_list", ()) if isinstance(one, ast.Call)]
    return [str(ast.literal_eval(call.args[0])) for call in calls if ast.unparse(call.func) == "rule"]


def _using(name: str, bodies: list[tuple[ModuleType, str, ast.stmt]]) -> set[str]:
    """Return the functions that need a name, over any number of others."""
    found = {name}
    for _ in range(4):
        found |= {
            other
            for _, other, body in bodies
            if found & {one.id for one in ast.walk(body) if isinstance(one, ast.Name)}
        }
    return found


def _changeable(body: ast.AST) -> Iterator[Any]:
    """Yield the comparisons and numbers on which a level depends."""
    for name, value in ast.iter_fields(body):
        for child in value if isinstance(value, list) else [value]:
            is_words = isinstance(child, ast.Lambda) and isinstance(child.body, ast.Dict)
            is_words |= isinstance(child, ast.FunctionDef) and child.name in WORDS
            if not isinstance(child, ast.AST) or is_words or name in ("annotation", "returns", "decorator_list"):
                continue
            if isinstance(child, ast.Compare) and type(child.ops[0]) in STRICT:
                if not COMPUTED.search(ast.unparse(child)):
                    yield child
            elif isinstance(child, ast.Constant) and type(child.value) in (int, float):
                yield child
            yield from _changeable(child)
