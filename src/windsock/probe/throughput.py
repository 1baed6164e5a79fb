"""Throughput of a step: its counts over its duration. There is no window and no lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windsock.probe.names import Value


def rates(
    amounts: Mapping[str, float], totals: Mapping[str, float], seconds: float, devices: int | None = None
) -> Iterator[Value]:
    """Yield a step's rates and counters.

    ``amounts`` are this step's counts and ``seconds`` its duration; ``totals`` are the counts since the run began.
    Values that were not counted are missing, and so are rates of a step of no duration, and rates
    per device where the number of devices is unknown.
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
