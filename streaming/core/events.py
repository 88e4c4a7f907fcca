"""What the core says. Times are samples on the session clock."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.contract import Word


class Cover(StrEnum):
    """What a received sample became."""

    TEXT = "text"
    SILENCE = "silence"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Covered:
    """A half-open span of the session clock and what became of it; `cause` only for gaps."""

    start: int
    end: int
    cover: Cover
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentUpdated:
    """The whole present state of one segment: an upsert by `segment`, newest `revision` wins.

    `words` are committed; `partial` may change freely. Words only grow, but for a split: where two people
    turn out to have spoken, the last words move, unchanged, to new segments, even after `final`.
    """

    segment: int
    revision: int
    first_word: int
    """Index of the segment's first word in the session's append-only transcript."""
    start: int
    end: int
    words: tuple[Word, ...]
    partial: tuple[Word, ...]
    final: bool
    language: str | None = None
    track: int | None = None
    """Index of the participant's track; None where all share one."""
    speaker: int | None = None
    """Number of the speaker in the meeting, from 1; None while it is not known."""


@dataclass(frozen=True, slots=True)
class SpeakerRevised:
    """Another speaker for a segment whose words stay as they are; `revision` counts on from the segment's.

    `frozen`: no other will come. `score` is the similarity of the voice, -1 to 1."""

    segment: int
    revision: int
    speaker: int | None
    frozen: bool
    score: float | None = None


@dataclass(frozen=True, slots=True)
class SpeakerNamed:
    """A speaker has a name from now on, for everything said before too; `score` for a recognized voice."""

    speaker: int
    name: str
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """[start, end), in which one person is heard; turns that overlap are overlapped speech. `speaker` is None
    where nobody knows who it is."""

    start: int
    end: int
    speaker: int | None


@dataclass(frozen=True, slots=True)
class TurnsSettled:
    """Who was heard when, by the voices alone, whatever words there are; will not change any more. Goes on
    where the last one ended: who is heard across that border has a turn on either side of it."""

    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class GapDeclared:
    start: int
    end: int
    cause: str
    track: int | None = None


@dataclass(frozen=True, slots=True)
class ActivityChanged:
    """Somebody began to speak at `at`, or stopped there."""

    speaking: bool
    at: int
    track: int | None = None


@dataclass(frozen=True, slots=True)
class Flushed:
    """Everything before `sample` is final; answers the flush of this id."""

    id: str
    sample: int


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of every received sample: the spans tile [0, samples) in order."""

    samples: int
    words: int
    spans: tuple[Covered, ...]

    def total(self, cover: Cover) -> int:
        """Samples covered so."""
        return sum(s.end - s.start for s in self.spans if s.cover is cover)


@dataclass(frozen=True, slots=True)
class Ended:
    receipt: Receipt
    tracks: tuple[Receipt, ...] = ()
    """One for each track, where there are several; then `receipt` sums them up."""


Event = (
    SegmentUpdated
    | SpeakerRevised
    | SpeakerNamed
    | TurnsSettled
    | GapDeclared
    | ActivityChanged
    | Flushed
    | Ended
)
