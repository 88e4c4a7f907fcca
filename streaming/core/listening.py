"""When to listen for voices, and to which stretch of audio.

Windows of fixed length end at the newest audio and follow each other every `hop_s` of speech, so each stretch
is heard several times; one more is taken when somebody stops. At most one is being listened to at a time: the
next one covers what came meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from engine.contract import FRAME, Audio, RecognitionTask, Span, SpeakerTask, Voice, Word

from .ring import AudioRing
from .spans import to_samples


@dataclass(frozen=True, slots=True)
class ListeningSettings:
    """Seconds, where not said otherwise."""

    window_s: float = 10.0
    hop_s: float = 1.5
    """Speech between two windows."""
    pause_s: float = 0.3
    """Silence after which what is new is listened to at once."""
    least_s: float = 0.3
    """Speech that is worth a window."""
    voice_on: float = 0.5
    """Probability from which a frame counts as voiced."""


class _Ear(ABC):
    """Asks for one window at a time; what is due when the answer comes is up to `_plan`."""

    def __init__(self) -> None:
        self._running: str | None = None
        self._to_run: list[SpeakerTask] = []
        self._ending = False
        self.stretch = 1.0
        """What the interval between windows is multiplied by."""

    @property
    def done(self) -> bool:
        """Whether, after the end, nothing more is to be heard."""
        return self._ending and self._running is None

    def tasks_to_run(self) -> list[SpeakerTask]:
        tasks, self._to_run = self._to_run, []
        return tasks

    def receive_answer(self, task: str) -> None:
        """The task was answered, or failed: its audio is in the next window too."""
        if task == self._running:
            self._running = None
            self._plan()

    def end(self) -> None:
        """No more audio; answers may still come."""
        self._ending = True
        self._plan()

    def _ask(self, task: SpeakerTask) -> None:
        self._running = task.id
        self._to_run.append(task)

    @abstractmethod
    def _plan(self) -> None:
        """Ask for the next windows that are due."""


class Listener(_Ear):
    """The windows of one stream: audio and verdicts in, tasks out."""

    def __init__(self, session: str, settings: ListeningSettings, start: int = 0) -> None:
        """The first frame begins at sample `start`."""
        super().__init__()
        self._session = session
        self._s = settings
        self._ring = AudioRing(start)
        self._now = start
        self._new = 0  # voiced samples that no window holds yet
        self._silence = 0  # samples since the last voiced frame
        self._made = 0

    def receive_audio(self, audio: Audio, voices: list[Voice]) -> None:
        """Whole frames (n * FRAME samples) with their n verdicts."""
        self._ring.append(audio)
        for voice in voices:
            self._now += FRAME
            voiced = voice.cheap and voice.neural >= self._s.voice_on
            self._new += FRAME if voiced else 0
            self._silence = 0 if voiced else self._silence + FRAME
            self._plan()
        self._ring.evict(self._now - to_samples(self._s.window_s))

    def _plan(self) -> None:
        if self._running is not None or self._new < to_samples(self._s.least_s):
            return
        stopped = self._ending or self._silence >= to_samples(self._s.pause_s)
        if not stopped and self._new < round(to_samples(self._s.hop_s) * self.stretch):
            return
        self._new = 0
        self._made += 1
        start = max(self._ring.start, self._now - to_samples(self._s.window_s))
        id = f"{self._session}.voices.{self._made:08d}"
        self._ask(SpeakerTask(id, self._session, self._ring.copy(start, self._now), start))


class TagListener(_Ear):
    """The same where the recognizer tells the speakers of a window apart by itself: its tags are the turns,
    and only the voice of each is wanted. Its numbers hold inside one reply, so every reply is a window."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: SpeakerTask | None = None

    def receive_words(self, task: RecognitionTask, words: Sequence[Word]) -> None:
        """A reply with its tags. While another is being listened to, the newest waits."""
        spans: dict[str, list[Span]] = {}
        last: str | None = None
        for word in words:
            if word.tag is None:
                last = None
                continue
            turns = spans.setdefault(word.tag, [])
            if last == word.tag:
                turns[-1] = (turns[-1][0], word.end)
            else:
                turns.append((word.start, word.end))
            last = word.tag
        if spans:
            tags = tuple(tuple(turns) for turns in spans.values())
            self._waiting = SpeakerTask(f"{task.id}.voices", task.session, task.audio, task.start, tags)
            self._plan()

    def _plan(self) -> None:
        if self._running is None and self._waiting is not None:
            self._ask(self._waiting)
            self._waiting = None
