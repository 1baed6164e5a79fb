"""The verdict on a run in a list: the index of verdicts that are known, and the others on demand.

A list shows thousands of runs, and a diagnosis reads a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from barograph.base.errors import BarographError
from barograph.catalogue.spec import Text
from barograph.catalogue.user_metrics import NamesFiles, names_files, own_names_file, shared_names_files
from barograph.importers.cache import list_folder
from barograph.journal.directory import LatestAnnotations, RunIndex
from barograph.journal.findings import SEVERITIES, Finding, read_told
from barograph.journal.format import fields
from barograph.journal.format.fields import nullable, one_of
from barograph.journal.format.folder import is_run
from barograph.journal.read.status import Glance

if TYPE_CHECKING:
    from barograph.diagnosis.diagnose import Diagnosis
    from barograph.journal.view import View

KIND = "health"

WORDS = {"healthy": "good", "watch": "watch", "sick": "bad", "cannot tell": "unknown"}
"""The words of the page's API for the verdicts."""

STATES = ("open", "explained", "past")
"""Of what a rule found: it is part of the verdict by itself, under another finding that explains it, or it is over."""

FOUND = (fields.read_text, one_of(*SEVERITIES[1:]), fields.read_step, fields.read_step, one_of(*STATES))


@dataclass(frozen=True, slots=True)
class FirstFinding:
    """The most important finding of a run."""

    rule: str
    onset: int
    title: Text

    @classmethod
    def of(cls, finding: Finding) -> FirstFinding:
        """Return a finding in short."""
        return cls(finding.rule, finding.onset, finding.title)


class FoundRule(NamedTuple):
    """What a rule has found in a run, in short; ``state`` is one of ``STATES``."""

    rule: str
    severity: str
    onset: int
    last: int
    state: str


@dataclass(frozen=True, slots=True)
class Health:
    """The verdict on a run as of a step, the number of its open findings above info, and the most important one.

    ``found`` has one entry for each rule and state; None where it is not known.
    """

    verdict: str
    step: int | None
    findings: int
    first: FirstFinding | None
    found: tuple[FoundRule, ...] | None = None

    def record(self) -> dict[str, Any]:
        """Return the verdict as JSON, as lists of runs show it."""
        known = {name: value for name, value in asdict(self).items() if name != "found"}
        return {**known, "word": WORDS[self.verdict]}


def health_of(diagnosis: Diagnosis, steps: tuple[int, int] | None) -> Health:
    """Return the verdict of a diagnosis; ``steps`` are the first and the last step of the run."""
    found = [finding for finding in diagnosis.findings if finding.severity != "info"]
    rules = found_rules(diagnosis.findings, diagnosis.past)
    return Health(
        diagnosis.verdict, steps[1] if steps else None, len(found), FirstFinding.of(found[0]) if found else None, rules
    )


def found_rules(findings: Iterable[Finding], past: Iterable[Finding]) -> tuple[FoundRule, ...]:
    """Return what each rule has found; several findings of a rule in the same state are one, the worst from the first.

    ``findings`` are part of the verdict, and ``past`` is over.
    """
    found: dict[tuple[str, str], FoundRule] = {}
    stated = [(one, "open") for one in findings]
    stated += [(one, "explained") for finding, _ in stated for one in finding.explains]
    for one, state in [*stated, *((one, "past") for one in past)]:
        before = found.get((one.rule, state)) or FoundRule(one.rule, one.severity, one.onset, one.last, state)
        worst = max(before.severity, one.severity, key=SEVERITIES.index)
        onset, last = min(before.onset, one.onset), max(before.last, one.last)
        found[one.rule, state] = FoundRule(one.rule, worst, onset, last, state)
    return tuple(found.values())


def told_health(run: Path, last_step: int | None) -> Health | None:
    """Return the verdict that a doctor beside the training has written, if it is of the last step of the run."""
    told = read_told(run)
    if told.verdict not in WORDS or told.step is None or told.step != last_step:
        return None
    # The last thing that was said about a rule is how it is now.
    latest = {change.finding.rule: change.finding for change in told.changes}
    found = [latest[rule] for rule, severity in told.open.items() if severity != "info" and rule in latest]
    found.sort(key=lambda one: (-SEVERITIES.index(told.open[one.rule]), one.onset))
    now = {*told.open, *(one.rule for finding in found for one in finding.explains)}
    rules = found_rules(found, [finding for rule, finding in latest.items() if rule not in now])
    return Health(told.verdict, told.step, len(found), FirstFinding.of(found[0]) if found else None, rules)


