"""Real weights and real recordings, where this machine has them."""

from __future__ import annotations

import csv
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.contract import Audio
from engine.local.recognizer import LocalRecognizer, open_recognizer
from engine.speakers.weights import folder as speakers_folder
from engine.weights import PACKAGED, missing_packages

DATA = Path(os.environ.get("SEAMSCRIBE_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")

needs_data = pytest.mark.skipif(
    not (DATA / "MANIFEST.tsv").is_file(),
    reason="the shared recordings are neither beside this checkout nor at SEAMSCRIBE_DATA",
)

needs_speakers = pytest.mark.skipif(
    not speakers_folder().is_dir(), reason="the speaker networks are not here: seamscribe weights speakers"
)


def needs_weights(name: str) -> pytest.MarkDecorator:
    """Skip where the packaged weights `name` are not installed."""
    missing = missing_packages(PACKAGED[name])
    return pytest.mark.skipif(bool(missing), reason=f"weights of {name} not installed: {missing}")


@lru_cache(maxsize=4)
def recognizer(model: str) -> LocalRecognizer:
    """One loaded recognizer a model for the whole test run."""
    return open_recognizer(model, 1)


@lru_cache(maxsize=32)
def recording(path: str) -> Audio:
    """A recording below the data folder, mono 16 kHz."""
    decode: Any = pytest.importorskip("faster_whisper.audio").decode_audio
    audio: Audio = np.asarray(decode(str(DATA / path)), np.float32)
    return audio


@lru_cache(maxsize=1)
def references() -> dict[str, str]:
    """Reference texts by path, where the manifest has them."""
    with (DATA / "MANIFEST.tsv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["path"]: row["ref_text"] for row in rows if row["ref_text"]}


def spoken(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.findall(r"[\w']+", text.lower())


def errors(reference: list[str], heard: list[str]) -> float:
    """Word error rate: substitutions, insertions and deletions per reference word."""
    row = list(range(len(heard) + 1))
    for i, word in enumerate(reference, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (word != other))
    return row[-1] / max(len(reference), 1)
