"""A scripted engine: words that follow from the audio alone, and failures on demand.

The session clock is divided into slots of half a second. A slot whose middle is loud enough holds one
word, and the word says which slot it is: slot 17 is "one-seven". So a test can tell from the audio what the
transcript must be (`words_of`), and from a word where it was spoken. Who speaks follows from the audio too:
each scripted voice has its loudness (`say`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from .contract import (
    FRAME,
    SAMPLE_RATE,
    Audio,
    Capabilities,
    EngineError,
    Hypothesis,
    LocalSpeaker,
    RecognitionTask,
    Span,
    SpeakerTask,
    SpeakerTraits,
    SpeakerWindow,
    Vector,
    Voice,
    Word,
)

SLOT = SAMPLE_RATE // 2
"""Samples from one word's slot to the next."""

MARGIN = SLOT // 10
"""Samples between a slot's borders and its word."""

LOUD = 0.01
"""Root mean square above which audio is speech."""

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def word(slot: int) -> Word:
    """The word of a slot, with its times."""
    text = "-".join(_DIGITS[int(digit)] for digit in str(slot))
    return Word(text, start=slot * SLOT + MARGIN, end=(slot + 1) * SLOT - MARGIN, confidence=0.9)


def words_of(audio: Audio, start: int = 0) -> list[Word]:
    """The words of audio that begins at sample `start`: those that lie in it whole and are loud."""
    return list(_heard(audio, start))


