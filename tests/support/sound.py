"""Audio whose words under the fake engine are known."""

from __future__ import annotations

import io
import wave

import numpy as np
import numpy.typing as npt

from engine.contract import SAMPLE_RATE, Audio
from engine.fake import SLOT, words_of


def speech(slots: str, rate: int = SAMPLE_RATE) -> Audio:
    """Half a second per character: a hum for `x`, silence for anything else."""
    size = SLOT * rate // SAMPLE_RATE
    time = np.arange(size * len(slots)) / rate
    voiced = np.repeat([1.0 if slot == "x" else 0.0 for slot in slots], size)
    audio: Audio = (0.3 * np.sin(2 * np.pi * 200 * time) * voiced).astype(np.float32)
    return audio


def s16(audio: npt.NDArray[np.float32]) -> bytes:
    return (audio * 32767).astype("<i2").tobytes()


def wav(pcm: bytes, rate: int = SAMPLE_RATE, channels: int = 1) -> bytes:
    """These s16 samples as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((channels, 2, rate, 0, "NONE", ""))
        writer.writeframes(pcm)
    return file.getvalue()


def expected(slots: str) -> list[str]:
    """The words the fake engine must hear."""
    return [word.text for word in words_of(speech(slots))]
