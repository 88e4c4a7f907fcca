"""Features of a padded window are those of the reference front end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.mel import HOP, log_mel


@pytest.mark.parametrize("bands", [80, 128])
@pytest.mark.parametrize("samples", [0, 1, 7 * 16_000 + 33, 159_700, 159_999, 160_000])
def test_it_equals_the_reference_on_the_whole_window(samples: int, bands: int) -> None:
    reference: Any = pytest.importorskip("faster_whisper.feature_extractor").FeatureExtractor(bands)
    audio = np.random.default_rng(1).normal(0, 0.05, samples).astype(np.float32)
    audio[samples // 2 :] *= 0.01
    expected = reference(np.pad(audio, (0, 160_000 - samples)), padding=0)
    assert np.abs(log_mel(audio, 1000, bands) - expected).max() < 1e-5


def test_audio_longer_than_the_window_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        log_mel(np.zeros(10 * HOP + 1, np.float32), 10)
