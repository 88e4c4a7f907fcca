"""From events to delays: when was a sample received, when was it text."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from engine.contract import SAMPLE_RATE
from streaming.core.events import (
    ActivityChanged,
    Ended,
    Event,
    Flushed,
    GapDeclared,
    SegmentUpdated,
    SpeakerNamed,
    SpeakerRevised,
    TurnsSettled,
)
from streaming.kept.transcripts import present
from streaming.observe.metrics import Metrics
from streaming.wire import messages as wire

_STEP = SAMPLE_RATE // 20
"""Samples between two marks: delays are exact to 50 ms of packing."""

_MARKS = 4096
"""Some 200 s of live audio; older words count from the oldest mark."""


def count(metrics: Metrics, state: object) -> None:
    """Audio that a message says is a gap, or accounts for; others count nothing here."""
    match state:
        case wire.Gap(start_ms=start, end_ms=end, cause=cause):
            metrics.gaps.add(cause=cause)
            metrics.gap_audio.add((end - start) / 1000, cause=cause)
        case wire.Ended(receipt=receipt):
            metrics.covered.add(receipt.text_samples / SAMPLE_RATE, cover="text")
            metrics.covered.add(receipt.silence_samples / SAMPLE_RATE, cover="silence")
            metrics.covered.add(receipt.gap_samples / SAMPLE_RATE, cover="gap")


class DelayMeter:
    """Watches one session. Clock values are the caller's, in seconds."""

    def __init__(self, metrics: Metrics, start: int = 0, *, timed: bool = True) -> None:
        """`start` is the first sample it will be told of. Not `timed`: audio and words are counted, how long
        they took is not."""
        self._metrics = metrics
        self._timed = timed
        self._samples: deque[int] = deque(maxlen=_MARKS)
        self._times: deque[float] = deque(maxlen=_MARKS)
        self._received = start
        self._open: set[int] = set()  # segments not final yet
        self._words: dict[int | None, int] = {}  # committed words already counted, by track

    def received(self, sample: int, now: float) -> None:
        """Everything before `sample` has arrived."""
        seconds = (sample - self._received) / SAMPLE_RATE
        self._metrics.received.add(seconds)
        if self._timed:
            self._metrics.live_audio_s += seconds
        self._received = sample
        if not self._samples or sample - self._samples[-1] >= _STEP:
            self._samples.append(sample)
            self._times.append(now)

    def observe(self, event: Event, now: float) -> None:
        """Count what an event says."""
        match event:
            case SegmentUpdated():
                self._segment(event, now)
            case GapDeclared() | Ended():
                count(self._metrics, present(event))
            case Flushed() | SpeakerRevised() | SpeakerNamed() | TurnsSettled() | ActivityChanged():
                pass

    def _segment(self, event: SegmentUpdated, now: float) -> None:
        metrics = self._metrics
        counted = self._words.get(event.track, 0)
        known = event.segment in self._open
        # A segment that was split off another says nothing new.
        if not known and event.first_word < counted:
            return
        if not known and self._timed:
            metrics.first_partial.observe(self._since(event.start, now))
        for word in event.words[max(0, counted - event.first_word) :]:
            if self._timed:
                metrics.commit_delay.observe(self._since(word.end, now))
            metrics.words.add()
        self._words[event.track] = max(counted, event.first_word + len(event.words))
        self._open.add(event.segment)
        if event.final:
            if self._timed:
                metrics.final_delay.observe(self._since(event.end, now))
            self._open.discard(event.segment)

    def _since(self, sample: int, now: float) -> float:
        """Seconds since `sample` arrived."""
        if not self._samples:
            return 0.0
        at = min(bisect_left(self._samples, sample), len(self._times) - 1)
        return max(0.0, now - self._times[at])
