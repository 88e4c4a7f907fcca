"""Any file becomes 16 kHz samples, or one clear error."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.audio import RATE, AudioError, decode, duration_s, load, packets
from tests.support.data import DATA, needs_data
from tests.support.sound import wav

TONE = (8000 * np.sin(2 * np.pi * 200 * np.arange(2 * RATE) / RATE)).astype("<i2")


def write_wav(path: Path, samples: np.ndarray, *, rate: int = RATE, channels: int = 1) -> Path:
    path.write_bytes(wav(samples.tobytes(), rate, channels))
    return path


def no_warning(text: str) -> None:
    raise AssertionError(text)


def test_a_plain_wav_comes_out_sample_by_sample(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "a.wav", TONE)
    assert np.array_equal(load(path, no_warning), TONE)
    assert duration_s(path) == pytest.approx(2.0)


def test_rate_and_channels_are_brought_to_ours(tmp_path: Path) -> None:
    stereo = np.repeat(TONE[: len(TONE) // 2], 2)  # the same tone left and right, played as 8 kHz
    found = load(write_wav(tmp_path / "a.wav", stereo, rate=8000, channels=2), no_warning)
    assert len(found) == pytest.approx(2 * RATE, abs=64)
    # The same wave at half the rate is a 100 Hz tone: as loud as before, still a tone.
    assert np.sqrt(np.mean(found.astype(float) ** 2)) == pytest.approx(8000 / 2**0.5, rel=0.05)


def test_a_long_file_comes_in_pieces(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "long.wav", np.tile(TONE, 60))
    pieces = [len(piece) for piece in decode(path, no_warning)]
    assert max(pieces) < 200_000
    assert sum(pieces) == 2 * 60 * len(TONE)


@pytest.mark.parametrize("suffix", [".pcm", ".raw", ".PCM"])
def test_bare_samples_are_read_as_ours_and_it_is_said(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(TONE.tobytes())
    said: list[str] = []
    assert np.array_equal(load(path, said.append), TONE)
    assert "no header" in said[0]
    assert "16 kHz" in said[0]
    assert duration_s(path) == pytest.approx(2.0)


def test_an_odd_byte_is_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "odd.pcm"
    path.write_bytes(TONE.tobytes() + b"\x01")
    said: list[str] = []
    assert np.array_equal(load(path, said.append), TONE)
    assert "odd number of bytes" in said[1]


def test_a_wav_cut_off_gives_what_is_there_and_a_warning(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "cut.wav", TONE)
    path.write_bytes(path.read_bytes()[: 44 + len(TONE)])
    said: list[str] = []
    assert np.array_equal(load(path, said.append), TONE[: len(TONE) // 2])
    assert "cut off?" in said[0]


def test_a_stream_of_unknown_length_is_no_cut_off_file(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "pipe.wav", TONE)
    data = bytearray(path.read_bytes())
    data[4:8] = data[40:44] = struct.pack("<I", 0xFFFF_FFFF)
    path.write_bytes(data)
    assert np.array_equal(load(path, no_warning), TONE)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("empty.wav", b"", "empty"),
        ("empty.pcm", b"", "empty"),
        ("one.pcm", b"x", "not one whole"),
        ("text.txt", b"hello there\n", "no format we can read"),
        ("noise.mp3", bytes(range(256)) * 8, "no format we can read"),
        (
            "header.wav",
            b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80>\0\0\0}\0\0\2\0\x10\0data\0\0\0\0",
            "no sample",
        ),
    ],
)
def test_a_file_without_audio_gives_one_clear_error(
    tmp_path: Path, name: str, content: bytes, why: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(AudioError, match=why) as caught:
        load(path, lambda _: None)
    assert name in str(caught.value)


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match="no such file"):
        load(tmp_path / "nothing.wav", no_warning)
    with pytest.raises(AudioError, match="folder"):
        load(tmp_path, no_warning)


def test_what_is_no_file_of_its_own_is_called_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(AudioError, match=r"/dev/null: is a device, not a file"):
        load(Path("/dev/null"), no_warning)
    os.mkfifo(tmp_path / "p.wav")
    with pytest.raises(AudioError, match=r"p\.wav: is a pipe, not a file.*write the audio to a file first"):
        load(tmp_path / "p.wav", no_warning)
    with pytest.raises(AudioError, match="no such file"):
        load(write_wav(tmp_path / "a.wav", TONE) / "b.wav", no_warning)


@given(st.lists(st.binary(max_size=40)), st.integers(1, 17))
def test_packets_hold_every_byte_in_order(pieces: list[bytes], size: int) -> None:
    found = list(packets(pieces, size))
    assert b"".join(found) == b"".join(pieces)
    assert all(len(packet) == size for packet in found[:-1])
    assert all(found)


@needs_data
def test_every_odd_file_at_hand_gives_samples_or_an_error() -> None:
    read, refused = {}, {}
    for path in sorted((DATA / "formats").iterdir()):
        try:
            read[path.name] = len(load(path, lambda _: None)) / RATE
        except AudioError as error:
            refused[path.name] = str(error)
    assert set(refused) == {
        "missing_wav_header.wav",
        "mono.empty.wav",
        "mono.zero.wav",
        "ps-awful.wav",
        "ps-bad.wav",
        "ps-null.wav",
    }
    assert read["stereo-8k.sph"] == pytest.approx(1.0)
    assert read["big_buck_bunny_small.mp4"] == pytest.approx(5.3, abs=0.1)
    assert all(seconds > 0.5 for seconds in read.values())
