"""The real networks: equal to torch, and right about real voices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.contract import SAMPLE_RATE, Audio, SpeakerTask
from engine.speakers import weights
from engine.speakers.encoder import open_encoder
from engine.speakers.features import fbank
from engine.speakers.reader import EncoderSettings, Networks, WindowReader, load
from tests.engine.real import needs_data, needs_speakers, recording

from .signals import chant

S = SAMPLE_RATE
REFERENCE = np.load(Path(__file__).parent / "reference.npz")
"""Of `chant(1.6)`: classes and vector by torch 2.14 with the networks' own code (CAM++ as 3D-Speaker has it,
without a ReLU at its end), every 20th feature frame by kaldi-native-fbank 1.23."""

SPEAKERS = ("1688-142285", "2033-164914", "2414-128291", "3005-163389", "3080-5032", "367-130732")


def utterance(speaker: str, number: int) -> Audio:
    return recording(f"utterances_en/librispeech-test-other/{speaker}-{number:04d}.flac")


@pytest.fixture(scope="module")
def networks() -> Networks:
    return load(weights.find())


@pytest.fixture(scope="module")
def reader(networks: Networks) -> WindowReader:
    return WindowReader(networks, EncoderSettings())


def test_features_equal_kaldi() -> None:
    assert np.abs(fbank(chant(1.6))[::20] - REFERENCE["features"]).max() < 5e-4


@needs_speakers
def test_networks_equal_torch(networks: Networks) -> None:
    audio = chant(1.6)
    classes = networks.classes(audio)
    assert np.abs(np.exp(classes) - np.exp(REFERENCE["classes"])).max() < 1e-4
    voiced = networks.voiced(audio)
    vector = networks.vectors(voiced, [np.ones(voiced.shape[2], np.bool_)])[0]
    assert np.abs(vector - REFERENCE["vector"]).max() < 1e-5


@needs_speakers
@needs_data
def test_one_speaker_is_more_alike_than_two(reader: WindowReader) -> None:
    found = {(s, n): reader.embed(utterance(s, n)) for s in SPEAKERS for n in (0, 4)}
    vectors = {key: vector for key, vector in found.items() if vector is not None}
    assert len(vectors) == 12
    same = [float(vectors[s, 0] @ vectors[s, 4]) for s in SPEAKERS]
    different = [float(vectors[a, 0] @ vectors[b, 4]) for a in SPEAKERS for b in SPEAKERS if a != b]
    limit = EncoderSettings().same
    assert min(same) > limit > max(different)


@needs_speakers
@needs_data
@pytest.mark.parametrize(("first", "second"), [(0, 2), (1, 2), (2, 4), (3, 5), (3, 4)])
def test_a_change_of_voice_is_found(reader: WindowReader, first: int, second: int) -> None:
    border = 4 * S
    parts = [utterance(SPEAKERS[k], 1)[S // 2 : S // 2 + border] for k in (first, second)]
    audio = np.concatenate([part / np.abs(part).max() * 0.3 for part in parts]).astype(np.float32)
    speakers = reader.voices(SpeakerTask("t", "s", audio, 0)).speakers
    assert len(speakers) == 2
    one, other = sorted(speakers, key=lambda voice: voice.active[0][0])
    assert abs(one.active[-1][1] - border) < 0.3 * S
    assert abs(other.active[0][0] - border) < 0.3 * S
    assert one.vector is not None
    assert other.vector is not None
    assert float(one.vector @ other.vector) < EncoderSettings().same


@needs_speakers
def test_silence_and_noise_have_no_voices(reader: WindowReader) -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.01, 5 * S).astype(np.float32)
    for audio in (np.zeros(5 * S, np.float32), noise, np.zeros(10, np.float32)):
        assert reader.voices(SpeakerTask("t", "s", audio, 0)).speakers == ()


@needs_speakers
@needs_data
async def test_the_encoder_gives_what_the_reader_gives(reader: WindowReader) -> None:
    task = SpeakerTask("t", "s", utterance(SPEAKERS[0], 0)[: 5 * S], 7 * S)
    encoder = open_encoder()
    found, expected = await encoder.voices(task), reader.voices(task)
    await encoder.close()
    assert [v.active for v in found.speakers] == [v.active for v in expected.speakers]
    assert found.speakers[0].vector is not None
    assert len(found.speakers[0].vector) == encoder.traits.dimension
