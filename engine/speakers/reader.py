"""What is read from one window, in the calling thread: who speaks where, and a vector of each voice.

The embedding runs once over the whole window; each voice's vector is pooled from the steps in which it is
heard alone. That costs the same for one voice and for ten, and windows of a second slide over it
for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine.contract import (
    SAMPLE_RATE,
    Audio,
    EngineError,
    LocalSpeaker,
    Span,
    SpeakerTask,
    SpeakerWindow,
    Vector,
)

from . import powerset
from .features import Floats, fbank
from .powerset import STEP, ActivitySettings, Mask
from .split import Heard, SplitSettings, apart, separate
from .weights import NETWORKS

DIMENSION = 192
SHORTEST = 1_600
"""Samples the networks need at least; shorter audio is padded with silence."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How windows are judged and how long work may wait."""

    window_s: float = 10.0
    """The length the segmentation was trained with; longer windows are refused, but where tags come along."""
    alone_s: float = 0.5
    """A voice that speaks less than this alone has no vector."""
    enrol_s: float = 1.0
    """Least speech of an enrolment."""
    same: float = 0.45
    """What `SpeakerTraits.same` says."""
    threads: int = 1
    queue: int = 256
    """Tasks that wait or run; more are refused."""
    deadline_s: float = 10.0
    activity: ActivitySettings = field(default_factory=ActivitySettings)
    split: SplitSettings = field(default_factory=SplitSettings)

    def __post_init__(self) -> None:
        for name in ("window_s", "alone_s", "enrol_s", "deadline_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"speakers: {name} must be more than 0 seconds")
        if self.threads < 1 or self.queue < 1:
            raise ValueError("speakers: threads and queue must be at least 1")


class _Session(Protocol):
    """The part of an ONNX session that is used."""

    def run(self, names: None, feeds: Mapping[str, Floats]) -> Sequence[Floats]: ...


class Networks:
    """The networks, blocking; several threads may call at once."""

    def __init__(self, segmentation: _Session, embedding: _Session, pooling: _Session) -> None:
        self._segmentation = segmentation
        self._embedding = embedding
        self._pooling = pooling

    def classes(self, audio: Audio) -> Floats:
        """Log-probabilities of the powerset, shape (frames, 7)."""
        found: Floats = self._segmentation.run(None, {"audio": audio[None, None]})[0][0]
        return found

    def voiced(self, audio: Audio) -> Floats:
        """What the embedding hears before it pools, shape (1, 512, steps)."""
        features = fbank(audio)
        return self._embedding.run(None, {"features": (features - features.mean(axis=0))[None]})[0]

    def vectors(self, voiced: Floats, masks: Sequence[Mask]) -> Floats:
        """Unit vectors, shape (masks, 192); each mask has two steps at least."""
        found = self._pooling.run(None, {"voiced": voiced, "masks": np.stack(masks).astype(np.float32)})[0]
        unit: Floats = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-9)
        return unit


