"""Expressions as people write them, of samples, runs and metrics: ``reward < 0.5 and (correct = false or step > 9)``.

Comparisons are joined by ``and``, ``or``, ``not`` and parentheses. The left side is a name, the right side a value;
where functions are allowed, either may be a call, such as ``last(val/score)``. A name or value in quotes may
contain anything. Conditions are the comparisons that select runs and samples. Nothing is ever evaluated as code.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from barograph.base.errors import ExpressionError

TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}

JOINERS = {"&&": "and", ",": "and", "||": "or"}

KEYWORDS = ("and", "or", "not")

MAX_DEPTH = 50  # of parentheses and negations

TOKEN = re.compile(
    r'\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.|\'(?=\w))*\'(?!\w))'  # an apostrophe ends nothing
    r'|(?P<order><=|>=|!=|==|!~|[=<>~])|(?P<mark>[(),]|&&|\|\|)|(?P<word>[^\s=<>!~"(),&|]+|\S))',
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Word:
    """A name or a value; ``is_quoted`` says that it is a text and nothing else."""

    text: str
    is_quoted: bool = False

    def __str__(self) -> str:
        return f'"{self.text}"' if self.is_quoted else self.text

    @property
    def number(self) -> float | None:
        """The number or truth value that the word is, quoted or not; None for another word."""
        return TRUTHS.get(self.text.lower(), to_number(self.text))


@dataclass(frozen=True, slots=True)
class Call:
    """A function of a name, and of further arguments."""

    function: str
    arguments: tuple[Word, ...]

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(str, self.arguments))})"


@dataclass(frozen=True, slots=True)
class ComparisonTerm:
    """Two operands and how they are compared: ``=``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``~`` or ``!~``."""

    left: Word | Call
    order: str
    right: Word | Call

    def __str__(self) -> str:
        return f"{self.left} {self.order} {self.right}"


@dataclass(frozen=True, slots=True)
class Joined:
    """Expressions of which all (``and``) or one (``or``) must hold."""

    joiner: str
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Negated:
    """An expression that must not hold."""

    part: Expression


Expression = ComparisonTerm | Joined | Negated


def evaluate(expression: Expression, holds: Callable[[ComparisonTerm], Any]) -> Any:
    """Return whether an expression holds; ``holds`` returns it for a comparison, as truth value or array of them.

    Every comparison is asked for, so that one that cannot be answered is never hidden by another.
    """
    if isinstance(expression, ComparisonTerm):
        return holds(expression)
    if isinstance(expression, Negated):
        return evaluate(expression.part, holds) ^ True
    found, *others = [evaluate(part, holds) for part in expression.parts]
    for other in others:
        found = found & other if expression.joiner == "and" else found | other
    return found


def comparisons(expression: Expression) -> Iterator[ComparisonTerm]:
    """Yield the comparisons of an expression, from left to right."""
    if isinstance(expression, ComparisonTerm):
        yield expression
    else:
        for part in (expression.part,) if isinstance(expression, Negated) else expression.parts:
            yield from comparisons(part)


def to_number(text: str) -> float | None:
    """Return the number that a text is; None for another text."""
    try:
        return float(text)
    except ValueError:
        return None


def parse(text: str, functions: Collection[str] = ()) -> Expression:
    """Return the expression in a text, in which ``functions`` may be called; raise ExpressionError where it is none."""
    parser = _ExpressionParser(text, functions)
    found = parser.joined("or", 0)
    if parser.token is not None:
        raise parser.error("expected 'and' or 'or'")
    return found


class _ExpressionParser:
    """Reads tokens one after another; ``token`` is the next one, None at the end."""

    def __init__(self, text: str, functions: Collection[str]) -> None:
        self._text = text
        self._functions = functions
        self._tokens = [match for match in TOKEN.finditer(text) if match.lastgroup]
        self._place = 0

    @property
    def token(self) -> re.Match[str] | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def error(self, expected: str, place: int | None = None) -> ExpressionError:
        """Return an error with what was expected, and the text from the token at ``place`` or the next one."""
        token = self.token if place is None else self._tokens[place]
        rest = "nothing" if token is None else repr(self._text[_start(token) :].rstrip())
        return ExpressionError(f"{expected}; got {rest}")

    def joined(self, joiner: str, depth: int) -> Expression:
        parts = [self._part(joiner, depth)]
        while self._keyword() == joiner:
            self._place += 1
            parts.append(self._part(joiner, depth))
        return parts[0] if len(parts) == 1 else Joined(joiner, tuple(parts))

    def _part(self, joiner: str, depth: int) -> Expression:
        return self.joined("and", depth) if joiner == "or" else self._unit(depth)

    def _unit(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise ExpressionError(f"more than {MAX_DEPTH} parentheses within each other")
        if self._keyword() == "not":
            self._place += 1
            return Negated(self._unit(depth + 1))
        if self._mark() != "(":
            return self._comparison()
        self._place += 1
        found = self.joined("or", depth + 1)
        if self._mark() != ")":
            raise self.error("expected ')'")
        self._place += 1
        return found

    def _comparison(self) -> ComparisonTerm:
        begin = self._place
        left = self._left()
        token = self.token
        if token is None or token["order"] is None:
            raise self.error("expected NAME < VALUE", min(begin, len(self._tokens) - 1) if self._tokens else None)
        self._place += 1
        right = self._operand(self._end(is_left=False))
        if right is None:
            raise self.error("expected NAME < VALUE", begin)
        return ComparisonTerm(left, "=" if token["order"] == "==" else token["order"], right)

    def _left(self) -> Word | Call:
        begin = self._place
        found = self._operand(self._end(is_left=True))
        if found is None:
            raise self.error("expected NAME < VALUE")
        if isinstance(found, Word) and not found.is_quoted and re.search(r'[\s()"]', found.text):
            raise self.error("expected NAME < VALUE, with a name that has spaces or parentheses in quotes", begin)
        return found

    def _end(self, is_left: bool) -> int:
        """Return the place after an operand: at a joiner, a parenthesis that others opened, or on the left an order."""
        end, opened = self._place, 0
        while end < len(self._tokens):
            token = self._tokens[end]
            if not opened and (token["mark"] == ")" or self._keyword(end) in ("and", "or")):
                break
            if is_left and token["order"] is not None:
                break
            opened += (token["mark"] == "(") - (token["mark"] == ")")
            end += 1
        return end

    def _operand(self, end: int) -> Word | Call | None:
        """Return the operand of the tokens up to ``end``; None if there are none."""
        begin, self._place = self._place, end
        if begin == end:
            return None
        name = self._tokens[begin]["word"]
        is_call = end - begin > 2 and self._tokens[begin + 1]["mark"] == "(" and self._tokens[end - 1]["mark"] == ")"
        if not is_call or not self._functions or name is None:
            return self._word(begin, end)
        if name.lower() not in self._functions:
            raise self.error(f"unknown function {name!r}: expected {', '.join(sorted(self._functions))}", begin)
        return Call(name.lower(), tuple(self._arguments(begin + 2, end - 1)))

    def _arguments(self, begin: int, end: int) -> Iterator[Word]:
        commas = [place for place in range(begin, end) if self._tokens[place]["mark"] == ","]
        for first, last in zip([begin, *(place + 1 for place in commas)], [*commas, end], strict=True):
            if first == last:
                raise self.error("expected a name or a number between the parentheses", begin - 2)
            yield self._word(first, last)

    def _word(self, begin: int, end: int) -> Word:
        """Return what is written from one token to another, as it is written."""
        if end - begin == 1 and (quoted := self._tokens[begin]["quoted"]) is not None:
            return Word(re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL), is_quoted=True)
        return Word(self._text[_start(self._tokens[begin]) : self._tokens[end - 1].end()])

    def _mark(self) -> str | None:
        return None if self.token is None else self.token["mark"]

    def _keyword(self, place: int | None = None) -> str | None:
        """Return the keyword that the token at a place is: and, or, not; None for others."""
        place = self._place if place is None else place
        if place >= len(self._tokens):
            return None
        token = self._tokens[place]
        word = (token["word"] or "").lower()
        return word if word in KEYWORDS else JOINERS.get(token["mark"] or "")


def _start(token: re.Match[str]) -> int:
    return token.start(token.lastgroup or 0)


ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

NONE = ("none", "null")

LAST_JOINER = re.compile(r"(?:\band|&&|,)\s*$")  # a person may still be typing


@dataclass(frozen=True, slots=True)
class Condition:
    """A name, how its value is compared, and what with; ``number`` is the value as one, if it is one."""

    name: str
    order: str
    value: str
    number: float | None
    is_quoted: bool
    asks_for_absence: bool  # ``name = none`` or ``name != none``

    @classmethod
    def of(cls, comparison: ComparisonTerm, name: str) -> Condition:
        """Return the condition that the comparison of a name with a value is."""
        value = comparison.right
        assert isinstance(value, Word)  # no function is allowed here
        if comparison.order in ORDERS and value.number is None:
            raise ExpressionError(f"{comparison.order} compares numbers; got {value.text!r}")
        is_absence = value.text.lower() in NONE and not value.is_quoted and comparison.order in ("=", "!=")
        return cls(name, comparison.order, value.text, value.number, value.is_quoted, is_absence)

    def __str__(self) -> str:
        return f"{self.name} {self.order} {self.value}"

    def holds(self, value: Any) -> bool:
        """Return whether a value fulfils the condition; None is an absent one, a list fulfils it by any element."""
        if self.asks_for_absence:
            return (value is None) == (self.order == "=")
        if value is None:
            return False
        if type(value) is float and self.order in ORDERS:  # most values of a table; no order holds for NaN
            return bool(ORDERS[self.order](value, self.number))
        values = value if isinstance(value, list | tuple) else (value,)
        if self.order.startswith("!"):
            return not any(self._is_like(one) for one in values)
        return any(self._is_like(one) for one in values)

    def _is_like(self, value: Any) -> bool:
        if self.order in ORDERS:
            number = as_number(value)
            return number is not None and bool(ORDERS[self.order](number, self.number))
        if self.order.endswith("~"):
            return self.value.lower() in str(value).lower()
        if str(value) == self.value:
            return True
        return self.number is not None and not self.is_quoted and as_number(value) == self.number


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions that are joined by ``and``, ``or``, ``not`` and parentheses; without an expression, none."""

    expression: Expression | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)

    def parts(self) -> list[Condition]:
        """Return all conditions, however they are joined."""
        return [self._condition(one) for one in (comparisons(self.expression) if self.expression is not None else ())]

    def names(self) -> set[str]:
        """Return the names that the conditions are about."""
        return {condition.name for condition in self.parts()}

    def evaluate(self, holds: Callable[[Condition], Any]) -> Any:
        """Return whether they hold; ``holds`` returns it for one, as truth value or array of them."""
        return True if self.expression is None else evaluate(self.expression, lambda one: holds(self._condition(one)))

    def _condition(self, comparison: ComparisonTerm) -> Condition:
        assert isinstance(comparison.left, Word)
        name = comparison.left.text
        return Condition.of(comparison, self.aliases.get(name, name))


def parse_conditions(
    text: str, example: str = "status = running and actor.lr > 1e-6", aliases: Mapping[str, str] | None = None
) -> Conditions:
    """Return the conditions in a text; raise ExpressionError with what is expected."""
    text = LAST_JOINER.sub("", text)
    if not text.strip():
        return Conditions()
    try:
        found = Conditions(parse(text), aliases or {})
        found.parts()  # raises where one is not a condition
    except ExpressionError as problem:
        raise ExpressionError(f"where: {problem}; an example is {example!r}") from None
    return found


def as_number(value: Any) -> float | None:
    """Return a value as a number, a truth as 0 or 1; None for what is none."""
    if isinstance(value, bool | int | float):
        return None if isinstance(value, float) and math.isnan(value) else float(value)
    return to_number(value) if isinstance(value, str) else None
