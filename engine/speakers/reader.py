"""What is read from one window, in the calling thread: who speaks where, and a vector of each voice."""

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
from .features import BANDS, HOP, WINDOW, Floats, fbank
from .powerset import ActivitySettings
from .weights import NETWORKS

DIMENSION = 192
SHORTEST = WINDOW + 8 * HOP
"""Samples the networks need at least; shorter audio is padded with silence."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How windows are judged and how long work may wait."""

    window_s: float = 10.0
    """The length the segmentation was trained with; longer windows are refused."""
    alone_s: float = 0.5
    """A voice that speaks less than this alone has no vector."""
    enrol_s: float = 1.0
    """Least speech of an enrolment."""
    enrol_longest_s: float = 60.0
    """Speech that an enrolment uses at most."""
    same: float = 0.5
    threads: int = 1
    queue: int = 256
    """Tasks that wait or run; more are refused."""
    deadline_s: float = 10.0
    activity: ActivitySettings = field(default_factory=ActivitySettings)

    def __post_init__(self) -> None:
        for name in ("window_s", "alone_s", "enrol_s", "enrol_longest_s", "deadline_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"speakers: {name} must be more than 0 seconds")
        if self.threads < 1 or self.queue < 1:
            raise ValueError("speakers: threads and queue must be at least 1")


class _Session(Protocol):
    """The part of an ONNX session that is used."""

    def run(self, names: None, feeds: Mapping[str, Floats]) -> Sequence[Floats]: ...


class Networks:
    """The two networks, blocking; several threads may call at once."""

    def __init__(self, segmentation: _Session, embedding: _Session) -> None:
        self._segmentation = segmentation
        self._embedding = embedding

    def classes(self, audio: Audio) -> Floats:
        """Log-probabilities of the powerset, shape (frames, 7)."""
        padded = np.zeros((1, 1, max(len(audio), SHORTEST)), np.float32)
        padded[0, 0, : len(audio)] = audio
        classes: Floats = self._segmentation.run(None, {"audio": padded})[0][0]
        return classes

    def vector(self, features: Floats) -> Vector:
        """The unit vector of one voice from its features (frames, 80), their mean not yet taken off."""
        centred = features - features.mean(axis=0)
        found = self._embedding.run(None, {"features": centred[None]})[0][0]
        unit: Vector = found / max(float(np.linalg.norm(found)), 1e-12)
        unit.flags.writeable = False
        return unit


class WindowReader:
    """What the encoder does, in the calling thread."""

    def __init__(self, networks: Networks, settings: EncoderSettings) -> None:
        self._networks = networks
        self._settings = settings

    def voices(self, task: SpeakerTask) -> SpeakerWindow:
        """The voices of a window, or of the spans of its tags."""
        longest = round(self._settings.window_s * SAMPLE_RATE)
        if len(task.audio) > longest:
            message = f"a window of {len(task.audio)} samples is longer than {longest}: cut it"
            raise EngineError("rejected", message, retryable=False)
        if task.tags is None:
            active = self._segments(task.audio)
        else:
            end = len(task.audio)
            local = [[(a - task.start, b - task.start) for a, b in spans] for spans in task.tags]
            active = [
                tuple((max(0, a), min(end, b)) for a, b in spans if a < end and b > 0) for spans in local
            ]
        features = fbank(task.audio) if any(active) else np.zeros((0, BANDS), np.float32)
        speakers = []
        for index, spans in enumerate(active):
            clean = powerset.alone(spans, tuple(active[:index] + active[index + 1 :]))
            speakers.append(self._speaker(task.start, spans, clean, features))
        return SpeakerWindow(task.start, task.end, tuple(speakers))

    def embed(self, audio: Audio) -> Vector | None:
        """One vector of all that is spoken by one voice alone; None under `enrol_s` of it."""
        size = round(self._settings.window_s * SAMPLE_RATE)
        parts: list[Floats] = []
        for start in range(0, len(audio), size):
            window = audio[start : start + size]
            active = self._segments(window)
            features = fbank(window)
            for index, spans in enumerate(active):
                clean = powerset.alone(spans, tuple(active[:index] + active[index + 1 :]))
                parts.append(features[_frames(clean, len(features))])
        spoken = np.concatenate(parts) if parts else np.zeros((0, BANDS), np.float32)
        if len(spoken) * HOP < self._settings.enrol_s * SAMPLE_RATE:
            return None
        return self._networks.vector(spoken[: round(self._settings.enrol_longest_s * SAMPLE_RATE) // HOP])

    def _segments(self, audio: Audio) -> list[tuple[Span, ...]]:
        """Where each voice of the window is heard, most heard first; those never heard are left out."""
        if not len(audio):
            return []
        probability = powerset.probabilities(self._networks.classes(audio))
        heard = powerset.activity(probability, self._settings.activity)
        found = [powerset.spans(row, len(audio)) for row in heard.T]
        return sorted(filter(None, found), key=_length, reverse=True)

    def _speaker(
        self, start: int, active: tuple[Span, ...], clean: tuple[Span, ...], features: Floats
    ) -> LocalSpeaker:
        alone = _length(clean)
        vector = None
        if alone >= self._settings.alone_s * SAMPLE_RATE:
            frames = _frames(clean, len(features))
            if frames.sum() * HOP >= self._settings.alone_s * SAMPLE_RATE / 2:
                vector = self._networks.vector(features[frames])
        return LocalSpeaker(tuple((start + a, start + b) for a, b in active), vector, alone)


def _length(spans: tuple[Span, ...]) -> int:
    return sum(end - start for start, end in spans)


def _frames(spans: tuple[Span, ...], count: int) -> powerset.Mask:
    """The feature frames whose middle lies in the spans."""
    chosen = np.zeros(count, np.bool_)
    for start, end in spans:
        first, last = (-(-(edge - WINDOW // 2) // HOP) for edge in (start, end))
        chosen[max(0, first) : max(0, last)] = True
    return chosen


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
