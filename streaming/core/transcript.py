"""The append-only transcript and the segments that show it.

Words are appended, never changed. Only the newest words are kept here (for the engine's context and
prefix); older ones live in the events already sent, so a session's memory does not grow with the meeting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.contract import Word, join

from .events import SegmentUpdated

KEEP = 400  # words: far more than any engine's context


class Transcript:
    """Committed words: how many there are, and the newest of them."""

    def __init__(self, recent: Iterable[Word] = (), count: int = 0) -> None:
        self._recent: deque[Word] = deque(recent, maxlen=KEEP)
        self.count = count

    def append(self, words: tuple[Word, ...]) -> None:
        self._recent.extend(words)
        self.count += len(words)

    @property
    def end(self) -> int:
        """End of the last committed word, samples; 0 before the first."""
        return self._recent[-1].end if self._recent else 0

    def since(self, sample: int) -> tuple[Word, ...]:
        """Kept words whose middle is at or after `sample`: the forced prefix of a window from there."""
        words = []
        for word in reversed(self._recent):
            if word.start + word.end < 2 * sample:
                break
            words.append(word)
        return tuple(reversed(words))

    def before(self, sample: int, reach: int) -> str:
        """Text of the words between `sample - reach` and `sample`: the context of a window from there."""
        words = []
        for word in reversed(self._recent):
            middle = word.start + word.end
            if middle < 2 * (sample - reach):
                break
            if middle < 2 * sample:
                words.append(word)
        return join(words[::-1])


@dataclass(slots=True)
class Segment:
    """One stretch of speech as readers see it; `end` is None while it is being spoken."""

    start: int
    end: int | None = None
    voice_end: int = 0
    """End of its last voiced frame, once `end` is known."""
    id: int | None = None
    revision: int = 0
    first_word: int = 0
    words: list[Word] = field(default_factory=list)
    partial: tuple[Word, ...] = ()
    told: int = 0
    """Committed words in the newest revision."""

    def ends_by(self, sample: int) -> bool:
        """Whether it is known to end at `sample` or before."""
        return self.end is not None and self.end <= sample

    def update(self, now: int, language: str | None, *, final: bool) -> SegmentUpdated:
        """The next revision of this segment; `now` stands in for an end not known yet."""
        if self.id is None:
            raise ValueError("a segment is numbered before it is shown")
        self.revision += 1
        shown = (*self.words, *self.partial)
        end = self.end if self.end is not None else (shown[-1].end if shown else now)
        return SegmentUpdated(
            segment=self.id,
            revision=self.revision,
            first_word=self.first_word,
            start=self.start,
            end=max(end, self.start),
            words=tuple(self.words),
            partial=self.partial,
            final=final,
            language=language,
        )
