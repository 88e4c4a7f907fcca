"""What a session said, kept for those who ask over HTTP. Pure.

`present` turns the core's events into wire messages: the only place where samples become milliseconds.
A `Record` keeps closed segments packed (some 30 bytes a word), so a meeting of 8 hours stays small.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from engine.contract import Word as CoreWord
from engine.contract import join

from .core.events import (
    Cover,
    Ended,
    Event,
    Flushed,
    GapDeclared,
    Receipt,
    SegmentUpdated,
    SpeakerNamed,
    SpeakerRevised,
)
from .packed import pack, unpack
from .wire import messages as wire
from .wire.render import by_time, render

FORMATS = {
    "json": ("json", "application/json"),
    "txt": ("text", "text/plain; charset=utf-8"),
    "srt": ("srt", "application/x-subrip; charset=utf-8"),
    "vtt": ("vtt", "text/vtt; charset=utf-8"),
    "rttm": ("rttm", "text/plain; charset=utf-8"),
    "ctm": ("ctm", "text/plain; charset=utf-8"),
    "stm": ("stm", "text/plain; charset=utf-8"),
}
"""By file ending: the renderer's name and the media type."""

_PER_MS = wire.CLOCK_RATE // 1000


def ms(sample: int) -> int:
    """Milliseconds on the audio clock, rounded down, so that touching spans still touch."""
    return sample // _PER_MS


Kept = wire.Segment | wire.Speaker | wire.Named | wire.Gap | wire.Flushed | wire.Ended
"""What an event is on the wire."""


def present(event: Event) -> Kept:
    """The event as the client gets it; the writer numbers it."""
    match event:
        case SegmentUpdated():
            return _segment(event)
        case SpeakerRevised(segment, revision, speaker, frozen, score):
            return wire.Speaker(0, segment, revision, speaker, frozen, score=_rounded(score))
        case SpeakerNamed(speaker, name, score):
            return wire.Named(0, speaker, name, _rounded(score))
        case GapDeclared(start, end, cause, track):
            return wire.Gap(0, ms(start), ms(end), cause, UNSET if track is None else track)
        case Flushed(id, sample):
            return wire.Flushed(0, id, sample)
        case Ended(receipt, tracks):
            return wire.Ended(0, _receipt(receipt), tuple(map(_receipt, tracks)) if tracks else UNSET)
    assert_never(event)


def _segment(event: SegmentUpdated) -> wire.Segment:
    text = join(event.words)
    partial = join(event.partial)
    if text and partial and event.partial[0].space:
        partial = f" {partial}"
    return wire.Segment(
        seq=0,
        id=event.segment,
        rev=event.revision,
        first_word=event.first_word,
        start_ms=ms(event.start),
        end_ms=ms(event.end),
        speaker=event.speaker,
        text=text,
        words=tuple(map(_word, event.words)),
        partial=partial,
        final=event.final,
        language=UNSET if event.language is None else event.language,
        track=UNSET if event.track is None else event.track,
    )


def _rounded(score: float | None) -> float | UnsetType:
    return UNSET if score is None else round(score, 3)


def _word(word: CoreWord) -> wire.Word:
    return wire.Word(
        word.text,
        ms(word.start),
        ms(word.end),
        _rounded(word.confidence),
        UNSET if word.space else False,
    )


def _receipt(receipt: Receipt) -> wire.Receipt:
    text, silence, gap = (receipt.total(c) for c in (Cover.TEXT, Cover.SILENCE, Cover.GAP))
    return wire.Receipt(
        samples=receipt.samples,
        duration_ms=ms(receipt.samples),
        words=receipt.words,
        text_samples=text,
        silence_samples=silence,
        gap_samples=gap,
        text_ms=ms(text),
        silence_ms=ms(silence),
        gap_ms=ms(gap),
        spans=tuple(
            wire.Span(s.start, s.end, s.cover, UNSET if s.cause is None else s.cause) for s in receipt.spans
        ),
    )


class Record:
    """The transcript of one session so far."""

    def __init__(self) -> None:
        self._closed: dict[int, bytes] = {}
        self._open: dict[int, wire.Segment] = {}
        self._names: dict[int, str] = {}
        self._gaps: list[wire.Gap] = []
        self._ended: wire.Ended | None = None
        self.speakers: set[int] = set()
        """Numbers of all who were ever said to speak."""

    def keep(self, message: Kept) -> Kept:
        """Take in one message, a segment's newest state replacing the one before; returns it with the
        speaker's name, as it is sent."""
        match message:
            case wire.Segment():
                self._heard(message.speaker)
                if message.final:
                    self._open.pop(message.id, None)
                    self._closed[message.id] = pack(message)
                else:
                    self._open[message.id] = message
                return self._named(message)
            case wire.Speaker():
                self._heard(message.speaker)
                self._revise(message)
                return msgspec.structs.replace(message, name=self._name(message.speaker))
            case wire.Named(speaker=number, name=name):
                self._heard(number)
                self._names[number] = name
            case wire.Gap():
                self._gaps.append(message)
            case wire.Ended():
                self._ended = message
            case wire.Flushed():
                pass
        return message

    def _heard(self, speaker: int | None) -> None:
        if speaker is not None:
            self.speakers.add(speaker)

    def _revise(self, news: wire.Speaker) -> None:
        if news.segment in self._open:
            old = self._open[news.segment]
            self._open[old.id] = msgspec.structs.replace(old, rev=news.rev, speaker=news.speaker)
        elif news.segment in self._closed:
            old = unpack(self._closed[news.segment])
            self._closed[old.id] = pack(msgspec.structs.replace(old, rev=news.rev, speaker=news.speaker))

    def _name(self, speaker: int | None) -> str | UnsetType:
        return self._names.get(speaker or 0) or UNSET

    def _named(self, segment: wire.Segment) -> wire.Segment:
        return msgspec.structs.replace(segment, name=self._name(segment.speaker))

    @property
    def receipt(self) -> wire.Receipt | None:
        """None while the session lives."""
        return self._ended.receipt if self._ended is not None else None

    def segments(self) -> list[wire.Segment]:
        """The newest state of every segment, in order of time."""
        return by_time(map(self._named, [*map(unpack, self._closed.values()), *self._open.values()]))

    def export(self, format: str, session: str) -> str:
        """The transcript as one of `FORMATS`; only committed words. Raises KeyError for others."""
        name = FORMATS[format][0]
        extra = self._account(session) if name == "json" else {}
        return render(self.segments(), name, recording=session, **extra)

    def _account(self, session: str) -> dict[str, Any]:
        tracks = self._ended.tracks if self._ended is not None else UNSET
        return {
            "session": session,
            "finished": self._ended is not None,
            "gaps": [
                [g.start_ms, g.end_ms, g.cause, *([] if g.track is UNSET else [g.track])] for g in self._gaps
            ],
            "receipt": msgspec.to_builtins(self.receipt),
            **({} if tracks is UNSET else {"tracks": msgspec.to_builtins(tracks)}),
        }
