"""Samples travel as they are, or not at all."""

from __future__ import annotations

import base64
import io
import sys
import wave
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sglang import payload
from engine.sglang.payload import as_bytes, as_url, as_wav, read_options, read_payload, to_pcm16
from engine.sglang.plugin.spans import HOP, audio_tokens, finished_windows, shrunk, window_lengths
from engine.sglang.windows import window_frames


@given(st.lists(st.integers(-32768, 32767), max_size=200))
def test_both_forms_give_the_samples_back(values: list[int]) -> None:
    pcm = np.array(values, "<i2").tobytes()
    for sent in (as_bytes(pcm), as_url(pcm)):
        read = read_payload(sent)
        assert read is not None
        assert read.tolist() == values


def test_a_faster_base64_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pybase64", None)  # not installed
    assert payload._codec() is base64
    faster = ModuleType("pybase64")
    monkeypatch.setitem(sys.modules, "pybase64", faster)
    assert payload._codec() is faster


def test_damage_is_told_whatever_reads_base64(monkeypatch: pytest.MonkeyPatch) -> None:
    codecs = [base64]
    with suppress(ImportError):
        codecs.append(import_module("pybase64"))
    for codec in codecs:
        monkeypatch.setattr(payload, "_CODEC", codec)
        assert payload.as_base64(b"\x01\x02\x03") == b"AQID"
        for broken in ("***", "AAA", "AAAA\n", "=AAA"):
            with pytest.raises(ValueError, match="base64"):
                read_payload(as_url(b"") + broken)


def test_float_samples_are_rounded_and_clipped() -> None:
    pcm = to_pcm16(np.array([0.0, 0.5, -1.0, 1.0, 2.0, 1 / 65536], np.float32))
    assert np.frombuffer(pcm, "<i2").tolist() == [0, 16384, -32768, 32767, 32767, 0]


def test_files_are_left_to_others() -> None:
    assert read_payload(b"RIFF....") is None
    assert read_payload("data:audio/wav;base64,AAAA") is None
    assert read_payload({"path": "x"}) is None


def test_damaged_payloads_are_named() -> None:
    with pytest.raises(ValueError, match="middle of a sample"):
        read_payload(as_bytes(b"abc"))
    with pytest.raises(ValueError, match="base64"):
        read_payload(as_url(b"") + "***")


def test_options_travel_with_the_audio() -> None:
    pcm = bytes(range(64))
    url = as_url(pcm, {"window_s": 30.0, "single_item": True})
    assert read_options(url) == {"window_s": 30.0, "single_item": 1.0}
    read = read_payload(url)
    assert read is not None
    assert read.tobytes() == pcm
    assert read_options(as_url(pcm)) == read_options(as_bytes(pcm)) == read_options({"path": "x"}) == {}
    with pytest.raises(ValueError, match="thirty"):
        read_options(url.replace("=30", "=thirty"))


def test_a_wav_file_holds_the_same_samples() -> None:
    pcm = np.arange(-50, 50, dtype="<i2").tobytes()
    with wave.open(io.BytesIO(as_wav(pcm))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)
        assert file.readframes(100) == pcm


@pytest.mark.parametrize(
    ("seconds", "asked", "frames"),
    [
        (1.0, None, 1000),
        (4.0, None, 1000),
        (4.5, 30.0, 3000),
        (5.0, None, 1250),
        (9.0, None, 1500),
        (24.5, None, 3000),
        (30.0, None, 3000),
    ],
)
def test_windows_leave_silence_behind_the_speech(seconds: float, asked: float | None, frames: int) -> None:
    assert window_frames(round(seconds * 16_000), 3000, asked) == frames


@given(st.integers(0, 480_000), st.none() | st.floats(1, 30))
def test_a_window_never_cuts_the_clip(samples: int, asked: float | None) -> None:
    frames = window_frames(samples, 3000, asked)
    assert samples <= frames * HOP
    assert frames % 2 == 0
    assert frames <= 3000


def test_audio_tokens_of_blocks_and_rests() -> None:
    assert shrunk(100) == 13
    assert audio_tokens(800, 100) == 104
    assert audio_tokens(850, 100) == 104 + shrunk(50)
    assert audio_tokens(4000, 100) == 520


@given(st.integers(1, 20_000))
def test_windows_tile_the_frames(frames: int) -> None:
    lengths = window_lengths(frames, 800)
    assert sum(lengths) == frames
    assert all(length == 800 for length in lengths[:-1])
    assert 0 < lengths[-1] <= 800
    assert sum(audio_tokens(n, 100) for n in lengths) == audio_tokens(frames, 100)


@given(st.integers(0, 2_000_000), st.integers(0, 100_000))
def test_finished_windows_only_grow(samples: int, more: int) -> None:
    assert finished_windows(samples, 800) <= finished_windows(samples + more, 800)
    assert finished_windows(samples, 800) * 800 * HOP <= samples
