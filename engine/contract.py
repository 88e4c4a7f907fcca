"""What every engine takes and gives: tasks, hypotheses, capabilities, and the ports.

All audio is mono float32 in [-1, 1] at `SAMPLE_RATE`. All times are absolute sample indices on the
session's clock, spans half-open. Arrays handed over are read-only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16_000
"""Samples per second of every session clock."""

FRAME = 320
"""Samples per voice-activity frame (20 ms)."""

Audio = npt.NDArray[np.float32]

Vector = npt.NDArray[np.float32]
"""A voice embedding of unit length; vectors of one encoder compare by their dot product."""

Span = tuple[int, int]
"""Half-open, in samples on the session's clock."""


class Priority(IntEnum):
    """Order of service; smaller runs first."""

    FINAL = 0
    FIRST = 1
    REFRESH = 2
    BATCH = 3


class Finish(StrEnum):
    """Why a decode ended."""

    STOP = "stop"
    LENGTH = "length"
    """The output budget ran out: text may be missing."""
    LOOP = "loop"
    """The output repeated itself. Its words are what was said up to the end of the first round; none where no
    round is known, for then no text of it is to be trusted."""


@dataclass(frozen=True, slots=True)
class Word:
    """One text unit: a word where the script has spaces, a character where it has none.

    `text` has no outer space; `space` tells whether one stands before it. Punctuation belongs to the
    word it follows. `estimated` marks times that were interpolated instead of aligned. `tag` is the
    model's own speaker label, valid inside one hypothesis only.
    """

    text: str
    start: int
    end: int
    space: bool = True
    confidence: float | None = None
    estimated: bool = False
    tag: str | None = None


def join(words: Sequence[Word]) -> str:
    """The text of `words` as it reads, without outer space."""
    return "".join(f" {w.text}" if w.space else w.text for w in words).strip()


@dataclass(frozen=True, slots=True, eq=False)
class RecognitionTask:
    """One decode of one window of one session.

    The reply must *continue* `prefix` (the words already committed inside the window) and holds only
    what comes after it. `context` is the text before the window, newest last; an engine may drop
    its beginning, or all of it. `attempt` > 0 asks for the policy's next rung of its retry ladder.
    """

    id: str
    session: str
    audio: Audio
    start: int
    """Sample index of `audio[0]`."""
    priority: Priority
    context: str = ""
    prefix: tuple[Word, ...] = ()
    draft: tuple[Word, ...] = ()
    """What the last decode heard after `prefix`: an engine may check these words instead of searching for
    them. The answer is the one without them."""
    voiced: int = 0
    """Samples behind `prefix` in which a voice was heard, as far as that is known."""
    language: str | None = None
    """ISO 639 code, that of two letters where there is one; None lets the engine detect it."""
    likely: tuple[str, ...] = ()
    """Languages to expect where it is to be detected; an engine that can hears a doubtful window as one of
    them."""
    detect: bool = False
    """Report the language heard although `language` says which to write."""
    translate: bool = False
    """Write English, whatever is spoken; only where the engine `translates`."""
    hotwords: tuple[str, ...] = ()
    attempt: int = 0
    hurry: bool = False
    """The system is loaded: rather a rougher answer than a later one."""
    progress: Callable[[int], None] | None = None
    """Told, while a long task runs, up to which sample its output has come; an engine may not know."""

    @property
    def end(self) -> int:
        return self.start + len(self.audio)


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What the model heard after the task's prefix."""

    words: tuple[Word, ...]
    finish: Finish = Finish.STOP
    language: str | None = None
    """The language heard, if it was to be detected; None where the model cannot tell."""
    language_probability: float = 0.0
    no_speech: float = 0.0
    """Probability that the window holds no speech, 0 where the model cannot tell."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a caller may ask of an engine; shared code reads this and never a model's name."""

    engine: str
    model: str
    max_window_s: float
    """Longest audio of one task, padding excluded: the *model's* limit."""
    languages: tuple[str, ...] = ()
    """Languages it can be asked for; one only means it is fixed. Empty: not known."""
    translates: bool = False
    """Whether it can be asked for English, whatever is spoken."""
    word_times: bool = True
    forced_prefix: bool = True
    context_text: bool = True
    speaker_tags: bool = False
    window_s: float | None = None
    """Audio of one live task at most that it is best given, where that is more than the scheduler wants."""
    recording_s: float | None = None
    """Audio of one task that a recording is best given; None: no more than a live window."""
    tries: int = 3
    """Attempts at one window that ask differently, the first included."""
    concurrency: int = 1
    """Tasks it usefully runs at once."""


