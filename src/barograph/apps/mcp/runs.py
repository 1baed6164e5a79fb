"""The runs of a directory as tools find them: by id, a unique beginning of it, name, or `@last`, never by path.

A token of one project can name nothing of another: its runs know no other directory.
"""

from __future__ import annotations

import difflib
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from barograph.answers.open_run import OpenRun, RunLocation
from barograph.answers.runs.annotations import Annotations
from barograph.answers.runs.listing import RunDirectory
from barograph.apps.mcp.tool import ToolError, plain_text
from barograph.base.formatting import counted
from barograph.base.model import RunInfo
from barograph.delivery.transfer.tokens import Grant
from barograph.diagnosis.health import HealthList
from barograph.importers.imported import unreadable_log
from barograph.journal.directory import files_digest, unreadable
from barograph.journal.read.status import Glance, seen_at


def moment(at: float) -> str:
    """Return a time in UTC, to the minute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%MZ")


MAX_NEAR = 3

LAST = "@last"


@dataclass(frozen=True, slots=True)
class Listed:
    """A run at a glance, with what people have noted about it; ``key`` is what tools call it."""

    key: str
    glance: Glance
    annotations: dict[str, Any]

    @property
    def name(self) -> str:
        """The name given on the page, else the logged one."""
        return str(self.annotations["name"] or self.glance.info.name)

    @property
    def tags(self) -> list[str]:
        """The tags given on the page, else the logged ones."""
        return tags_of(self.glance.info, self.annotations)

    @property
    def search_text(self) -> str:
        """What a search looks at."""
        words = (self.key, self.name, self.glance.info.name, self.glance.info.project, self.annotations["note"])
        return "\n".join((*words, *self.tags)).lower()


class ServedRuns:
    """A directory of runs, for all calls; ``lang`` is the language of explanations and findings."""

    def __init__(self, path: Path, lang: str = "en") -> None:
        self.lang = lang
        self.path = path
        self._directory = RunDirectory(path)

    @property
    def annotations(self) -> Annotations:
        """What people have noted about the runs."""
        return self._directory.annotations

    def close(self) -> None:
        """Close the files."""
        self._directory.close()

    def listed(self) -> list[Listed]:
        """Return all runs, the newest first."""
        self.annotations.refresh()
        locations = self._directory.open_runs.locations(now=True)
        found = [
            Listed(key, seen, self.annotations.get(key))
            for key, location in locations.items()
            if (seen := self._glance(location)) is not None
        ]
        self._directory.open_runs.facts.save()
        self._directory.open_runs.log_facts.save()
        return sorted(found, key=lambda one: one.glance.began, reverse=True)

    def health(self) -> HealthList:
        """Return the verdicts that are known."""
        return HealthList(self._directory.open_runs.dir)

    def key_of(self, reference: str) -> str:
        """Return the key of a run; raise ToolError with similar names where there is none, or with the several."""
        locations = self._directory.open_runs.locations()
        if reference in locations:
            return reference
        listed = self.listed()
        if reference == LAST and listed:
            return listed[0].key
        for found in (
            [one.key for one in listed if reference in (one.key, one.glance.info.id)],
            [one.key for one in listed if reference in (one.name, one.glance.info.name, plain_text(one.name))],
            [one.key for one in listed if reference and one.key.startswith(reference)],
        ):
            if len(found) == 1:
                return found[0]
            if found:
                shown = ", ".join(found[:MAX_NEAR])
                raise ToolError(f"{reference!r} is {counted(len(found), 'run')}: {shown}, …; give the id of one")
        raise ToolError(f"no run {reference!r}; {_near(reference, listed)}")

    @contextmanager
    def use(self, reference: str) -> Iterator[OpenRun]:
        """Yield an open run, refreshed and locked for the caller."""
        with self._directory.open_runs.use(self.key_of(reference)) as opened:
            yield opened

    @contextmanager
    def use_several(self, references: Sequence[str]) -> Iterator[list[OpenRun]]:
        """Yield several open runs in the order given."""
        keys = list(dict.fromkeys(map(self.key_of, references)))
        with ExitStack() as stack:
            # In one order for all callers, so that two of them never wait for each other.
            opened = {key: stack.enter_context(self._directory.open_runs.use(key)) for key in sorted(keys)}
            yield [opened[key] for key in keys]

    def _glance(self, location: RunLocation) -> Glance | None:
        """Return the facts about a run; None if it was removed meanwhile."""
        open_runs, log = self._directory.open_runs, location.log
        files = open_runs.folders.files(location.path)
        try:
            known = (
                open_runs.facts.facts(location.path, files) if log is None else open_runs.log_facts.facts(log, files)
            )
            return seen_at(location.path, known, files.bytes, files_digest(files.states))
        except Exception as problem:  # noqa: BLE001 - whatever is in one run, the others are listed
            if log is not None:
                return unreadable_log(log, files, problem)
            return unreadable(location.path, problem) if location.path.is_dir() else None


def tags_of(info: RunInfo, annotations: dict[str, Any]) -> list[str]:
    """Return the tags that a person has given a run on the page, with commas between them, else the logged ones."""
    given = annotations["tags"]
    return list(info.tags) if given is None else [tag for one in str(given).split(",") if (tag := one.strip())]


def _near(reference: str, listed: Sequence[Listed]) -> str:
    """Return what to do about a name that no run has."""
    if not listed:
        return "there is no run yet"
    texts = {text: f"{one.key} ({one.name})" for one in reversed(listed) for text in (one.key, one.name)}
    near = [texts[text] for text in difflib.get_close_matches(reference, texts, 2 * MAX_NEAR)]
    near += [texts[one.key] for one in listed if reference and reference.lower() in one.search_text]
    shown = list(dict.fromkeys(near))[:MAX_NEAR]
    return f"did you mean {' or '.join(shown)}?" if shown else f"list_runs has the {counted(len(listed), 'run')}"


MAX_OPEN = 16  # directories of projects


class ProjectRuns:
    """A directory of runs. A token of one project can name nothing of another: its runs know no other directory."""

    def __init__(self, path: Path, lang: str = "en") -> None:
        self._path = path
        self._lang = lang
        self._lock = threading.Lock()
        self._opened: OrderedDict[str | None, ServedRuns] = OrderedDict()

    def of(self, grant: Grant) -> ServedRuns:
        """Return the runs that a grant is for."""
        with self._lock:
            found = self._opened.get(grant.project)
            if found is None:
                path = self._path if grant.project is None else self._path / grant.project
                found = self._opened[grant.project] = ServedRuns(path, self._lang)
            self._opened.move_to_end(grant.project)
            while len(self._opened) > MAX_OPEN:
                self._opened.popitem(last=False)[1].close()
            return found

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            while self._opened:
                self._opened.popitem()[1].close()
