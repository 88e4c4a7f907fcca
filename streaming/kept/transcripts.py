"""What a session said, as clients get it and as files. Pure.

`present` turns the core's events into wire messages: the only place where samples become milliseconds.
"""

from __future__ import annotations

from typing import Any, assert_never

import msgspec
from msgspec import UNSET, UnsetType

from engine.contract import Word as CoreWord
from engine.contract import join
from streaming.core.events import (
    ActivityChanged,
    Cover,
    Ended,
    Event,
    Flushed,
    GapDeclared,
    Receipt,
    SegmentUpdated,
    SpeakerNamed,
    SpeakerRevised,
    TurnsSettled,
)
from streaming.wire import messages as wire
from streaming.wire.render import render, rttm

from .log import Log, State
from .turns import KeptTurn, Turns

_PER_MS = wire.CLOCK_RATE // 1000


def ms(sample: int) -> int:
    """Milliseconds on the audio clock, rounded down, so that touching spans still touch."""
    return sample // _PER_MS


def present(event: Event) -> State:
    """The event as the session keeps it and the client gets it; the log numbers it."""
    match event:
        case SegmentUpdated():
            return _segment(event)
        case SpeakerRevised(segment, revision, speaker, frozen, score):
            return wire.Speaker(0, segment, revision, speaker, frozen, score=_rounded(score))
        case SpeakerNamed(speaker, name, score):
            return wire.Named(0, speaker, name, _rounded(score))
        case TurnsSettled(turns):
            return Turns(0, tuple(KeptTurn(ms(turn.start), ms(turn.end), turn.speaker) for turn in turns))
        case GapDeclared(start, end, cause, track):
            return wire.Gap(0, ms(start), ms(end), cause, UNSET if track is None else track)
        case ActivityChanged(speaking, at, track):
            return wire.Activity(0, speaking, ms(at), UNSET if track is None else track)
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


def export(log: Log, format: str, session: str) -> str:
    """The transcript in one of `FORMATS`; only committed words. Raises ValueError for others."""
    if format == "rttm":
        return rttm(log.segments(), session, log.turns())
    extra = _account(log, session) if format == "json" else {}
    return render(log.segments(), format, recording=session, **extra)


def _account(log: Log, session: str) -> dict[str, Any]:
    tracks = log.ended.tracks if log.ended is not None else UNSET
    people = [
        {name: value for name, value in msgspec.to_builtins(one).items() if name not in {"type", "seq"}}
        for one in log.participants.values()
    ]
    return {
        "session": session,
        "finished": log.ended is not None,
        "gaps": [[g.start_ms, g.end_ms, g.cause, *([] if g.track is UNSET else [g.track])] for g in log.gaps],
        "receipt": msgspec.to_builtins(log.receipt),
        **({} if tracks is UNSET else {"tracks": msgspec.to_builtins(tracks)}),
        **({"participants": people} if people else {}),
    }
