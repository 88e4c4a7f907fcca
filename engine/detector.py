"""Voice activity in two stages: WebRTC on every frame, Silero where the first says speech.

The first stage costs 0.1 ms of CPU an audio second and takes noise for speech; the second costs thirty
times that and does not. One neural session serves the process, every stream keeps its own state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .contract import FRAME, SAMPLE_RATE, Audio, EngineError, Voice

WINDOW = 512
"""Samples the neural stage judges at a time (32 ms)."""
CONTEXT = 64
"""Samples before a window that it hears again."""
_STATE = (1, 1, 128)
_ASSET = "assets/silero_vad_v6.onnx"

Floats = npt.NDArray[np.float32]


class _Session(Protocol):
    """The part of an ONNX session that is used."""

    def run(self, names: None, feeds: dict[str, Floats]) -> Sequence[Floats]: ...


@dataclass(frozen=True, slots=True)
class DetectorSettings:
    """`mode` 0-3: how readily the first stage calls a frame noise."""

    mode: int = 2
    hold_s: float = 0.5
    """The second stage runs this long after the first last heard speech."""
    warmup_windows: int = 12
    """Newest skipped windows that a waking second stage hears first."""
    gated: bool = True
    """False runs the second stage always."""

    def __post_init__(self) -> None:
        if not 0 <= self.mode <= 3:
            raise ValueError(f"detector mode {self.mode} is not one of 0 to 3")
        if self.hold_s < 0 or self.warmup_windows < 0:
            raise ValueError("hold and warm-up must not be negative")


class Detector:
    """A `SpeechDetector`: the shared network and the settings of its streams."""

    def __init__(self, session: _Session, settings: DetectorSettings) -> None:
        self._session = session
        self._settings = settings

    def open(self) -> TwoStageStream:
        return TwoStageStream(self._session, self._settings)


class TwoStageStream:
    """A `VoiceStream`; not to be fed from two threads at once."""

    def __init__(self, session: _Session, settings: DetectorSettings) -> None:
        self._cheap: Any = import_module("webrtcvad").Vad(settings.mode)
        self._neural = NeuralStage(session, settings.warmup_windows)
        self._gated = settings.gated
        self._hold = round(settings.hold_s * SAMPLE_RATE)
        self._since_speech: int | None = None
        self._probability = 0.0

    def feed(self, audio: Audio) -> list[Voice]:
        """One verdict a frame; raises `ValueError` unless `audio` is a whole number of frames."""
        if len(audio) % FRAME:
            raise ValueError(f"{len(audio)} samples are not a whole number of {FRAME}-sample frames")
        pcm = (np.clip(audio, -1.0, 1.0) * 32767.0).astype("<i2").tobytes()
        cheap = [
            bool(self._cheap.is_speech(pcm[at : at + 2 * FRAME], SAMPLE_RATE))
            for at in range(0, len(pcm), 2 * FRAME)
        ]
        awake = [self._awake(speech) for speech in cheap]
        heard = self._neural.hear(audio, awake)
        verdicts = []
        for speech, listens, probability in zip(cheap, awake, heard, strict=True):
            if not listens:
                self._probability = 0.0
            elif probability is not None:
                self._probability = probability
            verdicts.append(Voice(speech, self._probability))
        return verdicts

    def _awake(self, speech: bool) -> bool:
        """Whether the second stage listens to the next frame, of which this is the first one's verdict."""
        if speech:
            self._since_speech = 0
        elif self._since_speech is not None:
            self._since_speech += FRAME
            if self._since_speech > self._hold:
                self._since_speech = None
        return not self._gated or self._since_speech is not None


class NeuralStage:
    """The recurrent network over one stream, on a fixed grid of windows.

    While it sleeps it only keeps the newest windows; when it hears again it hears those first, so that its
    answers are nearly those of a network that always listened. It goes on from the state it fell asleep
    with, a state of silence: measured on meetings, a fresh state disagrees with an always listening network
    on 0.5-2 % of the frames, the kept one on 0-0.2 %.
    """

    def __init__(self, session: _Session, warmup: int) -> None:
        self._session = session
        # The context of the next window, and its samples that are there already.
        self._rest: Floats = np.zeros(CONTEXT, np.float32)
        self._waiting: deque[Floats] = deque(maxlen=warmup)
        self._state: tuple[Floats, Floats] = (np.zeros(_STATE, np.float32), np.zeros(_STATE, np.float32))

    def hear(self, audio: Audio, awake: Sequence[bool]) -> list[float | None]:
        """The newest probability for each frame of `audio`, None where a frame completes no window or it is
        not `awake`. All windows go through the network in one call: three of a packet of 0.1 s take two
        thirds of the time of three calls."""
        before = len(self._rest) - CONTEXT
        samples = np.concatenate((self._rest, audio))
        count = (len(samples) - CONTEXT) // WINDOW
        batch: list[Floats] = []
        judged: list[tuple[int, int]] = []  # a frame, and which of the batch it completes
        for number in range(count):
            window = samples[number * WINDOW : (number + 1) * WINDOW + CONTEXT]
            frame = ((number + 1) * WINDOW - before - 1) // FRAME
            if awake[frame]:
                batch += (*self._waiting, window)
                self._waiting.clear()
                judged.append((frame, len(batch) - 1))
            else:
                self._waiting.append(window)
        self._rest = samples[count * WINDOW :]
        heard: list[float | None] = [None] * len(awake)
        if batch:
            feeds = {"input": np.stack(batch), "h": self._state[0], "c": self._state[1]}
            output, *state = self._session.run(None, feeds)
            self._state = (state[0], state[1])
            values = np.ravel(output).tolist()
            for frame, place in judged:
                heard[frame] = values[place]
        return heard


@lru_cache(maxsize=1)
def _session() -> _Session:
    """The network, loaded once a process; raises `EngineError("detector")` where it is not installed."""
    spec = find_spec("faster_whisper")
    paths = [Path(root) / _ASSET for root in (spec.submodule_search_locations or ())] if spec else []
    path = next((path for path in paths if path.is_file()), None)
    try:
        onnxruntime: Any = import_module("onnxruntime")
    except ImportError:
        path = None
    if path is None:
        raise EngineError(
            "detector",
            "voice activity detection is not installed; bring it with: pip install 'seamscribe[engine]'",
            retryable=False,
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    options.log_severity_level = 3
    session: _Session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session


def open_detector(settings: DetectorSettings | None = None) -> Detector:
    """The two-stage detector; raises `EngineError("detector")` where its parts are not installed."""
    return Detector(_session(), settings or DetectorSettings())
