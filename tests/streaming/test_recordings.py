"""What is kept of a session's audio, as one file: every sample once, and what is missing said."""

from __future__ import annotations

import asyncio
import io
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import Audio
from streaming.kept.keptaudio import AudioKeeper
from streaming.kept.recordings import Recordings, export, spans_ms
from streaming.observe.metrics import Metrics

av: Any = import_module("av")

SOUND = np.random.default_rng(1).uniform(0.1, 0.9, 200_000).astype(np.float32)


async def kept(folder: Path, spans: list[tuple[int, int]], tracks: int) -> None:
    keeper = AudioKeeper(folder, Metrics())
    for start, end in spans:
        keeper.write("s", start, tuple(SOUND[start:end] for _ in range(tracks)))
        keeper.finish("s")
    await keeper.close()


def samples(data: bytes) -> Audio:
    """Samples x channels."""
    with av.open(io.BytesIO(data)) as container:
        channels = container.streams.audio[0].channels
        pieces = [frame.to_ndarray().reshape(-1, channels) for frame in container.decode(audio=0)]
    found: Audio = np.concatenate(pieces).astype(np.float32) / np.float32(32767)
    return found


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 30_000)), min_size=1, max_size=6),
    st.sampled_from([1, 2, 3]),
    st.integers(0, 40_000),
)
def test_every_sample_is_there_once_or_told_to_be_missing(
    runs: list[tuple[int, int]], tracks: int, more: int
) -> None:
    spans = sorted({start: (start, start + length) for start, length in runs}.values())
    received = max(end for _, end in spans) + more
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(kept(Path(folder), spans, tracks))
        found = Recordings(Path(folder)).find("s", received)
        assert found is not None
        heard = samples(b"".join(export(found)))
    there = np.zeros(received, np.bool_)
    for start, end in spans:
        there[start:end] = True
    missing = np.ones(received, np.bool_)
    for start, end in found.missing:
        assert start < end
        missing[start:end] = False
    assert (missing == there).all()
    assert heard.shape == (received, tracks)
    wanted = SOUND[:received] * there
    assert np.abs(heard - wanted[:, np.newaxis]).max() < 1e-3


def test_a_file_that_breaks_off_is_heard_as_far_as_it_goes(tmp_path: Path) -> None:
    asyncio.run(kept(tmp_path, [(0, 100_000)], 1))
    (file,) = (tmp_path / "s").iterdir()
    file.write_bytes(file.read_bytes()[:60_000])
    (tmp_path / "s" / "000000150000.flac").write_bytes(b"fLaC")
    found = Recordings(tmp_path).find("s", 100_000)
    assert found is not None
    ((start, end),) = found.missing
    assert 20_000 < start < end == 100_000
    heard = samples(b"".join(export(found)))[:, 0]
    assert len(heard) == end
    sure = start - 4608  # the last frame may be broken
    assert np.abs(heard[:sure] - SOUND[:sure]).max() < 1e-3
    assert not heard[start:].any()


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert Recordings(tmp_path).find("s", 1000) is None
    assert Recordings(tmp_path / "none").sizes() == {}


@pytest.mark.parametrize(
    ("spans", "told"),
    [([], ""), ([(0, 16)], "0-1"), ([(17, 33), (64, 80)], "1-3, 4-5"), ([(0, 16)] * 3, "0-1, 0-1, more")],
)
def test_what_is_missing_in_milliseconds(spans: list[tuple[int, int]], told: str) -> None:
    assert spans_ms(spans, 2) == told
