"""Captions of a session that goes on, as cues that never change once they are given out. Pure.

The same cues as of the whole recording (`cues`), but for what is not known in time: who spoke is who it is
by then, and a cue that somebody else's later one was given out before begins no earlier than that.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import UNSET
from msgspec.structs import replace as changed

from .cues import Cue, counted, ending
from .messages import Named, Segment, Speaker
from .render import UNKNOWN, by_time, speaker_name
from .telling import Telling


class GrowingCues:
    """Takes messages in their order; committed words come out once, in order of time."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        """Those with words that wait, by id."""
        self._telling = Telling()
        """Which words are in cues."""
        self._names: dict[int, str] = {}
        self._held: list[Cue] = []
        """Whole, but for when they end."""
        self._newest_ms = 0
        self._known = False

    def receive(self, message: object) -> None:
        """What is no news of words or speakers is nothing."""
        match message:
            case Segment():
                self._segments[message.id] = message
            case Speaker(segment=id) if id in self._segments:
                self._segments[id] = changed(self._segments[id], speaker=message.speaker, name=message.name)
            case Named(speaker=number, name=name):
                self._names[number] = name

    def take(self, now_ms: float) -> list[Cue]:
        """Cues that are whole once so much was heard; at infinity all are."""
        for segment in by_time(self._segments.values()):
            self._gather(segment, over=now_ms == float("inf"))
        held, self._held = sorted(self._held, key=lambda cue: cue.start_ms), []
        given: list[Cue] = []
        for index, cue in enumerate(held):
            following = held[index + 1].start_ms if index + 1 < len(held) else None
            end_ms = ending(cue, following)
            if following is None and now_ms < end_ms:
                self._held.append(cue)  # whoever speaks next may cut it short
                continue
            self._newest_ms = max(self._newest_ms, cue.start_ms)
            given.append(replace(cue, start_ms=self._newest_ms, end_ms=max(end_ms, self._newest_ms + 1)))
        return given

    def close(self, before_ms: int) -> None:
        """From now on no cue begins before this."""
        self._newest_ms = max(self._newest_ms, before_ms)

    def _gather(self, segment: Segment, *, over: bool) -> None:
        whole = segment.final or over
        found = list(counted(self._telling.news(segment), self._speaker(segment)))
        if not whole:
            found = found[:-1]
        self._held += [cue for _, cue in found]
        self._telling.tell(segment, sum(count for count, _ in found))
        if whole:
            del self._segments[segment.id]

    def _speaker(self, segment: Segment) -> str | None:
        if segment.speaker in self._names:
            segment = changed(segment, name=self._names[segment.speaker] or UNSET)
        # Without a name of its own a cue would read as the last one's that has one.
        name = speaker_name(segment)
        self._known = self._known or name is not None
        return name or (UNKNOWN if self._known else None)
