"""Where a session left off, for one that goes on after its process is gone."""

from __future__ import annotations

from dataclasses import dataclass

from engine.contract import FRAME, Word

from .events import Covered


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

    @property
    def clock(self) -> int:
        """The frame in which `settled` lies begins here: the first sample wanted again."""
        return self.settled // FRAME * FRAME


NOTHING = Continuation()
