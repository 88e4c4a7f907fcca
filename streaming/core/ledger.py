"""Every received sample becomes text, silence or a declared gap, exactly once.

The ledger is filled in order of time: `cover` takes the clock on from where it stood. Neighbours of the
same kind merge, so that an eight hour meeting of a thousand turns keeps a few thousand spans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .events import Cover, Covered, Receipt


class Ledger:
    """Spans tile [0, `covered`) without hole or overlap."""

    def __init__(self, spans: Iterable[Covered] = ()) -> None:
        self._spans: list[Covered] = []
        self.covered = 0
        for span in spans:
            self.cover(span.end, span.cover, span.cause)

    def cover(self, until: int, cover: Cover, cause: str | None = None) -> None:
        """What [covered, until) became; an `until` not past `covered` adds nothing."""
        if (cause is not None) != (cover is Cover.GAP):
            raise ValueError("a gap, and only a gap, has a cause")
        if until <= self.covered:
            return
        start = self.covered
        if self._spans and (self._spans[-1].cover, self._spans[-1].cause) == (cover, cause):
            start = self._spans.pop().start
        self._spans.append(Covered(start, until, cover, cause))
        self.covered = until

    @property
    def spans(self) -> tuple[Covered, ...]:
        return tuple(self._spans)


_WEIGHT = {Cover.SILENCE: 0, Cover.TEXT: 1, Cover.GAP: 2}


def merged(receipts: Sequence[Receipt]) -> Receipt:
    """One receipt for tracks on one clock: a sample is a gap if it is one on any track, else text if it is
    on any."""
    ledger = Ledger()
    borders = sorted({span.end for receipt in receipts for span in receipt.spans})
    places = [0] * len(receipts)
    for border in borders:
        spans = []
        for i, receipt in enumerate(receipts):
            while receipt.spans[places[i]].end < border:
                places[i] += 1
            spans.append(receipt.spans[places[i]])
        most = max(spans, key=lambda span: _WEIGHT[span.cover])
        ledger.cover(border, most.cover, most.cause)
    return Receipt(receipts[0].samples, sum(receipt.words for receipt in receipts), ledger.spans)
