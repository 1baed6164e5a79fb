"""The facts about a run on a terminal: times, writers, trackers, open phases, where it is from."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from barograph.answers.moments import Moment, moments
from barograph.answers.phases import open_phases
from barograph.base.formatting import counted, ranges
from barograph.base.model import Status, Writer
from barograph.catalogue.spec import Text
from barograph.delivery.relay.state import DeliveryState, read_delivery_states
from barograph.journal.view import View

MAX_RANKS = 8  # of a role, and open phases, that are listed one by one

MAX_MOMENTS = 5  # of a kind

MAX_RANGES = 3  # of ranks with the same status

WORDS = {
    "id": Text("id", "编号"),
    "project": Text("project", "项目"),
    "started": Text("started", "开始"),
    "writers": Text("writers", "写入进程"),
    "none": Text("none", "无"),
    "path": Text("path", "路径"),
    "log": Text("log", "日志"),
    "format": Text("format", "格式"),
    "reading": Text("reading", "读取"),
    "tracker": Text("tracker {name}", "tracker {name}"),
    "phase": Text("phase", "阶段"),
    "command": Text("command", "命令"),
    "commit": Text("commit", "提交"),
    "changes": Text(", uncommitted changes", "，有未提交的修改"),
    "annotation": Text("annotations", "注记"),
    "restart": Text("restarts", "重启"),
    "config": Text("changes", "配置变更"),
    "checkpoint": Text("checkpoints", "检查点"),
    "at step": Text("step {step:,}: {text}", "第 {step:,} 步：{text}"),
    "last at": Text("{count:,}, the last at step {step:,}", "{count:,} 个，最近在第 {step:,} 步"),
    "tags": Text("tags", "标签"),
    "notes": Text("notes", "备注"),
}


def run_facts(view: View, lang: str) -> dict[str, str]:
    """Return the facts about a run, by their titles."""
    info = view.info
    facts = {
        "id": info.id,
        "project": info.project,
        "started": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.span[0])),
        "writers": ", ".join(_writers(view)) or WORDS["none"].get(lang),
        "path": str(view.location),
        **_origin(view),
        "phase": _first_phases(open_phases(view)),
        **_source(view, lang),
        **_moments(view, lang),
        "tags": ", ".join(info.tags),
        "notes": info.notes,
    }
    named = {WORDS[key].get(lang): text for key, text in facts.items() if text}
    deliveries = read_delivery_states(view.path)
    return named | {WORDS["tracker"].get(lang).format(name=one.tracker): _delivery(one) for one in deliveries}


def _moments(view: View, lang: str) -> dict[str, str]:
    """Return what happened at which step, of each kind the last few."""
    by_kind: dict[str, list[Moment]] = {}
    for moment in moments(view):
        by_kind.setdefault(moment.kind, []).append(moment)
    saved = by_kind.pop("checkpoint", [])
    facts = {
        kind: "\n".join(WORDS["at step"].get(lang).format(step=one.step, text=one.text) for one in found[-MAX_MOMENTS:])
        for kind, found in by_kind.items()
    }
    if saved:
        facts["checkpoint"] = WORDS["last at"].get(lang).format(count=len(saved), step=saved[-1].step)
    return facts


def _source(view: View, lang: str) -> dict[str, str]:
    """Return command and commit of the training."""
    command, git = view.environment.get("command"), view.environment.get("git")
    facts = {"command": " ".join(command[1:])} if command else {}
    if git:
        changes = "" if git["clean"] else WORDS["changes"].get(lang)
        facts["commit"] = f"{git['commit'][:12]} ({git['branch']}{changes})"
    return facts


def _origin(view: View) -> dict[str, str]:
    """Return what is known about the log that a run was read from."""
    origin = view.origin
    if origin is None:
        return {}
    facts = {} if view.location != view.path else {"log": origin.path}
    facts["format"] = origin.title
    return facts | ({"reading": "\n".join(origin.notes)} if origin.notes else {})


def _delivery(delivery: DeliveryState) -> str:
    """Describe the state of a tracker's delivery."""
    facts = [delivery.state, f"{counted(delivery.delivered, 'row')} delivered"]
    facts += [f"{delivery.pending} pending"] if delivery.pending else []
    facts += [f"{delivery.dropped:,} rejected"] if delivery.dropped else []
    facts += [f"{counted(delivery.skipped, 'value')} skipped"] if delivery.skipped else []
    error = f": {delivery.error}" if delivery.error and delivery.state != "done" else ""
    return ", ".join(facts) + error + (f"  {delivery.url}" if delivery.url else "")


def _first_phases(phases: Sequence[str]) -> str:
    more = [f"and {len(phases) - MAX_RANKS:,} more"] if len(phases) > MAX_RANKS else []
    return "; ".join([*phases[:MAX_RANKS], *more])


def _writers(view: View) -> Iterator[str]:
    by_role: dict[str, dict[Writer, Status]] = {}
    for writer, status in view.writer_statuses().items():
        by_role.setdefault(writer.role, {})[writer] = status
    for role, statuses in by_role.items():
        if len(statuses) > MAX_RANKS:
            yield _many_ranks(role, statuses)
            continue
        for writer, status in statuses.items():
            attempts = f" (attempt {writer.attempt})" if writer.attempt > 1 else ""
            yield f"{writer}{attempts} {status.word}"


def _many_ranks(role: str, statuses: Mapping[Writer, Status]) -> str:
    """Return the number of ranks with each status; of the rarer ones, which ranks have it."""
    by_word: dict[str, list[int]] = {}
    for writer, status in statuses.items():
        by_word.setdefault(status.word, []).append(writer.rank)
    (most, common), *others = sorted(by_word.items(), key=lambda entry: -len(entry[1]))
    counts = [f"{len(common):,} {most}"] if others else [most]
    counts += [f"{len(ranks):,} {word} ({ranges(ranks, MAX_RANGES)})" for word, ranks in others]
    restarted = sum(writer.attempt > 1 for writer in statuses)
    counts += [f"{restarted:,} restarted"] if restarted else []
    return f"{len(statuses):,} ranks of {role} {', '.join(counts)}"
