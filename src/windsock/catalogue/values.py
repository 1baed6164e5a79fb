"""What the values of a series say about its meaning: estimates and shares have ranges that others do not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from windsock.catalogue.names import Match
from windsock.catalogue.spec import Text

Series = Callable[[str], Iterable[float]]
_NEVER_NEGATIVE = ("k2", "k3")
_SHARES = ("fraction", "probability")
_ROUNDING = 1e-6
_NEAR_ZERO = 0.1  # nats: a signed estimate of so small a KL is negative about as often as positive
_ENOUGH = 10  # values near 0 without a negative one: less than one chance in a hundred for a signed estimate
_SAME_RATIO = 0.25  # spread of the middle half of a ratio, relative to its median, that counts as constant


def contradiction(name: str, match: Match, series: Series) -> Text | None:
    """Return why the values of a name cannot be those of a metric; None where they can."""
    metric, difference = match.metric, match.name.difference
    changed = difference is not None and {"sign", "unit", "meaning", "estimator"} & set(difference.kinds)
    is_configured = difference is not None and "estimator" in difference.kinds
    positive = _estimator(match) in _NEVER_NEGATIVE and not is_configured
    if not (positive or (metric.unit in _SHARES and not changed)):
        return None
    values = _finite(series(name))
    negative = sum(value < -_ROUNDING for value in values)
    what = f"a {_estimator(match)} estimate" if positive else "a share"
    zh = f"{_estimator(match)} 估计" if positive else "比例"
    if negative:
        return Text(
            f"It is not {metric.id}: {what} is never negative, and {negative} of {len(values)} values are.",
            f"不是 {metric.id}：{zh}不会为负，而 {len(values)} 个值中有 {negative} 个为负。",
        )
    above = sum(value > 1.0 + _ROUNDING for value in values) if metric.unit in _SHARES and not changed else 0
    if above:
        return Text(
            f"It is not {metric.id}: a share is at most 1, and {above} of {len(values)} values are above.",
            f"不是 {metric.id}：比例最大为 1，而 {len(values)} 个值中有 {above} 个更大。",
        )
    return None


def doubt(name: str, match: Match, series: Series) -> Text | None:
    """Return why the values of a name are hardly those of a signed estimate; None where they may be."""
    if _estimator(match) != "k1":
        return None
    values = _finite(series(name))
    near = [value for value in values if abs(value) < _NEAR_ZERO]
    if min(values, default=-1.0) >= 0.0 and len(near) >= _ENOUGH:
        return Text(
            f"It is hardly {match.metric.id}: a signed estimate is negative about half of the time when it is small, "
            f"and none of {len(near)} small values is.",
            f"不太可能是 {match.metric.id}：带符号的估计接近 0 时约半数为负，而 {len(near)} 个接近 0 的值都不为负。",
        )
    beta = _share_of_loss(name, values, series)
    if beta is not None:
        return Text(
            f"It is hardly {match.metric.id}: the loss is {beta:.2g} times this value in most steps, so that it is a "
            "term of the loss.",
            f"不太可能是 {match.metric.id}：多数步中损失是该值的 {beta:.2g} 倍，可见它是损失的一项。",
        )
    return None


def _estimator(match: Match) -> str:
    """Return the estimator of the logged number, which a difference may change."""
    difference = match.name.difference
    return "" if difference is not None and "sign" in difference.kinds else match.metric.estimator


def _share_of_loss(name: str, values: list[float], series: Series) -> float | None:
    """Return the constant ratio of the loss to a series, or None where it is not constant or not positive."""
    head = name[: len(name) - len(name.rpartition("/")[2])]
    losses = _finite(series(f"{head}loss"))
    if len(losses) != len(values):
        return None
    ratios = sorted(loss / value for loss, value in zip(losses, values, strict=True) if value > _ROUNDING)
    if len(ratios) < _ENOUGH:
        return None
    low, middle, high = (ratios[len(ratios) * quarter // 4] for quarter in (1, 2, 3))
    return middle if middle > 0 and high - low <= _SAME_RATIO * middle else None


def _finite(values: Iterable[float]) -> list[float]:
    return [float(value) for value in values if abs(value) < float("inf")]
