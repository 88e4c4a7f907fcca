"""Two stages of voice activity: equal to the reference, cheap in silence, indifferent to packet sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.contract import FRAME, Audio
from engine.detector import WINDOW, DetectorSettings, open_detector

from .real import needs_data, recording

pytest.importorskip("onnxruntime")
pytest.importorskip("faster_whisper")

ALWAYS = DetectorSettings(gated=False)


def noise(seconds: float, level: float, seed: int = 5) -> Audio:
    values = np.random.default_rng(seed).normal(0, level, int(seconds * 16_000))
    return values.astype(np.float32)[: int(seconds * 16_000) // FRAME * FRAME]


def neural(settings: DetectorSettings, audio: Audio, step: int = 1) -> list[float]:
    stream = open_detector(settings).open()
    size = step * FRAME
    return [v.neural for i in range(0, len(audio), size) for v in stream.feed(audio[i : i + size])]


def reference(audio: Audio) -> Any:
    from faster_whisper.vad import get_vad_model

    padded = np.pad(audio, (0, WINDOW - len(audio) % WINDOW))
    return np.ravel(get_vad_model()(padded.copy()))


def check_against_reference(audio: Audio) -> None:
    expected = reference(audio)
    for index, probability in enumerate(neural(ALWAYS, audio, step=5)):
        window = (index + 1) * FRAME // WINDOW - 1
        assert abs(probability - (expected[window] if window >= 0 else 0.0)) < 1e-5


def test_streaming_equals_the_batch_of_the_reference() -> None:
    check_against_reference(noise(3.0, 0.1))


@needs_data
@pytest.mark.real
def test_streaming_equals_the_batch_on_speech() -> None:
    audio = recording("long/two_cities.flac")[: 10 * 16_000]
    check_against_reference(audio)
    assert max(neural(ALWAYS, audio)) > 0.9


@needs_data
@pytest.mark.real
def test_a_gated_stream_judges_almost_as_one_that_always_listens() -> None:
    audio = recording("long/two_cities.flac")[: 20 * 16_000]
    gated, always = neural(DetectorSettings(), audio), neural(ALWAYS, audio)
    differing = [abs(a - b) for a, b in zip(gated, always, strict=True) if a > 0]
    assert max(differing) < 0.1
    missed = [b for a, b in zip(gated, always, strict=True) if a == 0 and b > 0.5]
    assert not missed


def test_packet_sizes_do_not_matter() -> None:
    audio = np.concatenate([noise(1.0, 0.0), noise(1.0, 0.2), noise(2.0, 0.0), noise(0.5, 0.2)])
    assert neural(DetectorSettings(mode=0), audio, 1) == neural(DetectorSettings(mode=0), audio, 17)


def test_the_second_stage_sleeps_in_silence_and_holds_after_speech() -> None:
    stream = open_detector(DetectorSettings(mode=0, hold_s=0.1)).open()
    assert all(v.neural == 0.0 and not v.cheap for v in stream.feed(noise(1.0, 0.0)))
    assert any(v.cheap for v in stream.feed(noise(1.0, 0.2)))
    after = stream.feed(noise(2.0, 0.0))
    last = max((i for i, v in enumerate(after) if v.cheap), default=-1)
    assert all(v.neural > 0 for v in after[: last + 6])
    assert all(v.neural == 0 for v in after[last + 7 :])


def test_streams_do_not_share_state_but_the_network() -> None:
    detector = open_detector(ALWAYS)
    one, other = detector.open(), detector.open()
    one.feed(noise(1.0, 0.3))
    fresh = open_detector(ALWAYS).open()
    assert other.feed(noise(1.0, 0.1, seed=9)) == fresh.feed(noise(1.0, 0.1, seed=9))


def test_audio_beyond_full_scale_is_clipped_not_wrapped() -> None:
    stream = open_detector(ALWAYS).open()
    assert len(stream.feed(noise(0.2, 5.0))) == 10


def test_broken_frames_and_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="319 samples are not a whole number"):
        open_detector().open().feed(np.zeros(319, np.float32))
    with pytest.raises(ValueError, match="mode 4"):
        DetectorSettings(mode=4)
    with pytest.raises(ValueError, match="negative"):
        DetectorSettings(hold_s=-1.0)
