"""Parameters of requests: each is declared once, to parse it and to describe it in OpenAPI."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from barograph.base.errors import RequestError

MAX_INTEGER = 2**53  # JavaScript's numbers are exact up to here
MAX_TEXT = 4096
TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no", "")


class QueryParameters(Protocol):
    """The query of a request, as Starlette provides it."""

    def getlist(self, key: Any) -> list[Any]:
        """Return all values of a name."""
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter."""

    name: str
    description: str
    kind: Literal["string", "integer", "number", "boolean"] = "string"
    default: Any = None
    repeated: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    def parse(self, given: list[str]) -> Any:
        """Return the parsed value, or raise a RequestError that names the expected one."""
        if self.required and (not given or (not given[-1] and self.kind != "string")):
            raise RequestError(400, f"{self.name} is missing: {self.description}")
        if self.repeated:
            return [self._parse_one(text) for text in given]
        return self._parse_one(given[-1]) if given and (given[-1] or self.kind == "string") else self.default

    def _parse_one(self, text: str) -> Any:
        if self.kind == "string":
            return self._parse_string(text)
        if self.kind == "boolean":
            if text.lower() not in TRUE + FALSE:
                raise RequestError(400, f"{self.name}: expected 0 or 1, got {text[:40]!r}")
            return text.lower() in TRUE
        return self._parse_number(text)

    def _parse_string(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise RequestError(400, f"{self.name}: expected one of {', '.join(self.choices)}, got {text[:40]!r}")
        if len(text) > MAX_TEXT:
            raise RequestError(400, f"{self.name}: expected at most {MAX_TEXT} characters, got {len(text)}")
        return text

    def _parse_number(self, text: str) -> float | int:
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            raise RequestError(400, f"{self.name}: expected {_article(self.kind)}, got {text[:40]!r}") from None
        return self.check_range(value)

    def check_range(self, value: float | int) -> float | int:
        """Return a number within its limits, or raise a RequestError that names them."""
        minimum, maximum = self._limits()
        bounded = self.kind == "integer" or self.minimum is not None or self.maximum is not None
        if math.isnan(value) or (bounded and not minimum <= value <= maximum):
            raise RequestError(400, f"{self.name}: expected {_article(self.kind)} from {minimum:g} to {maximum:g}")
        return value

    def _limits(self) -> tuple[float, float]:
        minimum = -MAX_INTEGER if self.minimum is None else self.minimum
        return minimum, MAX_INTEGER if self.maximum is None else self.maximum

    def openapi(self) -> dict[str, Any]:
        """Return the parameter's OpenAPI description."""
        schema: dict[str, Any] = {"type": self.kind}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.kind == "integer":
            schema["minimum"], schema["maximum"] = self._limits()
        if self.default is not None:
            schema["default"] = self.default
        schema = {"type": "array", "items": schema} if self.repeated else schema
        described = {"name": self.name, "in": "query", "description": self.description, "schema": schema}
        return described | ({"required": True} if self.required else {})


def _article(kind: str) -> str:
    return "an integer" if kind == "integer" else f"a {kind}"


def parse_query(parameters: Iterable[Parameter], query: QueryParameters) -> dict[str, Any]:
    """Parse the declared parameters of a request; unknown ones are ignored."""
    return {parameter.name: parameter.parse(query.getlist(parameter.name)) for parameter in parameters}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a JSON body."""

    name: str
    kinds: tuple[type, ...]
    default: Any = None
    max_length: int = MAX_TEXT

    def parse(self, body: Mapping[str, Any]) -> Any:
        """Return the field's value, or raise a RequestError that names the expected type."""
        value = body.get(self.name, self.default)
        if value is None:
            return self.default
        wrong = isinstance(value, bool) and bool not in self.kinds  # bool is a subclass of int
        if wrong or not isinstance(value, self.kinds):
            expected = " or ".join(kind.__name__ for kind in self.kinds)
            raise RequestError(400, f"{self.name}: expected {expected}, got {type(value).__name__}")
        if isinstance(value, int | float) and not abs(value) <= MAX_INTEGER:
            raise RequestError(400, f"{self.name}: expected a number up to {MAX_INTEGER}")
        if isinstance(value, str) and len(value) > self.max_length:
            raise RequestError(400, f"{self.name}: expected at most {self.max_length} characters, got {len(value)}")
        return value


def parse_body(fields: Iterable[Field], body: Any) -> dict[str, Any]:
    """Parse a JSON object; an unknown field is an error that lists the known ones."""
    if not isinstance(body, dict):
        raise RequestError(400, f"expected a JSON object, got {type(body).__name__}")
    known = {field.name: field for field in fields}
    unknown = [name for name in body if name not in known]
    if unknown:
        raise RequestError(400, f"unknown fields: {', '.join(map(repr, unknown[:5]))}; expected {', '.join(known)}")
    return {name: field.parse(body) for name, field in known.items()}
