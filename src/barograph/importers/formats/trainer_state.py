"""`trainer_state.json` of Hugging Face's Trainer and TRL, alone or in an output directory with checkpoints and a model
card.

The history in it is cumulative, so that the newest checkpoint has all of it. `training_args.bin` is a pickle and is
never read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from barograph.catalogue.spec import ERAS
from barograph.importers.reading.lines import is_settled
from barograph.importers.reading.log import Facts, Format, FoundLogs, Log, LogReader, RewrittenError, Seen, first_bytes
from barograph.importers.reading.rollouts import (
    PACKAGE,
    UnreadableTableError,
    missing_package,
    parquet_rows,
    record_samples,
)
from barograph.importers.reading.values import DamagedDocumentError, JsonScanner, as_step, flat_numbers, step_of
from barograph.importers.recorder import Recorder

CARD = "README.md"

MAX_CARD_BYTES = 16 << 10

ENTRY = re.compile(r"([A-Za-z_]\w*):\s*(.*)")

TRAINERS = {"reward-trainer": "reward", "async-grpo": "async-1.16"}
"""Tags of TRL's trainers that are not the names of their eras."""

FRAMEWORKS = ("llama-factory", "ms-swift")


def read_card(folder: Path) -> dict[str, Any]:
    """Return the texts and lists of texts between the first two lines of dashes; empty if there are none."""
    lines = first_bytes(folder / CARD, MAX_CARD_BYTES).decode("utf-8", "replace").splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    card: dict[str, Any] = {}
    name = ""
    for line in lines[1:]:
        if line.strip() == "---":
            return card
        if line.lstrip().startswith("- ") and isinstance(card.get(name), list):
            card[name].append(_unquoted(line.lstrip()[2:]))
        elif entry := ENTRY.fullmatch(line.rstrip()):
            name = entry[1]
            card[name] = _unquoted(entry[2]) if entry[2] else []
    return card


def producer_of_card(card: Mapping[str, Any]) -> str:
    """Return the framework, with its trainer, that wrote a card; "" if it does not tell."""
    tags = card.get("tags")
    tags = tags if isinstance(tags, list) else []
    for framework in FRAMEWORKS:
        if framework in tags:
            return framework
    if "trl" not in tags:
        return ""
    eras = [TRAINERS.get(tag, tag) for tag in tags]
    return next((f"trl/{era}" for era in eras if era in ERAS["trl"]), "trl")


def _unquoted(text: str) -> str:
    return text.strip().strip("'\"")


FILE = "trainer_state.json"

COMPLETIONS = "completions"

CHECKPOINT = re.compile(r"checkpoint-(\d{1,18})")

GLOBAL_STEP = re.compile(rb'"global_step"\s*:\s*(\d{1,18})')

REWARD = re.compile(r"(?:eval_)?rewards/(.+?)(?:/mean|/std)?")

HEAD_BYTES = 64 << 10

MAX_BYTES = 1 << 30

SETTINGS = (
    "max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps", "trial_name",
    "trial_params",
)  # fmt: skip

PLAIN = re.compile(rb'"(?:loss|grad_norm|learning_rate|epoch|step|(?:eval|train|test)_\w+|total_flos|num_\w+)"')

KEY = re.compile(rb'"[^"\n]{1,200}"(?=\s*:)')


def matches(seen: Seen) -> bool:
    """Return whether a file is an object with a history, whatever its name."""
    return seen.head.lstrip(b" \t\r\n")[:1] == b"{" and seen.has(b'"log_history"')


def logs_in(folder: Path, names: Sequence[str]) -> FoundLogs:
    """Return an output directory: one with checkpoints that have a state, which may have completions as well."""
    checkpoints = [name for name in names if CHECKPOINT.fullmatch(name)]
    if not any((folder / name / FILE).is_file() for name in checkpoints):
        return FoundLogs()
    taken = {*checkpoints, FILE, *([COMPLETIONS] if (folder / COMPLETIONS).is_dir() else [])}
    return FoundLogs([Log(folder, "trainer_state")], taken & {*names})