class WindowReader:
    """What the encoder does, in the calling thread."""

    def __init__(self, networks: Networks, settings: EncoderSettings) -> None:
        self._networks = networks
        self._settings = settings

    def voices(self, task: SpeakerTask) -> SpeakerWindow:
        """The voices of a window, most heard first, or those of its tags; raises `EngineError`."""
        longest = round(self._settings.window_s * SAMPLE_RATE)
        if task.tags is None and len(task.audio) > longest:
            message = f"a window of {len(task.audio)} samples is longer than {longest}: cut it"
            raise EngineError("rejected", message, retryable=False)
        if task.tags is None:
            heard, vectors = self._listen(task.audio)
            active = [powerset.spans(voice.active, len(task.audio)) for voice in heard]
            active = [tuple((task.start + a, task.start + b) for a, b in spans) for spans in active]
        else:
            active = [_within(spans, task.start, task.end) for spans in task.tags]
            heard, vectors = self._tagged(task, active, longest)
        pairs = zip(active, heard, vectors, strict=True)
        speakers = [LocalSpeaker(a, v, int(h.alone.sum()) * STEP) for a, h, v in pairs]
        return SpeakerWindow(task.start, task.end, tuple(speakers))

    def embed(self, audio: Audio) -> Vector | None:
        """One vector of all that is spoken alone, whoever speaks; None under `enrol_s` of it."""
        size = round(self._settings.window_s * SAMPLE_RATE)
        total, steps = np.zeros(DIMENSION, np.float32), 0
        for start in range(0, len(audio), size):
            window = _padded(audio[start : start + size])
            heard = [voice.alone for voice in self._segments(window)]
            alone = np.logical_or.reduce(heard) if heard else np.zeros(1, np.bool_)
            if alone.sum() * STEP >= self._settings.alone_s * SAMPLE_RATE:
                total += alone.sum() * self._networks.vectors(self._networks.voiced(window), [alone])[0]
                steps += int(alone.sum())
        if steps * STEP < self._settings.enrol_s * SAMPLE_RATE:
            return None
        return _frozen(total / max(float(np.linalg.norm(total)), 1e-9))

    def _listen(self, audio: Audio) -> tuple[list[Heard], list[Vector | None]]:
        window = _padded(audio)
        heard = self._segments(window)
        if not heard:
            return [], []
        voiced = self._networks.voiced(window)
        found = separate(heard, lambda masks: self._networks.vectors(voiced, masks), self._settings.split)
        found.sort(key=lambda voice: int(voice.active.sum()), reverse=True)
        return found, self._vectors(voiced, found)

    def _tagged(
        self, task: SpeakerTask, active: Sequence[tuple[Span, ...]], longest: int
    ) -> tuple[list[Heard], list[Vector | None]]:
        """The voices of tags, of windows of any length."""
        window = _padded(task.audio)
        local = [tuple((a - task.start, b - task.start) for a, b in spans) for spans in active]
        heard = apart([powerset.mask(spans, _steps(window)) for spans in local])
        if not any(voice.alone.any() for voice in heard):
            return heard, [None] * len(heard)
        if len(window) > longest:
            return heard, [self._gathered(window, voice.alone, longest) for voice in heard]
        return heard, self._vectors(self._networks.voiced(window), heard)

    def _gathered(self, window: Audio, alone: Mask, longest: int) -> Vector | None:
        """The vector of what one voice says alone, its longest stretches first, `longest` samples at most."""
        pieces, left = list[Audio](), longest
        stretches = sorted(powerset.spans(alone, len(window)), key=lambda span: span[0] - span[1])
        for start, end in stretches:
            pieces.append(window[start : min(end, start + left)])
            left -= len(pieces[-1])
            if left <= 0:
                break
        said = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
        if len(said) < self._settings.alone_s * SAMPLE_RATE:
            return None
        said = _padded(said)
        return _frozen(
            self._networks.vectors(self._networks.voiced(said), [np.ones(_steps(said), np.bool_)])[0]
        )

    def _segments(self, window: Audio) -> list[Heard]:
        """The voices as the segmentation hears them."""
        probability = powerset.probabilities(self._networks.classes(window), _steps(window))
        return apart(powerset.activity(probability, self._settings.activity))

    def _vectors(self, voiced: Floats, heard: Sequence[Heard]) -> list[Vector | None]:
        """A vector for each voice that is long enough alone."""
        least = self._settings.alone_s * SAMPLE_RATE
        enough = [voice.alone for voice in heard if voice.alone.sum() * STEP >= least]
        found = iter(self._networks.vectors(voiced, enough) if enough else ())
        return [_frozen(next(found)) if v.alone.sum() * STEP >= least else None for v in heard]


def _steps(window: Audio) -> int:
    """Steps of the embedding in a window: one for each two feature frames."""
    return (1 + (len(window) - 400) // 160 + 1) // 2


def _padded(audio: Audio) -> Audio:
    if len(audio) >= SHORTEST:
        return np.asarray(audio, np.float32)
    padded = np.zeros(SHORTEST, np.float32)
    padded[: len(audio)] = audio
    return padded


def _within(spans: tuple[Span, ...], start: int, end: int) -> tuple[Span, ...]:
    return tuple((max(start, a), min(end, b)) for a, b in spans if a < end and b > start)


def _frozen(vector: Floats) -> Vector:
    vector = np.array(vector, np.float32)
    vector.flags.writeable = False
    return vector


def load(folder: Path) -> Networks:
    """The networks of a folder; raises `EngineError("speakers")` without ONNX runtime."""
    try:
        runtime: Any = import_module("onnxruntime")
    except ImportError:
        message = (
            "telling speakers apart needs onnxruntime; bring it with: pip install 'seamscribe[speakers]'"
        )
        raise EngineError("speakers", message, retryable=False) from None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Windows differ in length, and the arena would keep the most that any of them took.
    options.enable_cpu_mem_arena = False
    sessions = [
        runtime.InferenceSession(str(folder / f"{name}.onnx"), options, providers=["CPUExecutionProvider"])
        for name in NETWORKS
    ]
    return Networks(*sessions)
