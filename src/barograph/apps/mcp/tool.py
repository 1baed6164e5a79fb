"""A tool: its name, description, arguments and answer, and the check of what it is called with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from barograph.answers.schemas import Schema
from barograph.apps.mcp.answer import ToolAnswer
from barograph.apps.mcp.runs import ServedRuns, ToolError
from barograph.base.errors import did_you_mean


def is_match(name: str, wanted: str | None) -> bool:
    """Return whether a name matches a pattern such as ``actor/*``, or contains a text."""
    if wanted is None:
        return True
    return fnmatchcase(name.lower(), wanted.lower()) or wanted.lower() in name.lower()


MAX_VALUE = 80  # characters of a wrong value in a message

RUN: Schema = {
    "type": "string",
    "description": "id of a run, a unique beginning of it, its name, or @last (the newest)",
}

OFFSET: Schema = {"type": "integer", "minimum": 0, "default": 0, "description": "entries to skip: the next page"}

Arguments = Mapping[str, Any]

Progress = Callable[[float, float, str], Awaitable[None]]


def number(description: str, low: int | None = None, high: int | None = None, default: int | None = None) -> Schema:
    """Return the schema of an integer argument."""
    limits = {"minimum": low, "maximum": high, "default": default}
    return {
        "type": "integer",
        **{key: one for key, one in limits.items() if one is not None},
        "description": description,
    }


def text(description: str, words: tuple[str, ...] = ()) -> Schema:
    """Return the schema of a text argument, one of some words where they are given."""
    return {"type": "string", **({"enum": list(words)} if words else {}), "description": description}


def texts(description: str, least: int = 0, most: int = 100) -> Schema:
    """Return the schema of an argument that is a list of texts."""
    return {
        "type": "array", "items": {"type": "string"}, "minItems": least, "maxItems": most, "description": description,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that is called in a thread, or with ``wait`` in the event loop: it takes long, and may be cancelled.

    ``required`` are the first so many of its arguments.
    """

    name: str
    title: str
    description: str
    arguments: Mapping[str, Schema]
    required: int
    output: Schema
    call: Callable[[ServedRuns, Arguments], ToolAnswer] | None = None
    wait: Callable[[ServedRuns, Arguments, Progress], Awaitable[ToolAnswer]] | None = None
    writes: bool = False

    @property
    def input(self) -> Schema:
        """The schema of the arguments."""
        return {
            "type": "object",
            "properties": dict(self.arguments),
            "required": list(self.arguments)[: self.required],
            "additionalProperties": False,
        }

    def checked(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with defaults for the others, None for those without; raise ToolError."""
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import best_match

        for name in given:
            if name not in self.arguments:
                raise ToolError(f"{self.name} has no argument {name[:MAX_VALUE]!r}; {self._near(name)}")
        wrong = best_match(Draft202012Validator(self.input).iter_errors(dict(given)))
        if wrong is not None:
            where = ".".join(map(str, wrong.absolute_path))
            said = (
                wrong.message
                if len(wrong.message) < 3 * MAX_VALUE
                else f"expected {wrong.validator} {wrong.validator_value}"
            )
            raise ToolError(f"{self.name}: {f'{where}: ' if where else ''}{said}")
        return {name: given.get(name, schema.get("default")) for name, schema in self.arguments.items()}

    def _near(self, name: str) -> str:
        return did_you_mean(name, self.arguments, f"it has {', '.join(self.arguments)}")
