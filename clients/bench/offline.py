"""The yardstick: the same weights over the whole file at once, beam 5, with word times.

A reading costs seconds of CPU and never changes, so it is kept in the user's cache folder under a name
made of the samples, the weights and the settings.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clients.audio import RATE
from engine.weights import cache_dir, sha256_of

from .corpus import Clip

SETTINGS: dict[str, Any] = {
    "beam_size": 5,
    "word_timestamps": True,
    "compute_type": "int8",
    "speech_starts": "neural voice detection, 200 ms of silence, no padding",
}


@dataclass(frozen=True, slots=True)
class OfflineWord:
    """Seconds from the clip's first sample."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What the weights hear when nothing hurries them."""

    text: str
    words: tuple[OfflineWord, ...]
    language: str
    speech_starts_s: tuple[float, ...] = ()
    """Where voice begins after silence. An aligned word's start lies up to half a second before it: alignment
    gives the silence to the word that follows."""


class Offline:
    """Reads clips with the weights in `folder`; loads them only when the cache lacks a clip."""

    def __init__(self, folder: Path, *, threads: int = 2, cache_folder: Path | None = None) -> None:
        self._folder = folder
        self._threads = threads
        self._cache = cache_folder or cache_dir() / "bench"
        self._model: Any = None

    def read(self, clip: Clip, *, language: str | None) -> Reading:
        """The reading of `clip`; `language` None lets the weights decide."""
        place = self._cache / f"{self._key(clip, language)}.json"
        if place.is_file():
            return _load(place)
        reading = self._transcribe(clip, language)
        place.parent.mkdir(parents=True, exist_ok=True)
        # Two benches may write the same reading: each its own file, moved over in one step.
        draft = place.with_suffix(f".{os.getpid()}.tmp")
        draft.write_text(json.dumps(asdict(reading), ensure_ascii=False), encoding="utf-8")
        draft.replace(place)
        return reading

    def _key(self, clip: Clip, language: str | None) -> str:
        name = hashlib.sha256(clip.pcm.tobytes())
        name.update(weights_hash(self._folder).encode())
        name.update(json.dumps([language, SETTINGS], sort_keys=True).encode())
        return name.hexdigest()

    def _transcribe(self, clip: Clip, language: str | None) -> Reading:
        if self._model is None:
            from faster_whisper import WhisperModel

            self._model = WhisperModel(
                str(self._folder),
                device="cpu",
                compute_type=SETTINGS["compute_type"],
                cpu_threads=self._threads,
            )
        audio = clip.pcm.astype(np.float32) / 32768.0
        segments, info = self._model.transcribe(
            audio,
            language=language,
            beam_size=SETTINGS["beam_size"],
            word_timestamps=SETTINGS["word_timestamps"],
        )
        texts, words = [], []
        for segment in segments:
            texts.append(segment.text)
            words += [OfflineWord(w.word.strip(), float(w.start), float(w.end)) for w in segment.words or ()]
        return Reading("".join(texts).strip(), tuple(words), info.language, _speech_starts(audio))


def _speech_starts(audio: npt.NDArray[np.float32]) -> tuple[float, ...]:
    from faster_whisper.vad import VadOptions, get_speech_timestamps

    spans = get_speech_timestamps(audio, VadOptions(min_silence_duration_ms=200, speech_pad_ms=0))
    return tuple(span["start"] / RATE for span in spans)


def _load(place: Path) -> Reading:
    kept = json.loads(place.read_text(encoding="utf-8"))
    words = tuple(OfflineWord(**w) for w in kept["words"])
    return Reading(kept["text"], words, kept["language"], tuple(kept["speech_starts_s"]))


@cache
def weights_hash(folder: Path) -> str:
    """SHA-256 of the weights file; raises `FileNotFoundError` where the folder holds none."""
    return sha256_of(folder / "model.bin")
