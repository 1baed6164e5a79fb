"""The page's tabs, and the curves that its charts draw."""

from collections.abc import Callable
from typing import Any

TABS = ("overview", "charts", "time", "memory", "evaluation", "samples", "findings", "compare", "config", "names")
READY = {
    "overview": ".vital canvas", "charts": ".chart canvas", "time": ".gantt", "memory": ".gantt",
    "evaluation": ".mid-plot canvas", "samples": ".sample-detail pre", "compare": ".empty", "config": ".kv",
    "names": ".names-count", "findings": ".findings .banner",
}  # fmt: skip
CURVE = "name => [...document.querySelectorAll('.chart')].find(c => c.dataset.name === name)?.card.plot?.lines[0]?.main"
"""JavaScript: the first line of the chart of a metric."""
Open = Callable[..., Any]
"""Opens an address in a new page, with an optional width and height."""


def drawn(page: Any, name: str) -> dict[str, list[float]]:
    """Wait until a chart is drawn and return the columns of its curve."""
    page.wait_for_function(f"name => ({CURVE})(name)?.x.length", arg=name)
    found: dict[str, list[float]] = page.evaluate(
        f"name => {{ const one = ({CURVE})(name); const fields = ['x', 'x_end', 'min', 'max', 'last', 'nonfinite'];"
        "return Object.fromEntries(fields.map(field => [field, [...one[field]]])); }",
        name,
    )
    return found
