"""A list of seconds as the six figures that every table shows. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds; all None where nothing was measured."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def summarize(values: Sequence[float]) -> Summary:
    """Mean, percentiles (nearest rank: always a value that was measured) and maximum."""
    if not values:
        return Summary()
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return Summary(
        count=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=rank(0.50),
        p95=rank(0.95),
        p99=rank(0.99),
        max=ordered[-1],
    )
