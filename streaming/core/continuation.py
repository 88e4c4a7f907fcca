"""Where a session left off, for one that goes on after its process is gone."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract import FRAME, Word

from .events import Covered
from .spans import to_samples

REACH = to_samples(3.0)
"""Audio before what is settled that is heard again, as every window begins a little before the newest word:
a word at the seam is heard whole, behind words that are known."""


def wanted(settled: int, reach: int = REACH) -> int:
    """The first sample that a session settled up to `settled` wants again, at the beginning of a frame."""
    return max(0, settled - reach) // FRAME * FRAME


@dataclass(frozen=True, slots=True)
class Continuation:
    """What one track had settled: a session given it goes on there, with the audio from `clock` on."""

    settled: int = 0
    """Samples before this are accounted for and are not decoded again."""
    words: tuple[Word, ...] = ()
    """The newest committed words: context, and what new words must follow."""
    count: int = 0
    """Words committed in all."""
    spans: tuple[Covered, ...] = ()
    """What became of [0, settled)."""
    language: str | None = None
    """The language last spoken, where it was not pinned."""

    reach: int = REACH
    """Samples before `settled` that are there to be heard again."""

    @property
    def clock(self) -> int:
        """The first sample wanted again, where a frame begins."""
        return wanted(self.settled, self.reach)

    @property
    def origin(self) -> int:
        """Where the first window begins: behind a known word that `clock` cuts, lest it be heard again."""
        cut = [word.end for word in self.words if word.start + word.end < 2 * self.clock]
        return max(self.clock, cut[-1] if cut else 0)


NOTHING = Continuation()
