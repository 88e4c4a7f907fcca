"""From the session's segments to Deepgram's ranges: what is told as final, in which order, and when. Pure.

Deepgram's final words are never told again and their speaker is not revised. So a final waits until it is
known who spoke, for a while; and the committed words of a long segment are told before its end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import UNSET

from streaming.wire.messages import Activity, Segment, Speaker, Word
from streaming.wire.telling import Telling, track_of

from .attribution import Unattributed
from .deepgram_shapes import Said

LONG_MS = 3000
"""Committed words of a segment that goes on are told once they are so long."""


@dataclass(slots=True)
class Channel:
    """What was told of one."""

    at: int = 0
    """The end of what is final, milliseconds."""
    last_word_end: int = 0
    ended: bool = True
    """Whether the end of the utterance was told, or there is none."""
    interim: str = ""
    speaking: bool = False
    since: int = 0
    """Since when it speaks, or is silent."""


class Finals:
    """One stream's."""

    def __init__(self, channels: int, *, diarize: bool, endpoints: bool, punctuated: bool) -> None:
        self.channels = tuple(Channel() for _ in range(channels))
        self._diarize = diarize
        self._endpoints = endpoints
        self._punctuated = punctuated
        self._telling = Telling()
        self._open: set[int] = set()
        """Segments that were shown and are not told to the end."""
        self._waiting = Unattributed()
        self._clock = 0

    def activity(self, news: Activity) -> None:
        """Somebody began to speak, or stopped."""
        channel = self.channels[track_of(news)]
        channel.speaking, channel.since = news.speaking, news.at_ms

    def arrived(self, clock: int) -> None:
        """All audio before `clock` (ms) is there."""
        self._clock = max(self._clock, clock)

    def revise(self, news: Speaker) -> None:
        """Another speaker for a segment."""
        self._waiting.revise(news)

    def take(self, segment: Segment) -> Iterator[Said]:
        """A segment's state: an interim, or a final that waits to be released."""
        if segment.final:
            if segment.id in self._open or self._telling.news(segment):
                self._waiting.add(segment)
                self._open.add(segment.id)
            return
        self._open.add(segment.id)
        words = self._telling.news(segment)
        if not self._diarize and words and words[-1].end_ms - words[0].start_ms >= LONG_MS:
            yield self._final(segment, words[-1].end_ms, endpoint=False)
        yield from self._interim(segment)

    def release(self, *, all: bool = False) -> list[Said]:
        """The finals that need wait no longer, in the order of their words."""
        found: list[Said] = []
        for segment in self._waiting.release(self._clock, all=all or not self._diarize):
            self._open.discard(segment.id)
            found.append(self._final(segment, segment.end_ms, endpoint=self._stopped(segment)))
        return found

    def empty(self, track: int) -> Said:
        """Nothing new on a channel: the answer to Finalize."""
        at = self.channels[track].at
        return Said(self._index(track), at, at, final=True, finalize=True, punctuated=self._punctuated)

    def utterances(self, silence: int) -> Iterator[tuple[tuple[int, int], int]]:
        """Channels silent for so long (ms) after their last word, and when that ended; each once."""
        for track, channel in enumerate(self.channels):
            # Told late, where speech began again before the words were there: the silence was as long.
            until = channel.since if channel.speaking else self._clock
            if channel.ended or self._waiting.waits(track) or (channel.interim and not channel.speaking):
                continue
            if until - channel.last_word_end >= silence:
                channel.ended = True
                yield self._index(track), channel.last_word_end

    def _index(self, track: int) -> tuple[int, int]:
        return track, len(self.channels)

    def _stopped(self, segment: Segment) -> bool:
        """Whether the speech stopped behind it: not where it is one stretch with what follows."""
        channel = self.channels[track_of(segment)]
        return self._endpoints and not (channel.speaking and channel.since < segment.end_ms)

    def _final(self, segment: Segment, end: int, *, endpoint: bool) -> Said:
        track = track_of(segment)
        channel, words = self.channels[track], self._telling.tell(segment)
        start, channel.at, channel.interim = channel.at, max(channel.at, end), ""
        if words:
            channel.last_word_end, channel.ended = words[-1].end_ms, False
            channel.at = max(channel.at, words[-1].end_ms)
        said = self._said(segment, words, start, channel.at)
        return dataclasses.replace(said, final=True, endpoint=endpoint)

    def _interim(self, segment: Segment) -> Iterator[Said]:
        track = track_of(segment)
        channel, words = self.channels[track], self._telling.news(segment)
        start = words[-1].end_ms if words else max(channel.at, segment.start_ms)
        words = (*words, *guessed(segment.partial, start, max(start, segment.end_ms)))
        text = "\n".join(word.text for word in words)
        if text and text != channel.interim:
            channel.interim = text
            end = max(channel.at, segment.end_ms, words[-1].end_ms)
            yield self._said(segment, words, channel.at, end)

    def _said(self, segment: Segment, words: Sequence[Word], start: int, end: int) -> Said:
        speaker = segment.speaker - 1 if self._diarize and segment.speaker is not None else None
        return Said(
            self._index(track_of(segment)),
            start,
            end,
            words,
            (speaker,) * len(words),
            language=None if segment.language is UNSET else segment.language,
            punctuated=self._punctuated,
        )


def guessed(partial: str, start: int, end: int) -> tuple[Word, ...]:
    """The words of text that may still change, spread evenly: nobody knows yet when they were spoken."""
    texts = partial.split()
    step = (end - start) / len(texts) if texts else 0.0
    return tuple(
        Word(text, round(start + step * at), round(start + step * (at + 1))) for at, text in enumerate(texts)
    )
