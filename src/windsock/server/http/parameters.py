"""What a request may say: each parameter declared once, for reading it and for describing it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from windsock.server.responses import RequestError

LARGEST = 2**53  # what JSON's numbers, and JavaScript's, carry exactly
LONGEST = 4096
TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no", "")


class Given(Protocol):
    """The parameters of a request, as Starlette has them."""

    def getlist(self, key: Any) -> list[Any]:
        """Return all that was given under a name."""
        ...


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an address."""

    name: str
    about: str
    kind: Literal["string", "integer", "number", "boolean"] = "string"
    default: Any = None
    many: bool = False
    required: bool = False
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None

    def read(self, given: list[str]) -> Any:
        """Return the value of what was given, or say what was expected."""
        if self.required and not given:
            raise RequestError(400, f"{self.name} is missing: {self.about}")
        if self.many:
            return [self._one(text) for text in given]
        return self._one(given[-1]) if given and (given[-1] or self.kind == "string") else self.default

    def _one(self, text: str) -> Any:
        if self.kind == "string":
            return self._string(text)
        if self.kind == "boolean":
            if text.lower() not in TRUE + FALSE:
                raise RequestError(400, f"{self.name}: expected 0 or 1, got {text[:40]!r}")
            return text.lower() in TRUE
        return self._number(text)

    def _string(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise RequestError(400, f"{self.name}: expected one of {', '.join(self.choices)}, got {text[:40]!r}")
        if len(text) > LONGEST:
            raise RequestError(400, f"{self.name}: expected at most {LONGEST} characters, got {len(text)}")
        return text

    def _number(self, text: str) -> float | int:
        try:
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            raise RequestError(400, f"{self.name}: expected {_article(self.kind)}, got {text[:40]!r}") from None
        return self.checked(value)

    def checked(self, value: float | int) -> float | int:
        """Return a number that lies where it may, or say where that is."""
        least, most = -LARGEST if self.least is None else self.least, LARGEST if self.most is None else self.most
        bounded = self.kind == "integer" or self.least is not None or self.most is not None
        if math.isnan(value) or (bounded and not least <= value <= most):
            raise RequestError(400, f"{self.name}: expected {_article(self.kind)} from {least:g} to {most:g}")
        return value

    def described(self) -> dict[str, Any]:
        """Return the parameter as OpenAPI describes it."""
        schema: dict[str, Any] = {"type": self.kind}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.kind == "integer":
            schema |= {"minimum": -LARGEST if self.least is None else self.least}
            schema |= {"maximum": LARGEST if self.most is None else self.most}
        if self.default is not None:
            schema["default"] = self.default
        schema = {"type": "array", "items": schema} if self.many else schema
        described = {"name": self.name, "in": "query", "description": self.about, "schema": schema}
        return described | ({"required": True} if self.required else {})


def _article(kind: str) -> str:
    return "an integer" if kind == "integer" else f"a {kind}"


def read_all(parameters: Iterable[Parameter], given: Given) -> dict[str, Any]:
    """Read the declared parameters of a request; what else it says is not looked at."""
    return {parameter.name: parameter.read(given.getlist(parameter.name)) for parameter in parameters}


@dataclass(frozen=True, slots=True)
class Field:
    """One entry of a JSON body."""

    name: str
    kinds: tuple[type, ...]
    default: Any = None
    most: float | None = None

    def read(self, body: Mapping[str, Any]) -> Any:
        """Return the entry, or say what was expected."""
        value = body.get(self.name, self.default)
        if value is None:
            return self.default
        wrong = isinstance(value, bool) and bool not in self.kinds
        if wrong or not isinstance(value, self.kinds):
            expected = " or ".join(kind.__name__ for kind in self.kinds)
            raise RequestError(400, f"{self.name}: expected {expected}, got {type(value).__name__}")
        if isinstance(value, int | float) and not abs(value) <= LARGEST:
            raise RequestError(400, f"{self.name}: expected a number up to {LARGEST}")
        if isinstance(value, str) and len(value) > (self.most or LONGEST):
            raise RequestError(400, f"{self.name}: expected at most {self.most or LONGEST:g} characters")
        return value


def read_fields(fields: Iterable[Field], body: Any) -> dict[str, Any]:
    """Read a JSON object; one that says something unknown is refused, naming what is known."""
    if not isinstance(body, dict):
        raise RequestError(400, f"expected a JSON object, got {type(body).__name__}")
    known = {field.name: field for field in fields}
    unknown = [name for name in body if name not in known]
    if unknown:
        raise RequestError(400, f"unknown: {', '.join(map(repr, unknown[:5]))}; known are {', '.join(known)}")
    return {name: field.read(body) for name, field in known.items()}
