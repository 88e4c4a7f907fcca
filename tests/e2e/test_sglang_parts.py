"""Parts of the SGLang path against the reference library: features, converted weights, the same words."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.contract import Audio
from engine.policies.opening import open_serving
from engine.sglang.bench.clips import distance, words
from engine.sglang.folders import serving_folder
from tests.support.data import DATA, needs_data

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang has its own environment"),
]


def clips() -> list[Audio]:
    random = np.random.default_rng(8)
    noise = (random.standard_normal(16_000 * 7) * 0.1).astype(np.float32)
    quiet = np.zeros(16_000, np.float32)
    return [noise, noise[:161], quiet, np.concatenate([quiet, noise * 3.0]), noise[: 16_000 * 5 + 77]]


@pytest.mark.parametrize("bins", [80, 128])
def test_features_are_those_of_the_reference_extractor(bins: int) -> None:
    torch, logmel = import_module("torch"), import_module("engine.sglang.plugin.logmel")
    extractor = import_module("transformers").WhisperFeatureExtractor(feature_size=bins)
    for audio in clips():
        expected = extractor(audio, sampling_rate=16_000, return_tensors="np").input_features[0]
        sparse = logmel.log_mel_padded(torch.from_numpy(audio), bins, 3000).numpy()
        assert np.abs(sparse - expected).max() <= 1e-4
        # On the device the window is shorter; its frames are the same ones.
        frames = max(1000, 100 * -(-len(audio) // 16_000) + 300)
        window = torch.zeros(1, frames * 160)
        window[0, : len(audio)] = torch.from_numpy(audio)
        short = logmel.log_mel(window, bins)[0].numpy()
        assert np.abs(short - expected[:, :frames]).max() <= 1e-4


@needs_data
def test_converted_weights_say_what_the_reference_library_says() -> None:
    folder = serving_folder("tiny.en")
    heard, expected = transcribe(folder), []
    for name in NAMES:
        row = next(line for line in rows() if line[0].endswith(name))
        expected.append(row[1])
    wrong = sum(distance(words(a), words(b)) for a, b in zip(expected, heard, strict=True))
    assert wrong / sum(len(words(text)) for text in expected) < 0.15, heard
    facts = open_serving(folder).facts
    assert facts.kv_bytes_per_token == 2 * (4 + 2 * 4) * 384 * 2


NAMES = ("3005-163389-0000.flac", "3005-163389-0003.flac", "3080-5032-0005.flac", "2414-128291-0004.flac")


def rows() -> list[tuple[str, str]]:
    lines = (DATA / "MANIFEST.tsv").read_text("utf-8").splitlines()
    head = lines[0].split("\t")
    path, text = head.index("path"), head.index("ref_text")
    return [(cells[path], cells[text]) for cells in (line.split("\t") for line in lines[1:])]


def transcribe(folder: Path) -> list[str]:
    """What the reference library makes of the clips with the converted weights."""
    library: Any = import_module("transformers")
    soundfile, torch = import_module("soundfile"), import_module("torch")
    torch.set_num_threads(1)
    model = library.WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    processor = library.WhisperProcessor.from_pretrained(folder)
    found: list[str] = []
    for name in NAMES:
        path = next(DATA / place for place, _ in rows() if place.endswith(name))
        samples, rate = soundfile.read(path, dtype="float32")
        features = processor(samples, sampling_rate=rate, return_tensors="pt").input_features
        ids = model.generate(features, max_new_tokens=120)
        found += processor.batch_decode(ids, skip_special_tokens=True)
    return found
