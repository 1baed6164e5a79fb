"""Tickets: what another process needs to join a run, as a URL.

``file:///runs/project/id?role=trainer&world_size=4`` is the directory of the run, the role and the number of processes
of its issuer, and those settings of the issuer that every process of the run should use. It contains no secret. In a
Ray cluster it also has the node on which the directory is, and the mark by which it is recognised.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit

from barograph.base.errors import SettingsError
from barograph.base.model import MAIN_ROLE, RayPlace, RunInfo
from barograph.base.process.identity import node_id
from barograph.base.settings import BY_NAME, Settings
from barograph.journal.format.folder import run_mark

DISABLED = "disabled:"  # the ticket of a run that records nothing
TRAVELLING = (
    "detailed_stats", "samples_per_step", "sample_bytes_per_step", "token_samples_per_step", "memory",
    "memory_children", "system_seconds", "engine_seconds", "devices", "peak_flops", "stop_on", "server",
)  # fmt: skip
"""The settings that a ticket contains if they are not the default: they decide what is recorded."""
OF_THE_RUN = ("project", "vocabulary")
"""What is in ``run.json``, which a process on another machine does not see: the ticket of a run with a
server, or in a Ray cluster, has it too."""


@dataclass(frozen=True, slots=True)
class Ticket:
    """The directory of a run, and how its issuer records; without a directory the run is disabled."""

    path: Path | None
    role: str
    settings: Mapping[str, Any]
    ray_place: RayPlace | None = None

    @classmethod
    def issue(cls, path: Path, role: str, settings: Settings, info: RunInfo) -> Self:
        """Return the ticket of a process that records a run with these settings."""
        chosen = {f.name: getattr(settings, f.name) for f in fields(settings) if f.name in TRAVELLING}
        given = {name: value for name, value in chosen.items() if value != getattr(Settings(), name)}
        if (settings.world_size or 0) > 1:  # a process that was alone is not any more
            given["world_size"] = settings.world_size
        ray_place = settings.ray_place or _ray_place(path)
        if settings.server or ray_place:
            given |= {name: getattr(info, name) for name in OF_THE_RUN}
        return cls(Path(os.path.abspath(path)), role, given, ray_place)

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Return the ticket of a string; raise SettingsError if it is none."""
        url = urlsplit(text) if isinstance(text, str) else None
        if url is None or url.scheme not in ("file", "disabled") or (url.scheme == "file" and not url.path):
            raise SettingsError(f"ticket: expected the string that run.ticket() returned, got {text!r}")
        query = dict(parse_qsl(url.query))
        path = Path(os.fsdecode(unquote_to_bytes(url.path))) if url.scheme == "file" else None
        # Settings of a newer barograph are ignored.
        known = {name: _value(name, query[name]) for name in (*TRAVELLING, *OF_THE_RUN, "world_size") if name in query}
        ray_place = RayPlace(query["ray_node"], query["mark"]) if {"ray_node", "mark"} <= query.keys() else None
        return cls(path, query.get("role", MAIN_ROLE), known, ray_place)

    def __str__(self) -> str:
        place = DISABLED if self.path is None else self.path.as_uri()
        query = {"role": self.role, **{name: _text(v) for name, v in self.settings.items()}}
        if self.ray_place:
            query |= {"ray_node": self.ray_place.node, "mark": self.ray_place.mark}
        return f"{place}?{urlencode(query)}"


def _ray_place(path: Path) -> RayPlace | None:
    node, mark = node_id(), run_mark(path)
    return RayPlace(node, mark) if node and mark else None


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(name: str, text: str) -> Any:
    return text == "true" if BY_NAME[name].kinds == (bool,) else text  # settings take numbers as text