def _heard(audio: Audio, start: int) -> Iterator[Word]:
    for slot in range(-(-start // SLOT), (start + len(audio)) // SLOT + 1):
        spoken = word(slot)
        if spoken.end > start + len(audio):
            return
        middle = (spoken.start + spoken.end) // 2 - start
        if _loud(audio[max(0, middle - FRAME) : middle + FRAME]):
            yield spoken


def _loud(audio: Audio) -> bool:
    return len(audio) > 0 and float(np.sqrt(np.mean(np.square(audio, dtype=np.float32)))) > LOUD


@dataclass(frozen=True, slots=True)
class FakeScript:
    """How the engine behaves. Seconds of the event loop's clock."""

    delay_s: float = 0.0
    per_audio_s: float = 0.0
    """Extra delay for each second of audio."""
    failures: Mapping[int, EngineError] = field(default_factory=dict)
    """By number of the call, from 0."""
    broken: Callable[[RecognitionTask], bool] = lambda _: False
    """Tasks that fail for good with the cause `scripted`."""
    says: Callable[[RecognitionTask], Hypothesis | None] = lambda _: None
    """What it answers instead of the slots' words; None: nothing else."""
    stalls: Callable[[int], float] = lambda _: 0.0
    """Extra delay by number of the call."""
    concurrency: int = 4
    max_window_s: float = 30.0
    language: str = "en"
    languages: tuple[str, ...] = ()
    translates: bool = False
    """Whether it writes English, whatever is spoken: the same words in capitals."""


SCRIPTS: Mapping[str, FakeScript] = {
    "": FakeScript(),
    "stalling": FakeScript(
        delay_s=0.01,
        stalls=lambda call: 3.0 if call % 31 == 30 else 0.0,
        failures={
            n: EngineError("scripted", "one call fails", retryable=True) for n in range(7, 100_000, 17)
        },
    ),
}
"""By the name that stands for a model: what is scripted for whoever starts the whole server."""


class FakeRecognizer:
    """Hears the slots' words; a pure function of the task but for the script's delays and failures. Refuses
    what other engines refuse: audio longer than its window, languages that it does not name."""

    def __init__(self, script: FakeScript | None = None) -> None:
        self.script = script or FakeScript()
        self.tasks: list[str] = []
        """Ids of the newest tasks begun, oldest first, 1,000 at most."""
        self.calls = 0
        self.abandoned: list[str] = []
        """Ids of the newest tasks whose callers went away while they ran, 1,000 at most."""
        self.closed = False

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            engine="fake",
            model="slots",
            max_window_s=self.script.max_window_s,
            languages=self.script.languages,
            translates=self.script.translates,
            concurrency=self.script.concurrency,
        )

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        script, call = self.script, self.calls
        self._check(task)
        self.calls += 1
        _note(self.tasks, task.id)
        try:
            delay = script.delay_s + script.per_audio_s * len(task.audio) / SAMPLE_RATE + script.stalls(call)
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            _note(self.abandoned, task.id)
            raise
        if call in script.failures:
            raise script.failures[call]
        if script.broken(task):
            raise EngineError("scripted", "the script says so", retryable=False)
        if (instead := script.says(task)) is not None:
            return instead
        said = task.prefix[-1].end if task.prefix else task.start
        words = tuple(w for w in _heard(task.audio, task.start) if w.start >= said)
        if task.translate:
            words = tuple(replace(w, text=w.text.upper()) for w in words)
        return Hypothesis(words, language=task.language or script.language, language_probability=0.9)

    async def close(self) -> None:
        self.closed = True

    def _check(self, task: RecognitionTask) -> None:
        if len(task.audio) > self.script.max_window_s * SAMPLE_RATE:
            raise EngineError("audio", "the audio is longer than the window", retryable=False)
        if task.language and self.script.languages and task.language not in self.script.languages:
            raise EngineError("request", f"language {task.language!r} is not known", retryable=False)


def _note(ids: list[str], id: str) -> None:
    ids.append(id)
    del ids[:-1000]


class _EnergyStream:
    def feed(self, audio: Audio) -> list[Voice]:
        frames = audio.reshape(-1, FRAME)
        loud = np.sqrt(np.mean(np.square(frames), axis=1)) > LOUD
        return [Voice(cheap=bool(x), neural=1.0 if x else 0.0) for x in loud]


class FakeDetector:
    """Speech is what is loud."""

    def open(self) -> _EnergyStream:
        return _EnergyStream()


LEVEL = 0.02
"""Amplitude of the scripted voice 0; each further voice is twice as loud as the one before, five in all."""

VOICES = 5


def say(samples: int, *voices: int) -> Audio:
    """Audio in which the scripted `voices` speak at once; none of them is silence."""
    level = LEVEL * sum(1 << voice for voice in voices)
    audio = np.full(samples, level, np.float32)
    audio[np.arange(samples) % 16 < 8] *= -1
    return audio


def vector_of(voice: int) -> Vector:
    """The vector of a scripted voice: at right angles to every other."""
    vector: Vector = np.eye(VOICES, dtype=np.float32)[voice]
    return vector


@dataclass(frozen=True, slots=True)
class SpeakerScript:
    """How the encoder behaves. Seconds of the event loop's clock."""

    delay_s: float = 0.0
    failures: Mapping[int, EngineError] = field(default_factory=dict)
    """By number of the call, from 0."""
    window_s: float = 10.0
    alone_s: float = 0.5
    """A voice that speaks less than this alone has no vector."""


class FakeEncoder:
    """A `SpeakerEncoder` that hears who speaks from how loud each frame is (see `say`), overlap included."""

    def __init__(self, script: SpeakerScript | None = None) -> None:
        self.script = script or SpeakerScript()
        self.tasks: list[str] = []
        """Ids of the newest tasks begun, oldest first, 1,000 at most."""
        self.calls = 0
        self.closed = False

    @property
    def traits(self) -> SpeakerTraits:
        return SpeakerTraits("levels", VOICES, self.script.window_s, 0.5)

    async def voices(self, task: SpeakerTask) -> SpeakerWindow:
        _note(self.tasks, task.id)
        await self._wait()
        heard = _levels(task.audio)
        if task.tags is None:
            active = [v for v in range(VOICES) if heard[:, v].any()]
            speakers = [self._voice(heard, v, task) for v in active]
        else:
            speakers = [self._tagged(heard, spans, task.start) for spans in task.tags]
        return SpeakerWindow(task.start, task.end, tuple(speakers))

    async def embed(self, audio: Audio) -> Vector | None:
        await self._wait()
        return self._tagged(_levels(audio), ((0, len(audio)),), 0).vector

    async def close(self) -> None:
        self.closed = True

    async def _wait(self) -> None:
        call, self.calls = self.calls, self.calls + 1
        await asyncio.sleep(self.script.delay_s)
        if call in self.script.failures:
            raise self.script.failures[call]

    def _voice(self, heard: npt.NDArray[np.bool_], voice: int, task: SpeakerTask) -> LocalSpeaker:
        spans = _spans(heard[:, voice], task.start, task.end)
        alone = int((heard[:, voice] & (heard.sum(axis=1) == 1)).sum()) * FRAME
        return LocalSpeaker(spans, self._vector(voice, alone), alone)

    def _vector(self, voice: int, alone: int) -> Vector | None:
        return vector_of(voice) if alone >= self.script.alone_s * SAMPLE_RATE else None

    def _tagged(self, heard: npt.NDArray[np.bool_], spans: tuple[Span, ...], start: int) -> LocalSpeaker:
        """The voice that is most alone in the spans."""
        inside = np.zeros(len(heard), np.bool_)
        for a, b in spans:
            inside[max(0, a - start) // FRAME : max(0, b - start + FRAME - 1) // FRAME] = True
        alone = (heard & inside[:, None])[heard.sum(axis=1) == 1].sum(axis=0) * FRAME
        best = int(np.argmax(alone))
        return LocalSpeaker(spans, self._vector(best, int(alone[best])), int(alone[best]))


def _levels(audio: Audio) -> npt.NDArray[np.bool_]:
    """Which scripted voices speak in each frame, shape (frames, VOICES)."""
    whole = -(-len(audio) // FRAME) * FRAME
    padded = np.zeros(whole, np.float32)
    padded[: len(audio)] = audio
    loud = np.sqrt(np.mean(np.square(padded.reshape(-1, FRAME)), axis=1))
    level = np.minimum(np.rint(loud / LEVEL).astype(np.int64), (1 << VOICES) - 1)
    bits: npt.NDArray[np.bool_] = (level[:, None] >> np.arange(VOICES)) & 1 == 1
    return bits


def _spans(frames: npt.NDArray[np.bool_], start: int, end: int) -> tuple[Span, ...]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], frames, [False]]).astype(np.int8)))
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return tuple((start + a * FRAME, min(end, start + b * FRAME)) for a, b in pairs)
