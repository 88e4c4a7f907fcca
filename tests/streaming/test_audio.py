"""Bytes to frames: exact, and the same however they are packed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import FRAME, Audio
from streaming.audio.samples import AudioDecoder
from streaming.core.framing import Framer
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import WIDTHS, AudioFormat, Encoding


def decoded(format: AudioFormat, *packets: bytes) -> Audio:
    (audio,) = separated(format, 1, *packets)
    return audio


def separated(format: AudioFormat, tracks: int, *packets: bytes) -> list[Audio]:
    decoder = AudioDecoder(format, tracks)
    pieces = [decoder.feed(packet) for packet in packets]
    frames, tails = decoder.finish()
    pieces.append(frames)
    assert all(len({track.size for track in piece}) == 1 for piece in [*pieces, tails])
    assert all(piece[0].size % FRAME == 0 for piece in pieces)
    assert tails[0].size < FRAME
    return [np.concatenate(track) for track in zip(*pieces, tails, strict=True)]


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    packets, at = [], 0
    for size in sizes:
        packets.append(data[at : at + size])
        at += size
    return [*packets, data[at:]]


@settings(max_examples=60)
@given(
    encoding=st.sampled_from(list(WIDTHS)),
    rate=st.sampled_from([8000, 11025, 16000, 22050, 44100, 48000]),
    channels=st.integers(1, 3),
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(0, 4000), max_size=30),
)
def test_any_packing_gives_the_same_frames(
    encoding: Encoding, rate: int, channels: int, seed: int, sizes: list[int]
) -> None:
    random = np.random.default_rng(seed)
    if encoding is Encoding.PCM_F32LE:
        data = random.uniform(-1, 1, 9000).astype("<f4").tobytes()
    else:
        data = random.bytes(36_001)
    format = AudioFormat(encoding, rate, channels)
    whole = decoded(format, data)
    assert np.array_equal(decoded(format, *cut(data, sizes)), whole)
    stride = {"pcm_s16le": 2, "pcm_f32le": 4}.get(encoding, 1) * channels
    assert abs(whole.size - len(data) // stride * 16_000 / rate) <= 0.5


@settings(max_examples=40)
@given(
    encoding=st.sampled_from(list(WIDTHS)),
    rate=st.sampled_from([8000, 16000, 44100, 48000]),
    tracks=st.integers(2, 8),
    seed=st.integers(0, 1000),
    sizes=st.lists(st.integers(0, 4000), max_size=10),
)
def test_each_channel_is_decoded_as_if_it_came_alone(
    encoding: Encoding, rate: int, tracks: int, seed: int, sizes: list[int]
) -> None:
    random = np.random.default_rng(seed)
    kind = {"pcm_s16le": "<i2", "pcm_f32le": "<f4"}.get(encoding, "u1")
    samples = (random.uniform(-1, 1, (5000, tracks)) * (1 if kind == "<f4" else 100)).astype(kind)
    got = separated(AudioFormat(encoding, rate, tracks), tracks, *cut(samples.tobytes(), sizes))
    for channel, audio in enumerate(got):
        assert np.array_equal(audio, decoded(AudioFormat(encoding, rate), samples[:, channel].tobytes()))


def test_tracks_are_all_of_the_channels() -> None:
    with pytest.raises(ValueError, match="3 tracks cannot be made of 2 channels"):
        AudioDecoder(AudioFormat(channels=2), 3)


def test_byte_by_byte() -> None:
    data = np.arange(-400, 400, dtype="<i2").tobytes()
    format = AudioFormat()
    assert np.array_equal(
        decoded(format, *(data[i : i + 1] for i in range(len(data)))), decoded(format, data)
    )


def test_pcm_scales_to_one() -> None:
    data = np.array([0, 16384, -32768, 32767], "<i2").tobytes()
    assert decoded(AudioFormat(), data).tolist() == [0.0, 0.5, -1.0, 32767 / 32768]


def test_g711_tables() -> None:
    # Values of ITU-T G.711: the extremes, the zeros, and one code of a middle segment.
    mulaw = decoded(AudioFormat(Encoding.MULAW), bytes([0x00, 0x7F, 0x80, 0xFF, 0xA0])) * 32768
    assert mulaw.tolist() == [-32124, 0, 32124, 0, 7932]
    alaw = decoded(AudioFormat(Encoding.ALAW), bytes([0x55, 0xD5, 0x2A, 0xAA, 0x00])) * 32768
    assert alaw.tolist() == [-8, 8, -32256, 32256, -5504]


def test_channels_are_averaged() -> None:
    data = np.array([[1000, 3000], [-500, 500]], "<i2").tobytes()
    assert (decoded(AudioFormat(channels=2), data) * 32768).tolist() == [2000, 0]


def test_resampling_keeps_time_and_pitch() -> None:
    time = np.arange(48_000) / 48_000
    tone = (0.5 * np.sin(2 * np.pi * 1000 * time)).astype("<f4").tobytes()
    heard = decoded(AudioFormat(Encoding.PCM_F32LE, 48_000), tone)
    truth = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000)
    assert heard.size == 16_000
    assert np.abs(heard - truth)[200:-200].max() < 1e-3


def test_an_incomplete_last_sample_is_dropped() -> None:
    assert decoded(AudioFormat(), b"\0\0\0\0\0").size == 2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 20_000.0])
def test_no_numbers_are_refused(value: float) -> None:
    data = np.array([0.0, value, 0.0], "<f4").tobytes()
    with pytest.raises(ProtocolError, match="pcm_f32le between -1 and 1") as caught:
        AudioDecoder(AudioFormat(Encoding.PCM_F32LE)).feed(data)
    assert (caught.value.code, caught.value.field) == ("bad_audio", "audio.encoding")


def test_a_little_too_loud_is_clipped() -> None:
    data = np.array([1.5, -2.0, 0.25], "<f4").tobytes()
    assert decoded(AudioFormat(Encoding.PCM_F32LE), data).tolist() == [1.0, -1.0, 0.25]


def test_frames_are_read_only() -> None:
    frames = Framer().feed(np.zeros(FRAME, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        frames[0] = 1.0


@given(st.lists(st.integers(0, 1000), max_size=20))
def test_framer_loses_and_doubles_nothing(sizes: list[int]) -> None:
    stream = np.arange(sum(sizes), dtype=np.float32)
    framer, got, at = Framer(), [], 0
    for size in sizes:
        got.append(framer.feed(stream[at : at + size]))
        at += size
    assert framer.samples == sum(sizes) // FRAME * FRAME
    assert np.array_equal(np.concatenate([*got, framer.finish()]), stream)
