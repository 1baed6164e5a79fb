"""Nodes: the host of each rank, whether the rank is dead, and the time per step of each host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windsock.server.runs.open_runs import OpenRun

PLACES_SECONDS = 2.0  # those of a running run are found out again after this
DEAD = ("crashed", "killed", "stalled")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs, and the word of its status."""

    host: str | None
    status: str


Places = Mapping[tuple[str, int], Place]
"""By role and rank."""


def places(opened: OpenRun) -> Places:
    """Return the place of the newest attempt of each rank."""

    def find() -> Places:
        hosts = opened.view.writer_hosts()
        return {
            (writer.role, writer.rank): Place(hosts.get(writer), status.word)
            for writer, status in opened.view.writer_statuses().items()
        }

    return opened.cached("places", find, PLACES_SECONDS)


def hosts_of(found: Places) -> set[str]:
    """Return the hosts of a run."""
    return {place.host for place in found.values() if place.host is not None}


def with_places(ranks: list[dict[str, Any]], found: Places) -> list[dict[str, Any]]:
    """Return the times of ranks with their places, and ranks without times where they are dead or there are nodes."""
    if not ranks:
        return []
    unknown = Place(None, "unknown")
    timed = {(one["role"], one["rank"]): one for one in ranks}
    are_nodes = len(hosts_of(found)) > 1
    untimed: list[dict[str, Any]] = [
        {"writer": f"{role}/{rank}", "role": role, "rank": rank, "seconds": None, "phases": {}}
        for (role, rank), place in found.items()
        if (role, rank) not in timed and (are_nodes or place.status in DEAD)
    ]
    placed = [(one, found.get((one["role"], one["rank"]), unknown)) for one in (*ranks, *untimed)]
    return [{**one, "host": place.host, "status": place.status} for one, place in placed]


def node_records(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the hosts of ranks with their mean time per step, slowest first; none where there is only one."""
    by_host: dict[str | None, list[dict[str, Any]]] = {}
    for one in ranks:
        by_host.setdefault(one["host"], []).append(one)
    if len(by_host) < 2:
        return []
    records = [
        {
            "host": host,
            "seconds": _mean([one["seconds"] for one in of_host if one["seconds"] is not None]),
            "ranks": len(of_host),
            "dead": sum(one["status"] in DEAD for one in of_host),
        }
        for host, of_host in by_host.items()
    ]
    return sorted(records, key=lambda node: (-(node["seconds"] or 0.0), node["host"] or ""))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