class Reader(LogReader):
    """Reads the rows of the history that are new, and the completions that are."""

    def __init__(self, log: Log, state: dict[str, Any]) -> None:
        super().__init__(log, state)
        state.setdefault("rows", 0)
        state.setdefault("length", 0)  # of the history's text up to the last row that was recorded
        state.setdefault("digest", "")  # of that text
        state.setdefault("rewards", [])
        state.setdefault("completions", {})
        self._is_folder = log.path.is_dir()

    def facts(self) -> Facts:
        """Return the output directory's name, and the trainer that the model card or the names tell."""
        path = self._newest()
        folder = path.parent.parent if CHECKPOINT.fullmatch(path.parent.name) else path.parent
        name = folder.absolute().name if path.name == FILE else ""
        card = read_card(folder) or read_card(path.parent)
        producer = producer_of_card(card) or ("transformers" if _has_plain_names(path) else "")
        return Facts(name=name, project=folder.absolute().parent.name if name else "", producer=producer)

    def files(self) -> list[Path]:
        """Return the newest state and the files of completions."""
        return [self._newest(), *self._completions()]

    def read(self, out: Recorder) -> None:
        """Record rows, settings, completions, and whether the training reached its end."""
        path = self._newest()
        about: dict[str, Any] = {}
        try:
            self._read_state(_text_of(path), about, out)
        except DamagedDocumentError as problem:
            # Not an error while it is being written.
            if is_settled(path):
                out.unread(path.name, f"the rest is damaged or missing: {problem}")
        self._record_settings(about, path, out)
        self._record_end(about, out)
        for file in self._completions():
            self._read_completions(file, out)

    # -- the state -----------------------------------------------------------------------------------------------

    def _newest(self) -> Path:
        """Return the state with the largest step."""
        if not self._is_folder:
            return self.log.path
        own = self.log.path / FILE
        found = [(_step_in(own), 1, own)] if own.is_file() else []
        for entry in self.log.path.glob("checkpoint-*"):
            name = CHECKPOINT.fullmatch(entry.name)
            if name and (entry / FILE).is_file():
                found.append((int(name[1]), 0, entry / FILE))
        return max(found)[-1] if found else own

    def _read_state(self, text: str, about: dict[str, Any], out: Recorder) -> None:
        scanner = JsonScanner(text)
        for name in scanner.members():
            if name == "log_history":
                for entry in self._new_entries(scanner):
                    self._record(entry, out)
            else:
                about[name] = scanner.value()

    def _new_entries(self, scanner: JsonScanner) -> Iterator[Any]:
        """Yield the entries that were not recorded; the text of the others is compared, not parsed."""
        scanner.take("")
        begin, length = scanner.place, self.state["length"]
        known = scanner.text[begin : begin + length]
        if length and (len(known) < length or _digest(known) != self.state["digest"]):
            raise RewrittenError
        scanner.place += length
        entries = scanner.more_entries() if length else scanner.entries()
        try:
            for entry in entries:
                length = scanner.place - begin
                yield entry
        finally:
            self.state.update(length=length, digest=_digest(scanner.text[begin : begin + length]))

    def _record(self, entry: Any, out: Recorder) -> None:
        self.state["rows"] += 1
        if not isinstance(entry, Mapping):
            out.unread(f"row {self.state['rows']}", "not an object")
            return
        step, step_name = step_of(entry)
        values = flat_numbers({name: value for name, value in entry.items() if name != step_name})
        rewards = {found[1] for name in values if (found := REWARD.fullmatch(name))}
        self.state["rewards"] = sorted(rewards.union(self.state["rewards"]))
        self.state["summary"] = "train_runtime" in entry
        out.row(values, step)

    def _record_settings(self, about: Mapping[str, Any], path: Path, out: Recorder) -> None:
        settings = {name: about[name] for name in SETTINGS if about.get(name) is not None}
        folder = path.parent.parent if CHECKPOINT.fullmatch(path.parent.name) else path.parent
        if base := (read_card(folder) or read_card(path.parent)).get("base_model"):
            settings["base_model"] = base
        self.record_config(settings, out, "settings")

    def _record_end(self, about: Mapping[str, Any], out: Recorder) -> None:
        """Tell that the training finished, where it wrote its summary or reached its last step."""
        step, last = as_step(about.get("global_step")), as_step(about.get("max_steps")) or 0
        if self.state.get("summary"):
            out.status("finished", "the trainer wrote its summary")
        elif step is not None and 0 < last <= step:
            out.status("finished", f"step {step} of {last}")
        else:
            known = step is not None and last > 0
            out.status(None, f"the last checkpoint is of step {step} of {last}" if known else "")

    # -- completions ---------------------------------------------------------------------------------------------

    def _completions(self) -> list[Path]:
        if not self._is_folder:
            return []
        return sorted((self.log.path / COMPLETIONS).glob("*.parquet"))

    def _read_completions(self, path: Path, out: Recorder) -> None:
        size, known = path.stat().st_size, self.state["completions"].get(path.name)
        if known == size:
            return
        if known is not None:
            raise RewrittenError
        names = frozenset(self.state["rewards"]) or None
        try:
            for rows in parquet_rows(path):
                record_samples(rows, out, reward_names=names)
        except ImportError:
            self.state["needs"] = PACKAGE
            out.unread(f"{COMPLETIONS}/{path.name}", missing_package())
        except UnreadableTableError as problem:
            if not is_settled(path):
                return
            out.unread(f"{COMPLETIONS}/{path.name}", f"cannot be read: {problem}")
        self.state["completions"][path.name] = size


def _step_in(path: Path) -> int:
    """Return the step in a state's beginning, where it stands before the history; -1 if it does not."""
    found = GLOBAL_STEP.search(first_bytes(path, HEAD_BYTES))
    return int(found[1]) if found else -1


def _has_plain_names(path: Path) -> bool:
    """Return whether the rows have only names that every trainer of transformers logs."""
    _, _, history = first_bytes(path, HEAD_BYTES).partition(b'"log_history"')
    keys = set(KEY.findall(history.partition(b"]")[0]))
    return bool(keys) and all(PLAIN.fullmatch(key) for key in keys)


def _text_of(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_BYTES).decode("utf-8-sig", "replace")


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()


FORMAT = Format("Hugging Face trainer state", Reader, matches, logs_in)
