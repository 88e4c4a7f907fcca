"""Audio kept as FLAC: the samples that came, in files that say where they begin."""

from __future__ import annotations

import asyncio
import itertools
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.contract import Audio
from streaming.kept import keptaudio
from streaming.kept.keptaudio import AudioKeeper
from streaming.observe.metrics import Metrics
from tests.support.sound import speech

av: Any = import_module("av")


def read(path: Path) -> Audio:
    """Samples x channels."""
    with av.open(str(path)) as container:
        assert container.streams.audio[0].rate == 16_000
        channels = container.streams.audio[0].channels
        pieces = [frame.to_ndarray().reshape(-1, channels) for frame in container.decode(audio=0)]
    samples: Audio = np.concatenate(pieces).astype(np.float32) / np.float32(32767)
    return samples


async def kept(folder: Path, *pieces: tuple[int, tuple[Audio, ...]]) -> None:
    keeper = AudioKeeper(folder, Metrics())
    for start, tracks in pieces:
        keeper.write("s", start, tracks)
    keeper.finish("s")
    await keeper.close()


@pytest.mark.parametrize("tracks", [1, 2, 8])
async def test_every_sample_of_every_track_is_there(tmp_path: Path, tracks: int) -> None:
    drawn = np.random.default_rng(1)
    sound = [drawn.uniform(-1, 1, 32_320).astype(np.float32) for _ in range(tracks)]
    cuts = [0, 320, 1600, 20_000, 32_320]
    await kept(tmp_path, *[(a, tuple(s[a:b] for s in sound)) for a, b in itertools.pairwise(cuts)])
    (file,) = (tmp_path / "s").iterdir()
    assert file.name == "000000000000.flac"
    assert np.abs(read(file) - np.stack(sound, axis=1)).max() < 1e-4


async def test_a_hole_begins_a_new_file(tmp_path: Path) -> None:
    sound = speech("xx")
    await kept(tmp_path, (640, (sound[:1600],)), (2240, (sound[:320],)), (9600, (sound[:960],)))
    assert {f.name: len(read(f)) for f in (tmp_path / "s").iterdir()} == {
        "000000000640.flac": 1920,
        "000000009600.flac": 960,
    }


async def test_what_was_deleted_is_gone_and_the_rest_is_counted(tmp_path: Path) -> None:
    keeper = AudioKeeper(tmp_path, Metrics())
    assert keeper.sizes() == {}
    for session in ("s", "other"):
        keeper.write(session, 0, (speech("xx"),))
    await keeper.delete("s")
    await keeper.delete("never was")
    await keeper.close()
    assert list(keeper.sizes()) == ["other"]
    assert keeper.sizes()["other"] > 1000


async def test_where_the_thread_is_behind_audio_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keptaudio, "WAITING", 2)
    metrics = Metrics()
    keeper = AudioKeeper(tmp_path, metrics)
    held = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        asyncio.run_coroutine_threadsafe(held.wait(), loop).result(30)

    keeper._jobs.put(hold)
    for number in range(10):
        keeper.write("s", 1600 * number, (speech("x")[:1600],))
    assert metrics.kept_audio.value(outcome="dropped") >= 0.7
    held.set()
    await keeper.close()
    total = sum(len(read(file)) for file in (tmp_path / "s").iterdir())
    assert total == round(16_000 * metrics.kept_audio.value(outcome="kept"))


async def test_a_folder_that_cannot_be_written_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_bytes(b"")
    metrics = Metrics()
    keeper = AudioKeeper(tmp_path / "file", metrics)
    for number in range(3):
        keeper.write("s", 320 * number, (speech("x")[:320],))
    keeper.finish("s")
    await keeper.close()
    assert len([r for r in caplog.records if "audio is not kept" in r.getMessage()]) == 1
    assert metrics.kept_audio.value(outcome="failed") == pytest.approx(0.06)
    assert metrics.kept_audio.value(outcome="kept") == 0
