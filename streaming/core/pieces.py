"""A recording in pieces that are decoded beside each other: what a track of a meeting is, in place of a
session.

It is divided in pauses. A piece is a session of its own, with the text before it inside the piece only: what
that costs is in `clients/bench/ACCURACY.md`. What they say comes out in order of time, as if one session had
said it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from engine.contract import FRAME, Audio, Capabilities, Hypothesis, RecognitionTask, Voice

from .continuation import Continuation
from .events import Cover, Covered, Ended, Event, Receipt, SegmentUpdated
from .framing import EMPTY
from .hunger import Repair
from .ledger import Ledger
from .recording import RecordedSession
from .settings import SessionSettings
from .spans import to_samples

LENGTH = to_samples(60.0)
"""A piece ends in the first pause behind this."""


@dataclass(slots=True, eq=False)
class _Piece:
    """`start` is its first sample."""

    session: RecordedSession
    start: int
    events: list[Event] = field(default_factory=list)
    """What it said and nobody was told: the pieces before it speak first."""
    receipt: Receipt | None = None
    segments: int = 0
    """Numbered so far."""

    def listen(self) -> None:
        """Take over what its session said."""
        for event in self.session.events_to_send():
            if isinstance(event, Ended):
                self.receipt = event.receipt
            else:
                self.events.append(event)


class Pieces:
    """As `Session`, whose methods these are. At most `at_once` pieces, and one that still comes, are open."""

    def __init__(
        self,
        id: str,
        settings: SessionSettings,
        capabilities: Capabilities,
        *,
        at_once: int,
        length: int = LENGTH,
        language: str | None = None,
        likely: tuple[str, ...] = (),
        context: str = "",
        hotwords: tuple[str, ...] = (),
    ) -> None:
        self._id, self._settings, self._capabilities = id, settings, capabilities
        self._at_once, self._length = at_once, length
        self._language, self._likely = language, likely
        self._context, self.hotwords = context, hotwords
        # Silence before speech belongs to it: a division lies so far back in a pause.
        self._pad = to_samples(settings.pad_s) // FRAME
        self._held: tuple[Audio, list[Voice]] = EMPTY, []
        self._quiet = 0  # samples without voice, up to the newest frame
        self._opened = 0
        self._tasks: dict[str, RecordedSession] = {}
        self._ledger = Ledger()
        self._segments = self._words = 0  # of pieces that are over
        self._ending = self._ended = False
        self.received = 0
        self._pieces: deque[_Piece] = deque()
        self._open(0)

    def _open(self, start: int) -> None:
        self._opened += 1
        before = (Covered(0, start, Cover.SILENCE),) if start else ()  # left out again when it has ended
        session = RecordedSession(
            f"{self._id}.{self._opened}",
            self._settings,
            self._capabilities,
            language=self._language,
            likely=self._likely,
            context=self._context,
            hotwords=self.hotwords,
            continues=Continuation(start, spans=before, reach=0),
        )
        self._pieces.append(_Piece(session, start))

    # -- what it tells ---------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Speech that is too much to be read on, samples."""
        working = sum(piece.receipt is None for piece in self._pieces)
        if working > self._at_once:
            return self.received - self._pieces[0].start
        newest = self._pieces[-1].session.backlog
        return newest if working == self._at_once else max(0, newest - self._length)

    @property
    def settled(self) -> int:
        return self._pieces[0].session.settled

    def tasks_to_run(self) -> list[RecognitionTask]:
        tasks = []
        for piece in self._pieces:
            for task in piece.session.tasks_to_run():
                self._tasks[task.id] = piece.session
                tasks.append(replace(task, session=self._id))
        return tasks

    def tasks_to_cancel(self) -> list[str]:
        return [id for piece in self._pieces for id in piece.session.tasks_to_cancel()]

    def repairs(self) -> list[Repair]:
        return [repair for piece in self._pieces for repair in piece.session.repairs()]

    def events_to_send(self) -> list[Event]:
        for piece in self._pieces:
            piece.listen()
        told: list[Event] = []
        while not self._ended:
            piece = self._pieces[0]
            told += [self._placed(event, piece) for event in piece.events]
            piece.events = []
            if piece.receipt is None:
                break
            self._account(piece, piece.receipt)
            if len(self._pieces) > 1:
                self._pieces.popleft()
            else:
                self._ended = True
                told.append(Ended(Receipt(self.received, self._words, self._ledger.spans)))
        return told

    def _placed(self, event: Event, piece: _Piece) -> Event:
        """With the numbers that segments and words have in the whole recording."""
        if not isinstance(event, SegmentUpdated):
            return event
        piece.segments = max(piece.segments, event.segment)
        return replace(
            event,
            segment=event.segment + self._segments,
            first_word=event.first_word + self._words,
        )

    def _account(self, piece: _Piece, receipt: Receipt) -> None:
        for span in receipt.spans:
            self._ledger.cover(span.end, span.cover, span.cause)
        self._segments += piece.segments
        self._words += receipt.words

    def stretch(self, factor: float, *, brief: bool = False) -> None:
        """Load changes nothing: a recording gives way by its priority."""

    # -- what it hears ---------------------------------------------------------------------------

    def receive_audio(self, audio: Audio, voices: list[Voice]) -> None:
        self.received += len(audio)
        audio, voices = np.concatenate((self._held[0], audio)), [*self._held[1], *voices]
        given = 0  # frames of these
        for index in range(len(self._held[1]), len(voices)):
            voice = voices[index]
            voiced = voice.cheap and voice.neural >= self._settings.voice_off
            self._quiet = 0 if voiced else self._quiet + FRAME
            if self._divides(self.received - (len(voices) - 1 - index) * FRAME):
                self._give(audio, voices, given, index + 1 - self._pad)
                given = index + 1 - self._pad
                self._pieces[-1].session.receive_end(EMPTY)
                self._open(self._pieces[-1].session.received)
        last = max(given, len(voices) - self._pad)
        self._give(audio, voices, given, last)
        self._held = audio[last * FRAME :], voices[last:]

    def receive_flush(self, id: str) -> None:
        raise ValueError("a recording is not flushed")

    def receive_end(self, tail: Audio) -> None:
        if self._ending:
            return
        self._ending = True
        self._give(*self._held, 0, len(self._held[1]))
        self.received += len(tail)
        self._pieces[-1].session.receive_end(tail)

    def receive_hypothesis(self, task: str, hypothesis: Hypothesis) -> None:
        self._tasks.pop(task).receive_hypothesis(task, hypothesis)

    def receive_failure(self, task: str, cause: str, *, retryable: bool) -> None:
        self._tasks.pop(task).receive_failure(task, cause, retryable=retryable)

    def _divides(self, now: int) -> bool:
        """Whether a piece ends a little before the frame that ends at `now`."""
        long = now - self._pieces[-1].start >= self._length
        return self._at_once > 1 and long and self._quiet >= to_samples(self._settings.pause_s)

    def _give(self, audio: Audio, voices: list[Voice], first: int, last: int) -> None:
        """Frames to the newest piece."""
        if last > first:
            self._pieces[-1].session.receive_audio(audio[first * FRAME : last * FRAME], voices[first:last])
