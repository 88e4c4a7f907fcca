"""Final segments that wait to know who spoke, for a while: where words are told once, their speaker is not
revised. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from streaming.wire.messages import Segment, Speaker
from streaming.wire.telling import track_of

WAIT_MS = 2500
"""So long after its end a segment waits."""


class Unattributed:
    """One client's."""

    def __init__(self) -> None:
        self._waiting: dict[int, Segment] = {}

    def add(self, segment: Segment) -> None:
        """It is final."""
        self._waiting[segment.id] = segment

    def revise(self, news: Speaker) -> None:
        """Another speaker for a segment; of those that do not wait nothing is to be said any more."""
        if (found := self._waiting.get(news.segment)) is not None:
            self._waiting[news.segment] = replace(found, speaker=news.speaker, name=news.name)

    def waits(self, track: int) -> bool:
        """Whether one of this track does."""
        return any(track_of(segment) == track for segment in self._waiting.values())

    def release(self, clock: int, *, all: bool = False) -> Iterator[Segment]:
        """Those that need wait no longer at `clock` (ms), in the order of their words: of each track up to
        the first that has to. `all`: nobody has to."""
        blocked: set[int] = set()
        for segment in sorted(self._waiting.values(), key=lambda s: (track_of(s), s.first_word)):
            known = segment.speaker is not None or not segment.words
            if track_of(segment) in blocked or not (all or known or clock >= segment.end_ms + WAIT_MS):
                blocked.add(track_of(segment))
                continue
            del self._waiting[segment.id]
            yield segment
