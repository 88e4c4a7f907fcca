"""One meeting: a session for each track on one clock, who speaks, and one stream of events.

Without tracks there is one session, and its voices are told apart where a linker is given. With tracks the
track is the speaker. Words are counted track by track, segments share one numbering, and `Flushed` and
`Ended` come once they hold for every track.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from engine.contract import (
    SAMPLE_RATE,
    Audio,
    Capabilities,
    Hypothesis,
    RecognitionTask,
    SpeakerTask,
    SpeakerWindow,
    Voice,
)

from .attribution import Attribution, Numbered
from .continuation import NOTHING, Continuation
from .echo import EchoGate
from .events import Ended, Event, Flushed, GapDeclared, SegmentUpdated, SpeakerNamed, TurnsSettled
from .hunger import Repair
from .ledger import merged
from .listening import Listener, ListeningSettings, TagListener
from .pieces import Pieces
from .session import Session
from .settings import SessionSettings
from .spans import to_samples
from .speakers import Linker
from .voices import KnownVoice
from .watch import Watch

TURNS = 10 * SAMPLE_RATE
"""Turns that are settled are told for so many samples at a time, so that they are few messages."""


class _Asked(TypedDict):
    """What is asked of every track."""

    language: str | None
    likely: tuple[str, ...]
    context: str
    hotwords: tuple[str, ...]


@dataclass(slots=True, eq=False)
class _Track:
    session: Session | Pieces
    segments: Attribution | Numbered
    index: int | None
    flushed: deque[Flushed] = field(default_factory=deque)
    """Answers that another track still owes."""
    ended: Ended | None = None


class Meeting:
    """Not thread-safe; every method returns at once. Same audio, verdicts and replies, same transcript."""

    def __init__(
        self,
        id: str,
        settings: SessionSettings,
        capabilities: Capabilities,
        *,
        language: str | None = None,
        likely: tuple[str, ...] = (),
        context: str = "",
        hotwords: tuple[str, ...] = (),
        tracks: Sequence[str | None] = (),
        linker: Linker | None = None,
        listening: ListeningSettings | None = None,
        continues: Sequence[Continuation] = (),
        numbered: int = 0,
        activity_pause_s: float | None = None,
        at_once: int = 0,
    ) -> None:
        """`tracks` are the participants, by name if they have one; `linker` is for a stream without. With
        `activity_pause_s` it is told who begins to speak, and who has been silent for so long. `at_once` is
        for a recording, which nobody listens to: so many pieces of a track are decoded beside each other.

        A meeting that goes on gets what each track had settled, and how many segments were numbered; audio is
        wanted again from the sample `received`, and what a track had settled of it is not decoded again.
        """
        if tracks and linker is not None:
            raise ValueError("tracks are speakers already: give tracks or a linker")
        settled = continues or (NOTHING,) * (len(tracks) or 1)
        clock = min(track.clock for track in settled)
        self._ids = itertools.count(numbered + 1)
        self._events: list[Event] = []
        self._linker = linker
        self._revise = to_samples(settings.revise_s)
        self._listener: Listener | TagListener | None = None
        if linker is not None:
            windows = Listener(id, listening or ListeningSettings(), clock)
            self._listener = TagListener() if capabilities.speaker_tags else windows
        self._frozen = self._turns = clock  # what readers know of: of labels, and of turns
        self._names: dict[int, str] = {}
        self._echo = EchoGate(len(tracks)) if len(tracks) > 1 else None
        self._echoed = 0  # samples that were told of
        self._watch = Watch(settings, activity_pause_s, len(tracks), clock) if activity_pause_s else None
        self._ended = False
        self._tracks: list[_Track] = []
        self._tasks: dict[str, tuple[_Track, RecognitionTask]] = {}
        asked = _Asked(language=language, likely=likely, context=context, hotwords=hotwords)
        for index in range(len(tracks) or 1):
            part = f"{id}.{index + 1}" if tracks else id
            session = (
                Pieces(part, settings, capabilities, at_once=at_once, **asked)
                if at_once
                else Session(part, settings, capabilities, continues=settled[index], clock=clock, **asked)
            )
            self._tracks.append(self._track(session, index if tracks else None))
        for number, name in enumerate(tracks, 1):
            if name is not None:
                self.rename(number, name)

    def _track(self, session: Session | Pieces, index: int | None) -> _Track:
        if self._linker is not None:
            return _Track(session, Attribution(self._linker, self._ids), index)
        speaker = None if index is None else index + 1
        return _Track(session, Numbered(self._ids, track=index, speaker=speaker), index)

    # -- what it tells ---------------------------------------------------------------------------

    @property
    def received(self) -> int:
        """Samples received so far, on the one clock."""
        return self._tracks[0].session.received

    @property
    def settled(self) -> tuple[int, ...]:
        """Of each track the sample before which nothing is decoded again."""
        return tuple(track.session.settled for track in self._tracks)

    @property
    def backlog(self) -> int:
        """Speech received but not decoded yet on the track that is furthest behind, samples."""
        return max(track.session.backlog for track in self._tracks)

    def voices(self) -> list[KnownVoice]:
        """The speakers that were told apart so far, for another process: see `Linker.restore`."""
        return [] if self._linker is None else self._linker.export()

    def tasks_to_run(self) -> list[RecognitionTask]:
        tasks = []
        for track in self._tracks:
            for task in track.session.tasks_to_run():
                self._tasks[task.id] = track, task
                tasks.append(task)
        return tasks

    def tasks_to_cancel(self) -> list[str]:
        """Ids of tasks whose reply is no longer wanted."""
        ids = [id for track in self._tracks for id in track.session.tasks_to_cancel()]
        for id in ids:
            self._tasks.pop(id, None)
        return ids

    def repairs(self) -> list[Repair]:
        """What came of speech without text since the last call: see `Hunger`."""
        return [repair for track in self._tracks for repair in track.session.repairs()]

    def echo(self) -> int:
        """Samples of speech that were left out of a track since the last call, for another one carries them
        too, and louder."""
        if self._echo is None:
            return 0
        before, self._echoed = self._echoed, sum(self._echo.suppressed)
        return self._echoed - before

    def windows_to_hear(self) -> list[SpeakerTask]:
        """Windows whose voices are wanted, one at a time."""
        return self._listener.tasks_to_run() if self._listener is not None else []

    def events_to_send(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def stretch(self, factor: float, *, brief: bool = False) -> None:
        """Load told by the shell: refreshes and windows are rarer by `factor` (>= 1), refreshes `brief`."""
        for track in self._tracks:
            track.session.stretch(factor, brief=brief)
        if self._listener is not None:
            self._listener.stretch = max(1.0, factor)

    # -- what it hears ---------------------------------------------------------------------------

    def receive_audio(self, frames: Sequence[Audio], voices: Sequence[list[Voice]]) -> None:
        """Whole frames of every track, as many of each, with their verdicts."""
        if not len(frames) == len(voices) == len(self._tracks):
            raise ValueError(f"{len(frames)} channels do not fit {len(self._tracks)} tracks")
        if self._echo is not None:
            voices = self._echo.judge(tuple(frames), tuple(voices))
        if self._watch is not None:
            self._events += self._watch.receive(voices)
        for track, audio, verdicts in zip(self._tracks, frames, voices, strict=True):
            track.session.receive_audio(audio, verdicts)
        if isinstance(self._listener, Listener):
            self._listener.receive_audio(frames[0], voices[0])
        self._gather()
        # In steps of a second, so that it costs nothing to speak of.
        self._freeze((self.received - self._revise) // SAMPLE_RATE * SAMPLE_RATE)

    def receive_flush(self, id: str) -> None:
        """Make everything received final; `Flushed(id)` follows when it is."""
        for track in self._tracks:
            track.session.receive_flush(id)
        self._gather()

    def receive_end(self, tails: Sequence[Audio]) -> None:
        """No more audio after `tails` (fewer than FRAME samples each, the odd rest); `Ended` follows."""
        if self._watch is not None:
            self._events += self._watch.end()
        for track, tail in zip(self._tracks, tails, strict=True):
            track.session.receive_end(tail)
        if self._listener is not None:
            self._listener.end()
        self._gather()

    def receive_hypothesis(self, task: str, hypothesis: Hypothesis) -> None:
        """The reply to a task; a stale or unknown one changes nothing."""
        if (found := self._tasks.pop(task, None)) is None:
            return
        track, asked = found
        track.session.receive_hypothesis(task, hypothesis)
        if isinstance(self._listener, TagListener):
            self._listener.receive_words(asked, hypothesis.words)
        self._gather()

    def receive_failure(self, task: str, cause: str, *, retryable: bool) -> None:
        """The task failed: see `Session.receive_failure`."""
        if (found := self._tasks.pop(task, None)) is None:
            return
        found[0].session.receive_failure(task, cause, retryable=retryable)
        self._gather()

    def receive_voices(self, task: str, window: SpeakerWindow | None) -> None:
        """The voices of a window; None where listening failed: the next window covers its audio too."""
        if self._listener is None or self._linker is None:
            return
        if window is not None:
            self._linker.hear(window)
            self._review()
        self._listener.receive_answer(task)
        self._gather()

    def rename(self, speaker: int, name: str) -> None:
        """From now on, and for everything said before, `speaker` is called `name`; empty: by its number
        again. Raises KeyError for a number that nobody has."""
        if self._linker is not None:
            self._linker.rename(speaker, name)
        elif speaker not in {track.index + 1 for track in self._tracks if track.index is not None}:
            raise KeyError(speaker)
        self._name(speaker, name, None)

    def expect(self, hotwords: tuple[str, ...]) -> None:
        """Names and terms for the decodes to come, in place of those before."""
        for track in self._tracks:
            track.session.hotwords = hotwords

    # -- who speaks ------------------------------------------------------------------------------

    def _review(self) -> None:
        """Tell what new evidence changes."""
        assert self._linker is not None
        for track in self._tracks:
            self._events += track.segments.review()
        for speaker, (name, score) in self._linker.names.items():
            if self._names.get(speaker) != name:
                self._name(speaker, name, score)

    def _freeze(self, before: int) -> None:
        if self._linker is None:
            return
        self._linker.freeze(max(before, 0))
        if self._linker.frozen > self._frozen:
            self._frozen = self._linker.frozen
            self._review()
        if self._frozen - self._turns >= (1 if self._ended else TURNS):
            if turns := self._linker.turns(self._turns, self._frozen):
                self._events.append(TurnsSettled(turns))
            self._turns = self._frozen

    def _name(self, speaker: int, name: str, score: float | None) -> None:
        self._names[speaker] = name
        self._events.append(SpeakerNamed(speaker, name, score))

    # -- one stream of events --------------------------------------------------------------------

    def _gather(self) -> None:
        for track in self._tracks:
            for event in track.session.events_to_send():
                self._pass_on(track, event)
        while all(track.flushed for track in self._tracks):
            answers = [track.flushed.popleft() for track in self._tracks]
            self._events.append(Flushed(answers[0].id, min(answer.sample for answer in answers)))
        if not self._ended and all(track.ended for track in self._tracks):
            if self._listener is not None and not self._listener.done:
                return
            self._ended = True
            self._freeze(self.received + 1)
            self._events.append(self._end())

    def _pass_on(self, track: _Track, event: Event) -> None:
        match event:
            case SegmentUpdated():
                self._events += track.segments.receive(event)
            case GapDeclared(start, end, cause):
                self._events.append(GapDeclared(start, end, cause, track.index))
            case Flushed():
                track.flushed.append(event)
            case Ended():
                track.ended = event

    def _end(self) -> Ended:
        receipts = tuple(track.ended.receipt for track in self._tracks if track.ended is not None)
        if len(receipts) == 1:
            return Ended(receipts[0])
        return Ended(merged(receipts), receipts)
