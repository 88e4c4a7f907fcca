"""A scripted engine: words that follow from the audio alone, and failures on demand.

The session clock is divided into slots of half a second. A slot whose middle is loud enough holds one
word, and the word says which slot it is: slot 17 is "one-seven". So a test can tell from the audio what the
transcript must be (`words_of`), and from a word where it was spoken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from .contract import (
    FRAME,
    SAMPLE_RATE,
    Audio,
    Capabilities,
    EngineError,
    Hypothesis,
    RecognitionTask,
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
    says: Callable[[RecognitionTask], Hypothesis] | None = None
    """What it answers instead of the slots' words."""
    concurrency: int = 4
    max_window_s: float = 30.0
    language: str = "en"
    languages: tuple[str, ...] = ()


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
            concurrency=self.script.concurrency,
        )

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        script, call = self.script, self.calls
        self._check(task)
        self.calls += 1
        _note(self.tasks, task.id)
        try:
            delay = script.delay_s + script.per_audio_s * len(task.audio) / SAMPLE_RATE
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            _note(self.abandoned, task.id)
            raise
        if call in script.failures:
            raise script.failures[call]
        if script.broken(task):
            raise EngineError("scripted", "the script says so", retryable=False)
        if script.says is not None:
            return script.says(task)
        said = task.prefix[-1].end if task.prefix else task.start
        words = tuple(w for w in _heard(task.audio, task.start) if w.start >= said)
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
