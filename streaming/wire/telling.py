"""Which of the session's words a client has been told. Pure.

Segments are whole states that come again and grow; most protocols tell each word once. Words have an index in
the transcript of their track and come in its order; one that moves to another segment keeps its index.
"""

from __future__ import annotations

from msgspec import UNSET

from .messages import Activity, Gap, Segment, Word


class Telling:
    """One client's."""

    def __init__(self) -> None:
        self._told: dict[int, int] = {}

    def news(self, segment: Segment) -> tuple[Word, ...]:
        """Its words that were not told before."""
        return segment.words[max(0, self._told.get(track_of(segment), 0) - segment.first_word) :]

    def tell(self, segment: Segment, most: int | None = None) -> tuple[Word, ...]:
        """The same, `most` of them at most; from now on they are told."""
        news = self.news(segment)
        words = news[:most]
        if words:
            waiting = len(news) - len(words)
            self._told[track_of(segment)] = segment.first_word + len(segment.words) - waiting
        return words


def track_of(message: Segment | Activity | Gap) -> int:
    """Index of its track; 0 without tracks."""
    return 0 if message.track is UNSET else message.track