class HealthIndex(RunIndex):
    """The verdicts on the runs of a directory. Each counts only for the files, names and source that it was made of."""

    def __init__(self, dir: Path, folder: Path | None = None) -> None:
        super().__init__(dir, KIND, folder)

    def known(
        self, run: Path, files: str, source: str | None, names: Callable[[Path], NamesFiles] = names_files
    ) -> Health | None:
        """Return the verdict on a run; ``files`` is the digest of its files, ``source`` that of its names if chosen."""
        digest, record = self.get(run)
        if not digest.startswith(files) or digest != basis_digest(files, source, names(run)):
            return None
        try:
            health: Health = HEALTH(record)
        except (TypeError, ValueError):
            return None
        return health

    def keep(self, run: Path, files: str, source: str | None, health: Health, names: NamesFiles) -> None:
        """Take a verdict; ``names`` are the files that described names when it was made."""
        self.put(run, basis_digest(files, source, names), asdict(health))


def basis_digest(files: str, source: str | None, names: NamesFiles) -> str:
    """Return a digest of what a verdict is made of: files, the source of the names if chosen, and names files."""
    described = blake2b(repr(sorted(names.items())).encode(), digest_size=8).hexdigest() if names else ""
    return " ".join((files, described, source or ""))


def _read_found(entry: Any) -> FoundRule:
    return FoundRule(*(read(value) for read, value in zip(FOUND, fields.list_of(fields.read_any)(entry), strict=True)))


HEALTH = fields.record_of(
    Health,
    verdict=one_of(*WORDS),
    step=nullable(fields.read_step),
    findings=fields.read_count,
    first=nullable(fields.record_of(FirstFinding, onset=fields.read_step)),
    found=nullable(fields.tuple_of(_read_found)),
)


class HealthList:
    """The verdicts on the runs below a directory."""

    def __init__(self, dir: Path) -> None:
        self._journals = HealthIndex(dir)
        self._logs = HealthIndex(dir, list_folder(dir))  # nothing is written beside logs
        self._sources = LatestAnnotations("source")
        self._shared_names: dict[Path, NamesFiles] = {}

    def known(self, run: Glance) -> Health | None:
        """Return the verdict on a run, if it is known for its files as they are now."""
        return (
            self._journals.known(run.path, run.digest, self._source(run), self._names_files)
            or self._logs.known(run.path, run.digest, None, self._names_files)
            or (told_health(run.path, run.last_step) if run.status.word != "stalled" else None)
        )

    def basis(self, run: Glance) -> str:
        """Return a digest of what a verdict on a run is made of: while it is the same, the verdict is."""
        return basis_digest(run.digest, self._source(run), self._names_files(run.path))

    def judge(self, run: Glance) -> Health | None:
        """Return the verdict on a run by a diagnosis, and keep it; None if the run cannot be read."""
        from barograph.diagnosis.diagnose import doctor  # imports NumPy, which known verdicts can do without
        from barograph.importers.opening import open_run

        names = names_files(run.path)
        try:
            view = open_run(run.path)
        except BarographError:  # the status of the run says why
            return None
        return self.keep(run, view, doctor(view), names)

    def keep(self, run: Glance, view: View, diagnosis: Diagnosis, names: NamesFiles) -> Health:
        """Return the verdict of a diagnosis, and keep it if it will stay the same.

        ``names`` are the files that described names when the run was opened.
        """
        health = health_of(diagnosis, view.steps)
        if view.status.ended and not view.waits:  # the verdict on a run that goes on changes with time too
            is_journal = is_run(run.path)
            index, source = (self._journals, self._source(run)) if is_journal else (self._logs, None)
            index.keep(run.path, run.digest, source, health, names)
        return health

    def save(self) -> None:
        """Write what is new to the indexes."""
        self._journals.save()
        self._logs.save()

    def _names_files(self, run: Path) -> NamesFiles:
        """Return the files that describe names of a run; those that runs share are looked for once."""
        if run.parent not in self._shared_names:
            self._shared_names[run.parent] = shared_names_files(run.parent)
        return {**self._shared_names[run.parent], **own_names_file(run)}

    def _source(self, run: Glance) -> str | None:
        """Return the source that a person has chosen on the page for the names of a run."""
        found: str | None = self._sources.get(run.path, run.info.id.replace("/", "_"))
        return found
