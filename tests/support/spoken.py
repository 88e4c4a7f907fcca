"""Real speech for a browser's microphone, out of a package that the extra `dev` brings."""

from __future__ import annotations

import re
import wave
from pathlib import Path

import numpy as np

from clients.recording import reading

from .sound import wav

SECONDS = 11.0
RATE = 48_000

SAID = re.findall(
    r"\w+",
    "it was the best of times it was the worst of times it was the age of wisdom"
    " it was the age of foolishness",
)
"""Its first words, which every model of ours hears."""


def microphone(folder: Path) -> Path:
    """A WAV file in which somebody reads for `SECONDS`, after a second of silence and before two."""
    source = reading()
    assert source is not None, "the extra dev brings it"
    with wave.open(str(source), "rb") as file:
        rate, channels = file.getframerate(), file.getnchannels()
        raw = np.frombuffer(file.readframes(int(SECONDS * rate)), "<i2")
    mono = raw.reshape(-1, channels)[:, 0].astype(np.float64)
    places = np.arange(int(len(mono) * RATE / rate)) * rate / RATE
    spoken = np.interp(places, np.arange(len(mono)), mono).astype("<i2")
    path, quiet = folder / "microphone.wav", np.zeros(RATE, "<i2")
    path.write_bytes(wav(np.concatenate([quiet, spoken, quiet, quiet]).tobytes(), RATE))
    return path


def words(text: str) -> list[str]:
    """The words of a text, as they are compared."""
    return re.findall(r"[\w']+", text.lower())
