"""The seeds' memory table, and what it means for streams and recordings."""

from __future__ import annotations

import pytest

from engine.kv import Load, bytes_per_token, capacity, check, fit, longest_s, streams
from engine.tuning import Row

PER_TOKEN = bytes_per_token(layers=28, kv_heads=8, head_dim=128)
MODEL = {"weights_gib": 1.6, "overhead_gib": 1.3}


def test_bytes_a_token() -> None:
    assert PER_TOKEN == 114_688


@pytest.mark.parametrize(
    ("memory", "fraction", "tokens"),
    [(16, 0.80, 92766), (24, 0.55, 96434), (24, 0.60, 107670), (24, 0.80, 152609)],
)
def test_the_table_of_the_seeds(memory: float, fraction: float, tokens: int) -> None:
    assert capacity(memory, fraction, PER_TOKEN, **MODEL) == pytest.approx(tokens, rel=1e-3)


def test_more_cache_than_the_peak_leaves_room_for_is_refused() -> None:
    # 24 GiB at 0.80: 152,609 positions fit, and yet the first long request runs out of memory.
    bad = check(24, 0.80, PER_TOKEN, **MODEL, dynamic_gib=5.3, need=72_961)
    good = check(24, 0.55, PER_TOKEN, **MODEL, dynamic_gib=5.3, need=72_961)
    assert bad.problem is not None
    assert "mem_fraction_static" in bad.problem
    assert "restart" in bad.problem
    assert good.problem is None
    assert good.peak_gib < 24


def test_a_budget_that_does_not_fit_is_refused() -> None:
    load = Load(audio_tokens_per_s=13.4, prompt=0)
    need = load.tokens(3600, output=49_152)
    advice = check(16, 0.80, PER_TOKEN, **MODEL, dynamic_gib=1.0, need=need)
    assert need == 97_392
    assert advice.problem is not None
    assert "output budget" in advice.problem


def test_fixed_budget_limits_the_recording() -> None:
    positions = capacity(16, 0.80, PER_TOKEN, **MODEL)
    seconds = longest_s(positions, Load(audio_tokens_per_s=13.4, prompt=0), output=32_768)
    assert seconds / 60 == pytest.approx(74, abs=1)
    assert longest_s(positions, Load(audio_tokens_per_s=13.4, prompt=0), output=32_768, native_s=1200) == 1200


def test_live_streams_that_fit() -> None:
    load = Load(audio_tokens_per_s=50.0, prompt=16, output_per_s=8.0)
    assert streams(100_000, load, window_s=10.0) == 100_000 // (500 + 16 + 80)
    assert streams(0, load, window_s=10.0) == 0


@pytest.mark.parametrize(
    ("memory", "fraction", "recording", "word"),
    [
        (24, 0.55, 3000.0, None),
        (16, 0.80, 3000.0, None),
        (24, 0.99, 0.0, "peak"),
        # The cache is too small for so long a recording.
        (16, 0.60, 3600.0, "positions"),
        (4, 0.60, 0.0, "positions"),
        (80, 0.80, 6000.0, "takes 5400 s"),
    ],
)
def test_what_cannot_fit_is_refused(
    memory: float, fraction: float, recording: float, word: str | None
) -> None:
    found = fit(
        Load(audio_tokens_per_s=13.4),
        PER_TOKEN,
        memory_gib=memory,
        fraction=fraction,
        weights_gib=1.6,
        native_s=5400.0,
        window_s=24.0,
        running=64,
        recording_s=recording,
    )
    assert (found.problem is None) == (word is None)
    assert word is None or word in str(found.problem)
    positions = capacity(memory, fraction, PER_TOKEN, **MODEL)
    assert f"{positions} positions" in found.lines[0]


def test_what_starts_and_may_fail_later_is_told() -> None:
    # 24 GiB at 0.80 hold the positions of 50 minutes, start, and ran out of memory with the first of them.
    def rows(fraction: float, running: int = 64) -> list[Row]:
        found = fit(
            Load(audio_tokens_per_s=13.4),
            PER_TOKEN,
            memory_gib=24,
            fraction=fraction,
            weights_gib=1.6,
            native_s=5400.0,
            window_s=24.0,
            running=running,
            recording_s=3000.0,
        )
        assert found.problem is None
        return [row for _, row in found.risks]

    assert rows(0.80) == [Row.RUN_MEMORY]
    assert rows(0.55) == []
    assert rows(0.55, running=1000) == [Row.WAITING]
