"""From a log that outlived its process to a session that goes on. Pure.

What was said stays: the segments that were being spoken are closed behind their last word, as at a seam, and
what is not settled is decoded again from audio that the client sends again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET
from msgspec.structs import replace as changed

from engine.contract import FRAME, Word
from streaming.core.continuation import Continuation
from streaming.core.events import Cover, Covered, Ended, Receipt
from streaming.core.ledger import Ledger, merged
from streaming.core.transcript import KEEP
from streaming.wire import messages as wire
from streaming.wire.telling import track_of

from .log import Log, OnPut, State
from .stored import Stored
from .transcripts import present

LOST = "lost"
"""Cause of a gap: the audio went down with the process, and nobody can send it again."""

LIFE = 1 << 32
"""Each life of a session numbers from another multiple of this. A client may know numbers that never reached
the disk; they must not come twice."""

_PER_MS = wire.CLOCK_RATE // 1000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session goes on: what `Meeting` takes."""

    continues: tuple[Continuation, ...]
    numbered: int
    """Segments so far."""
    shown: frozenset[int] = frozenset()
    """Numbers of the speakers."""
    voices: bytes | None = None
    """Their voices, as `remembering.encode`."""

    @property
    def clock(self) -> int:
        """The first sample wanted again."""
        return min(track.clock for track in self.continues)


def log_of(stored: Stored, on_put: OnPut | None = None) -> Log:
    """What the session said, as it is on disk."""
    log = Log(on_put)
    log.restore(stored.states)
    return log


def revive(stored: Stored, log: Log) -> Place:
    """Close what was open in `log`, which numbers anew from here on, and say where the session goes on."""
    log.seq = (log.seq // LIFE + 1) * LIFE
    for segment in log.segments():
        if not segment.final:
            end = segment.words[-1].end_ms if segment.words else segment.start_ms
            log.put(changed(segment, rev=segment.rev + 1, partial="", final=True, end_ms=end))
    tracks = len(stored.opened.start.tracks) or 1
    settled = stored.progress.settled or (0,) * tracks
    segments = log.segments()
    continues = tuple(
        _continuation(
            [s for s in segments if track_of(s) == index],
            [g for g in log.gaps if track_of(g) == index],
            settled[index],
        )
        for index in range(tracks)
    )
    numbered = max([segment.id for segment in segments], default=0)
    return Place(continues, numbered, frozenset(log.speakers), stored.voices)


def freeze(log: Log) -> None:
    """The evidence is gone: who was said to speak is the last word on it."""
    for segment in log.segments():
        if segment.frozen is not True:
            log.put(changed(segment, rev=segment.rev + 1, frozen=True))


def skip(place: Place, log: Log, sample: int, *, tracks: bool) -> Place:
    """Go on from `sample` at the earliest: what is not settled before it is a gap."""
    # A session begins with a whole frame, and what the client can send must reach its beginning.
    sample = -(-sample // FRAME) * FRAME
    if sample <= place.clock:
        return place
    continues = []
    for index, track in enumerate(place.continues):
        if track.settled < sample:
            gap = wire.Gap(0, track.settled // _PER_MS, sample // _PER_MS, LOST, index if tracks else UNSET)
            log.put(gap)
            spans = (*track.spans, Covered(track.settled, sample, Cover.GAP, LOST))
            track = replace(track, settled=sample, spans=spans)
        continues.append(replace(track, reach=track.settled - max(sample, track.clock)))
    return replace(place, continues=tuple(continues))


def receipt(place: Place, samples: int) -> State:
    """The end of a session to which nobody came back, after `skip`; it received `samples`."""
    samples = max(samples, *(track.settled for track in place.continues))
    receipts = []
    for track in place.continues:
        ledger = Ledger(track.spans)
        ledger.cover(samples, Cover.SILENCE)
        receipts.append(Receipt(samples, track.count, ledger.spans))
    if len(receipts) == 1:
        return present(Ended(receipts[0]))
    return present(Ended(merged(receipts), tuple(receipts)))


def _continuation(segments: Sequence[wire.Segment], gaps: Sequence[wire.Gap], settled: int) -> Continuation:
    spoken = sorted((s for s in segments if s.words), key=lambda s: s.first_word)
    # The disk may know words that are newer than what it knows of the progress.
    ends = [s.end_ms for s in segments] + [s.words[-1].end_ms for s in spoken] + [g.end_ms for g in gaps]
    settled = max(settled, _PER_MS * max(ends, default=0))
    words = [_word(word) for segment in spoken for word in segment.words]
    languages = [s.language for s in segments if s.language is not UNSET]
    return Continuation(
        settled=settled,
        words=tuple(words[-KEEP:]),
        count=len(words),
        spans=tuple(accounted(spoken, gaps, settled)),
        language=languages[-1] if languages else None,
    )


def accounted(spoken: Sequence[wire.Segment], gaps: Sequence[wire.Gap], settled: int) -> Iterator[Covered]:
    """What became of [0, settled), to the millisecond: gaps, else segments with words, else silence."""
    lost = [Covered(_PER_MS * g.start_ms, _PER_MS * g.end_ms, Cover.GAP, g.cause) for g in gaps]
    text = [Covered(_PER_MS * s.start_ms, _PER_MS * s.end_ms, Cover.TEXT) for s in spoken]
    ledger = Ledger()
    for span in sorted(_without(text, lost) + lost, key=lambda span: span.start):
        ledger.cover(min(span.start, settled), Cover.SILENCE)
        ledger.cover(min(span.end, settled), span.cover, span.cause)
    ledger.cover(settled, Cover.SILENCE)
    yield from ledger.spans


def _without(text: Sequence[Covered], lost: Sequence[Covered]) -> list[Covered]:
    """What the gaps leave of the text."""
    left = []
    for span in text:
        start = span.start
        for gap in lost:
            if start < gap.end and gap.start < span.end:
                left.append(replace(span, start=start, end=max(gap.start, start)))
                start = gap.end
        left.append(replace(span, start=start, end=max(span.end, start)))
    return [span for span in left if span.start < span.end]


def _word(word: wire.Word) -> Word:
    confidence = None if word.confidence is UNSET else word.confidence
    return Word(
        word.text,
        _PER_MS * word.start_ms,
        _PER_MS * word.end_ms,
        confidence=confidence,
        space=word.space is not False,
    )