class EngineError(Exception):
    """A task failed. `cause` is a short stable word for metrics and gaps; `retryable` says whether the
    same task may succeed later."""

    def __init__(self, cause: str, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.cause = cause
        self.retryable = retryable


UNREACHABLE = "unreachable"
OVERLOADED = "overloaded"
NOT_TAKEN = frozenset({UNREACHABLE, OVERLOADED})
"""Causes of failure where no engine began the task: they say nothing about it, only when to come again."""


class Recognizer(Protocol):
    """Turns tasks into hypotheses. Cancelling the awaiting task abandons the work."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        """Decode one task; raises `EngineError` and nothing else."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Voice:
    """The two voice-activity stages' verdict on one frame of `FRAME` samples."""

    cheap: bool
    """First stage: energy and band statistics (WebRTC)."""
    neural: float
    """Second stage: probability of speech; 0 where it was not run because the first stage is quiet."""


class VoiceStream(Protocol):
    """Voice activity of one track; keeps its own state between calls."""

    def feed(self, audio: Audio) -> list[Voice]:
        """Judge whole frames: `audio` holds n * FRAME samples, the answer n verdicts."""
        ...


class SpeechDetector(Protocol):
    """Makes one `VoiceStream` a track; loaded once a process."""

    def open(self) -> VoiceStream: ...


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerTask:
    """Find the voices of one window of one session.

    `tags` are set where the recognizer told the speakers of the window apart by itself: the spans of each of
    its tags. Then only their voices are wanted, and `LocalSpeaker`s come back in the order of `tags`.
    """

    id: str
    session: str
    audio: Audio
    start: int
    """Sample index of `audio[0]`."""
    tags: tuple[tuple[Span, ...], ...] | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.audio)


@dataclass(frozen=True, slots=True, eq=False)
class LocalSpeaker:
    """One voice of one window; which person of the meeting it is, is not known here."""

    active: tuple[Span, ...]
    """Where it is heard, ascending, overlapped speech included."""
    vector: Vector | None
    """Its embedding; None where it is too short alone to have one."""
    alone: int
    """Samples of it alone, from which the vector was made."""


@dataclass(frozen=True, slots=True, eq=False)
class SpeakerWindow:
    """The voices of one window: different people, so no two of them may be linked to one."""

    start: int
    end: int
    speakers: tuple[LocalSpeaker, ...]


@dataclass(frozen=True, slots=True)
class SpeakerTraits:
    """What a caller may ask of a speaker encoder."""

    model: str
    dimension: int
    window_s: float
    """Longest audio of one task, and the length it works best with."""
    same: float
    """Similarity from which two vectors of some seconds each are rather one voice than two."""


class SpeakerEncoder(Protocol):
    """Tells voices apart inside a window and gives each a vector. Loaded once a process; never runs in the
    event loop; work of several sessions may be gathered."""

    @property
    def traits(self) -> SpeakerTraits: ...

    async def voices(self, task: SpeakerTask) -> SpeakerWindow:
        """The voices of a window; raises `EngineError` and nothing else."""
        ...

    async def embed(self, audio: Audio) -> Vector | None:
        """The vector of one voice, for enrolment; None where there is too little speech."""
        ...

    async def close(self) -> None: ...
