"""Fixed outputs, token by token, that every engine adapter must turn into the same events.

A trace is what is said in one recording. Its engine side (`Speaker`) answers each task with what that window
holds behind the committed words. Outputs may be cut or given up first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.contract import (
    FRAME,
    Audio,
    EngineError,
    Priority,
    RecognitionTask,
    Recognizer,
    Voice,
    Word,
    join,
)
from engine.policies.text_words import estimated_words
from streaming.core.events import Event, GapDeclared, SegmentUpdated
from streaming.core.session import Session
from streaming.core.settings import SessionSettings

BEGIN, RATE = 8_000, 16_000
"""Speech begins half a second into the recording."""


@dataclass(frozen=True)
class Trace:
    """`ends` are the finish reasons of the outputs that hear the end of the speech, one after another; all
    others are "stop"."""

    name: str
    text: str
    seconds: float
    language: str = "en"
    ends: tuple[str, ...] = ()
    gap: str | None = None
    """The cause that what is missing is declared lost for."""

    @property
    def end(self) -> int:
        """Where speech ends, samples."""
        return BEGIN + round(self.seconds * RATE)

    def audio(self) -> Audio:
        """Noise while somebody speaks, and a second of silence behind it."""
        audio = np.zeros(self.end + RATE, np.float32)
        audio[BEGIN : self.end] = 0.2 * np.random.default_rng(3).standard_normal(self.end - BEGIN)
        return audio[: len(audio) // FRAME * FRAME]

    def words(self) -> list[Word]:
        audio = np.ones(round(self.seconds * RATE), np.float32)
        whole = RecognitionTask("t", "s", audio, BEGIN, Priority.FINAL)
        return estimated_words(self.text, whole)


ENGLISH = "The ferry leaves at nine, not at ten, so be there early."
CHINESE = "今天天气很好。我们去公园走走。明天再说。"
LONG = (
    "We walked along the river until the old mill came into sight. Nobody had lived there for years, and the"
    " windows were dark. My brother said that he could hear water running under the floor, which was true."
    " Then a door opened, and an old man asked us politely to come in and have some tea with him."
)

TRACES = (
    Trace("english", ENGLISH, 4.5),
    Trace("chinese", CHINESE, 4.5, "zh"),
    Trace("emoji", "Fine day😀 so see you 👍🏽 at the old bridge.", 4.0),
    Trace("mixed", "我用 Python 写 code。naïve 😀 吧。", 4.0, "zh"),
    Trace("long", LONG, 22.0),
    Trace("cut once", CHINESE, 4.5, "zh", ("length",)),
    Trace("cut always", CHINESE, 4.5, "zh", ("length",) * 9, gap="length"),
    Trace("aborted", ENGLISH, 4.5, ends=("abort", "abort")),
    Trace("aborted always", ENGLISH, 4.5, ends=("abort",) * 9, gap="abort"),
)


@dataclass
class Speaker:
    """The model behind the adapters: what it says to the task that runs now."""

    trace: Trace
    task: RecognitionTask | None = None
    committed: int = 0
    """Words of the trace that are committed."""
    continues: bool = True
    """Whether it begins behind the committed words; else it says all that the window holds."""
    late: int = 0
    """Tasks so far that hear the end of the speech."""

    def begin(self, task: RecognitionTask, committed: int) -> None:
        self.task, self.committed = task, committed
        self.late += task.end > self.trace.end

    def says(self) -> tuple[list[Word], str]:
        """Words and finish reason. A cut output lacks its last quarter."""
        task = self.task
        assert task is not None
        words = self.trace.words()
        first = self.committed
        if not self.continues:
            first = sum(word.start < task.start for word in words)
        known = [word for word in words[first:] if word.end <= task.end]
        ends = self.trace.ends
        late = task.end > self.trace.end and self.late <= len(ends)
        finish = ends[self.late - 1] if late else "stop"
        if finish != "stop":
            known = known[: len(known) * 3 // 4]
        return known, finish


@dataclass
class Heard:
    """What came of a trace: the events, and the tasks that led to them."""

    events: list[Event] = field(default_factory=list)
    tasks: list[tuple[int, int, Priority, int, str]] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        newest = {e.segment: e for e in self.events if isinstance(e, SegmentUpdated)}
        return [word.text for segment in newest.values() for word in segment.words]

    @property
    def gaps(self) -> set[str]:
        return {event.cause for event in self.events if isinstance(event, GapDeclared)}

    def texts(self) -> list[object]:
        """The events without times, which policies estimate in their own ways."""
        return [
            (e.segment, e.revision, join(e.words), join(e.partial), e.final)
            if isinstance(e, SegmentUpdated)
            else type(e)
            for e in self.events
        ]


async def play(engine: Recognizer, speaker: Speaker) -> Heard:
    """Run a session over the trace, every reply at once; a task may fail four times, as in the shell."""
    trace, heard = speaker.trace, Heard()
    session = Session("s", SessionSettings(), engine.capabilities, language=trace.language)
    audio, tries = trace.audio(), 0
    for at in range(0, len(audio) + 5 * FRAME, 5 * FRAME):
        frames = audio[at : at + 5 * FRAME]
        if len(frames):
            session.receive_audio(frames, _voices(trace, at, len(frames)))
        else:
            session.receive_end(audio[:0])
        while tasks := session.tasks_to_run():
            (task,) = tasks
            heard.events += session.events_to_send()
            speaker.begin(task, len(heard.words))
            heard.tasks.append((task.start, task.end, task.priority, task.attempt, join(task.prefix)))
            try:
                hypothesis = await engine.recognize(task)
            except EngineError as error:
                tries += 1
                # Adapters have their own words for an engine that gives a task up.
                session.receive_failure(task.id, "abort", retryable=error.retryable and tries < 4)
            else:
                tries = 0
                session.receive_hypothesis(task.id, hypothesis)
        heard.events += session.events_to_send()
    return heard


def _voices(trace: Trace, at: int, samples: int) -> list[Voice]:
    return [
        Voice(BEGIN <= place < trace.end, 0.9 if BEGIN <= place < trace.end else 0.1)
        for place in range(at, at + samples, FRAME)
    ]
