"""One truth, heard noisily: who says what when, the voice activity of it, and an engine that mishears.

The engine answers every window with the truth inside it after the task's prefix. Words that the end of the
window cuts, and some before them, are misheard until more audio follows; a prefix is continued, never
contradicted. So a session must end with the truth, whatever the pauses, packets, delays and mishearings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.contract import (
    FRAME,
    Audio,
    Capabilities,
    Finish,
    Hypothesis,
    Priority,
    RecognitionTask,
    Voice,
    Word,
)
from streaming.core.events import Ended, Event, Flushed, GapDeclared, Receipt, SegmentUpdated
from streaming.core.pieces import Pieces
from streaming.core.session import Session
from streaming.core.settings import SessionSettings

SECOND = 16_000
CAPABILITIES = Capabilities("oracle", "oracle", max_window_s=28.0)


@dataclass(frozen=True)
class Truth:
    """Words on the clock; `samples` is the length of the recording."""

    words: tuple[Word, ...]
    samples: int

    def voices(self) -> list[Voice]:
        """A frame is voiced where a word is being said, with the small gaps between words bridged."""
        flags = np.zeros(self.samples // FRAME + 1, bool)
        for word in self.words:
            flags[word.start // FRAME : -(-word.end // FRAME)] = True
        return [Voice(bool(f), 0.9 if f else 0.1) for f in flags[: self.samples // FRAME]]

    def audio(self) -> Audio:
        """Loud where somebody speaks, so that seams find the gaps between words."""
        audio = np.zeros(self.samples, np.float32)
        for word in self.words:
            audio[word.start : word.end] = 0.5
        return audio


def truth(
    seed: int, words: int, *, pauses: float, spaced: bool = True, shortest: int = SECOND // 10
) -> Truth:
    """`words` different words of `shortest` to 600 ms, gaps of 20-60 ms, after some (`pauses`) of 0.7-3 s."""
    rng = random.Random(seed)
    said: list[Word] = []
    at = rng.randrange(0, 2 * SECOND)
    for i in range(words):
        end = at + rng.randrange(shortest, SECOND * 6 // 10)
        text = f"w{i}" if spaced else chr(0x4E00 + i)
        said.append(Word(text, at, end, space=spaced, confidence=rng.random()))
        gap = rng.uniform(0.7, 3.0) if rng.random() < pauses else rng.uniform(0.02, 0.06)
        at = end + round(gap * SECOND)
    return Truth(tuple(said), at + rng.randrange(0, SECOND))


@dataclass
class Oracle:
    """Hears `truth`. `noise` is the chance that an unsettled word is misheard, `settle` the audio (samples)
    that must follow a word before it is always heard right; `failures` the chance that a task fails."""

    truth: Truth
    rng: random.Random
    noise: float = 0.5
    settle: int = SECOND * 3 // 4
    failures: float = 0.0
    deaf: Callable[[RecognitionTask], Hypothesis | None] = lambda _: None
    """What it answers instead, where it answers something else."""
    early: float = 0.0
    """The chance that the reply to a final stops after its first words, as if nothing followed."""
    tasks: list[RecognitionTask] = field(default_factory=list)

    def hear(self, task: RecognitionTask) -> Hypothesis | None:
        """The reply; None where the task fails."""
        self.tasks.append(task)
        if self.rng.random() < self.failures:
            return None
        if (instead := self.deaf(task)) is not None:
            return instead
        said = [w for w in self.truth.words if w.end > task.start + FRAME and w.start < task.end - FRAME]
        if task.prefix:
            said = [w for w in said if w.start > task.prefix[-1].start]
        if task.priority is Priority.FINAL and self.rng.random() < self.early:
            said = said[: max(1, len(said) // 2)]
        # Silence after the last word settles it, as it does for a real model.
        quiet = not said or said[-1].end + SECOND // 10 <= task.end
        settled = quiet or task.priority is Priority.FINAL
        return Hypothesis(tuple(self._mishear(w, task.end, settled=settled) for w in said), Finish.STOP)

    def _mishear(self, word: Word, end: int, *, settled: bool) -> Word:
        if settled or word.end + self.settle <= end or self.rng.random() >= self.noise:
            return Word(word.text, word.start, min(word.end, end), word.space, word.confidence)
        return Word(f"?{self.rng.randrange(9)}", word.start, min(word.end, end), word.space, 0.3)


@dataclass
class Reader:
    """Keeps what a client keeps, and fails where a promise is broken."""

    words: list[Word] = field(default_factory=list)
    shown: dict[int, SegmentUpdated] = field(default_factory=dict)
    committed_at: list[int] = field(default_factory=list)
    gaps: list[GapDeclared] = field(default_factory=list)
    flushed: list[tuple[Flushed, int]] = field(default_factory=list)
    """With the number of words committed by then."""
    receipt: Receipt | None = None

    def read(self, events: Sequence[Event], now: int) -> None:
        for event in events:
            assert self.receipt is None, "nothing follows the receipt"
            match event:
                case SegmentUpdated():
                    self._segment(event, now)
                case GapDeclared():
                    self.gaps.append(event)
                case Flushed():
                    self.flushed.append((event, len(self.words)))
                    assert all(s.final for s in self.shown.values() if s.start < event.sample)
                case Ended(receipt):
                    self.receipt = receipt

    def _segment(self, event: SegmentUpdated, now: int) -> None:
        before = self.shown.get(event.segment)
        if before is not None:
            assert not before.final, "nothing follows a final"
            assert event.revision == before.revision + 1
            assert event.words[: len(before.words)] == before.words, "committed words changed"
        else:
            assert event.segment == len(self.shown) + 1
        known = len(before.words) if before else 0
        if event.words:
            assert event.first_word + known == len(self.words), (
                "the transcript is appended to, and only there"
            )
        for word in event.words[known:]:
            assert not self.words or word.start >= self.words[-1].end, "times run backwards"
            self.words.append(word)
            self.committed_at.append(now)
        assert not (event.final and event.partial)
        self.shown[event.segment] = event


@dataclass
class Run:
    """Plays a truth through a session. `delay` is how many samples later replies come."""

    truth: Truth
    oracle: Oracle
    settings: SessionSettings = field(default_factory=SessionSettings)
    delay: int = 4800
    flush_every: int = 0
    brief: bool = False
    stretch: float = 1.0

    def begin(self, capabilities: Capabilities) -> Session | Pieces:
        return Session("s", self.settings, capabilities)

    def play(self, packets: random.Random | None = None, capabilities: Capabilities = CAPABILITIES) -> Reader:
        self.session = self.begin(capabilities)
        self.session.stretch(self.stretch, brief=self.brief)
        self.reader = Reader()
        self._pending: list[tuple[int, RecognitionTask]] = []
        audio, voices = self.truth.audio(), self.truth.voices()
        at = 0
        while at < len(voices):
            # Replies are delivered every 100 ms, so packets never straddle that mark.
            room = 5 - at % 5
            size = min(packets.randint(1, room) if packets else room, len(voices) - at)
            self.session.receive_audio(audio[at * FRAME : (at + size) * FRAME], voices[at : at + size])
            at += size
            if at % 5 == 0:
                self._deliver(at * FRAME)
            if self.flush_every and at % self.flush_every == 0:
                self.session.receive_flush(f"f{at}")
            self._drain(at * FRAME)
        self.session.receive_end(audio[at * FRAME :])
        self._drain(self.truth.samples)
        while self._pending:
            self._deliver(1 << 60)
        return self.reader

    def due(self, now: int) -> int:
        """When the reply to a task of now comes."""
        return now + self.delay

    def _drain(self, now: int) -> None:
        gone = set(self.session.tasks_to_cancel())
        self._pending = [(due, task) for due, task in self._pending if task.id not in gone]
        self._pending += [(self.due(now), t) for t in self.session.tasks_to_run() if t.id not in gone]
        self.reader.read(self.session.events_to_send(), now)

    def _deliver(self, now: int) -> None:
        due = [p for p in self._pending if p[0] <= now]
        self._pending = [p for p in self._pending if p[0] > now]
        for _, task in due:
            hypothesis = self.oracle.hear(task)
            if hypothesis is None:
                self.session.receive_failure(task.id, "engine", retryable=self.oracle.rng.random() < 0.5)
            else:
                self.session.receive_hypothesis(task.id, hypothesis)
            self._drain(min(now, self.session.received))
