"""Throughput: what was counted since the last commit over the time since the last commit. No window, no lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windsock.probe.names import Value


def rates(
    amounts: Mapping[str, float], totals: Mapping[str, float], seconds: float, devices: int | None = None
) -> Iterator[Value]:
    """Yield a step's rates and counters.

    ``amounts`` were counted in this step and took ``seconds``; ``totals`` are since the run began. What was not counted
    is missing; so is a rate of a step that took no time, and one per device where their number is not known.
    """
    tokens, episodes = amounts.get("tokens"), amounts.get("episodes")
    if tokens is not None:
        yield "system/tokens", (), tokens
        if seconds > 0:
            yield "system/tokens_per_second", (), tokens / seconds
            if devices:
                yield "system/tokens_per_second_per_device", (), tokens / seconds / devices
    if episodes is not None and seconds > 0:
        yield "system/episodes_per_second", (), episodes / seconds
    for counter in ("samples", "episodes"):
        if counter in totals:
            yield f"system/{counter}", (), totals[counter]
