"""Recordings of all kinds, cut anywhere, broken anywhere, to samples."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import Audio
from streaming.audio.demux import BREAKS, FREE_S, LEAST_BYTES, Piece, pieces
from streaming.audio.tape import HEADER, sniff
from streaming.wire.errors import ProtocolError
from tests.support.recordings import (
    KINDS,
    Kind,
    audio_frames,
    feeding,
    muxed,
    packets,
    paused,
    recorded,
    sine,
    tone,
)
from tests.support.sound import wav


def heard(*messages: bytes, tracks: int = 1, broke: list[str] | None = None) -> list[Piece]:
    return list(pieces(feeding(*messages), tracks, (broke if broke is not None else []).append))


def seconds(found: list[Piece]) -> float:
    return sum(len(piece.samples) / piece.rate for piece in found)


def whole(found: list[Piece]) -> Audio:
    return np.concatenate([piece.samples for piece in found])


def loud(found: list[Piece]) -> float:
    """Seconds in which the tone sounds, by tenths."""
    return sum(
        len(part) / piece.rate
        for piece in found
        for part in np.array_split(piece.samples, max(1, len(piece.samples) * 50 // piece.rate))
        if np.abs(part).max(initial=0) > 0.1
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_known_and_gives_its_tone(kind: str) -> None:
    data = tone(kind)
    found = heard(*packets(data, 700))
    assert sniff(data) is not None
    # Encoders pad their last frame, some their first.
    assert 2.0 - 1e-9 <= seconds(found) <= 2.2
    spectrum = np.abs(np.fft.rfft(whole(found)[found[0].rate // 2 :][: found[0].rate, 0]))
    assert spectrum.argmax() == 440


@pytest.mark.parametrize("kind", [kind for kind, spec in KINDS.items() if spec.exact])
@pytest.mark.parametrize("channels", [1, 2])
def test_what_loses_nothing_gives_the_very_samples(kind: str, channels: int) -> None:
    samples = sine(1.0, channels=channels)
    found = whole(heard(*packets(recorded(kind, samples), 1000), tracks=channels))
    assert np.array_equal(found, samples.astype(np.float32) / 32768)


@settings(max_examples=60)
@given(kind=st.sampled_from(list(KINDS)), sizes=st.lists(st.integers(1, 3000), max_size=40))
def test_any_packing_gives_the_same_samples(kind: str, sizes: list[int]) -> None:
    data, parts, at = tone(kind, 1.0), [], 0
    for size in sizes:
        parts.append(data[at : at + size])
        at += size
    parts = [part for part in (*parts, data[at:]) if part]
    assert np.array_equal(whole(heard(*parts)), whole(heard(data)))


@pytest.mark.parametrize(("kind", "late_s"), [("webm", 0.15), ("ogg", 0.25), ("mp4", 0.4), ("wav", 0.15)])
def test_samples_come_soon_after_their_bytes(kind: str, late_s: float) -> None:
    """Fed bit by bit, what is still inside is little."""
    data, came, fed = tone(kind, 4.0), 0.0, [0]
    parts = iter(packets(data, 100))

    def pull() -> bytes:
        part = next(parts, b"")
        # When more is asked for, all that came has been read.
        if fed[0] > 4_000 and part:
            assert fed[0] / len(data) * 4.0 - came < late_s
        fed[0] += len(part)
        return part

    for piece in pieces(pull):
        came += len(piece.samples) / piece.rate


@pytest.mark.parametrize("size", [0, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_wav_of_unknown_length_is_read_to_its_end(size: int) -> None:
    samples = sine(1.0)
    header = (
        b"RIFF"
        + struct.pack("<I", size)
        + b"WAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    )
    found = heard(*packets(header + b"data" + struct.pack("<I", size) + samples.tobytes(), 333))
    assert np.array_equal(whole(found), samples.astype(np.float32) / 32768)


def test_what_stands_behind_the_samples_of_a_wav_is_no_sound() -> None:
    samples = sine(0.5)
    fmt = struct.pack("<IHHIIHH", 16, 1, 1, 16_000, 32_000, 2, 16)
    body = b"LIST" + struct.pack("<I", 3) + b"abc\0" + b"data" + struct.pack("<I", len(samples) * 2)
    data = b"RIFF\0\0\0\0WAVEfmt " + fmt + body + samples.tobytes() + b"LIST" + bytes(5000)
    assert len(whole(heard(*packets(data, 77)))) == len(samples)


@pytest.mark.parametrize(
    ("tag", "bits", "kind", "scale"),
    [(1, 8, "u1", 128), (1, 32, "<i4", 1 << 31), (3, 32, "<f4", 1), (3, 64, "<f8", 1)],
)
def test_the_sample_formats_of_wav(tag: int, bits: int, kind: str, scale: int) -> None:
    wave = sine(0.2)[:, 0] / 32768
    samples = (wave * (scale - 1) + (128 if bits == 8 else 0) if scale > 1 else wave).astype(kind)
    fmt = struct.pack("<IHHIIHH", 16, tag, 1, 16_000, 0, bits // 8, bits)
    data = b"RIFF\0\0\0\0WAVEfmt " + fmt + b"data\0\0\0\0" + samples.tobytes()
    assert np.abs(whole(heard(data))[:, 0] - wave).max() < 2 / 128 if bits == 8 else 1e-4


def test_channels_are_mixed_or_kept_apart() -> None:
    data = tone("webm", channels=2)
    assert heard(data)[0].samples.shape[1] == 1
    both = whole(heard(data, tracks=2))[24_000:72_000]
    assert [np.abs(np.fft.rfft(both[:, channel])).argmax() for channel in (0, 1)] == [440, 880]
    with pytest.raises(
        ProtocolError, match=r"audio.channels: the recording has 2 channels, but tracks are 3"
    ):
        heard(data, tracks=3)


# -- what is lost ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["webm", "mp4", "ogg"])
def test_a_lost_fragment_costs_itself_and_the_clock_goes_on(kind: str) -> None:
    parts = packets(tone(kind, 10.0), 1000)
    gone = len(parts) // 2
    found, broke = heard(*parts[:gone], *parts[gone + 1 :]), list[str]()
    assert 9.7 <= seconds(found) <= 10.3
    assert loud(found) >= 8.0, broke


@settings(max_examples=60)
@given(
    kind=st.sampled_from([kind for kind, spec in KINDS.items() if spec.resumes]),
    lost=st.lists(st.integers(2, 70), max_size=3, unique=True),
)
def test_bytes_lost_anywhere_cost_no_more_than_a_few_seconds(kind: str, lost: list[int]) -> None:
    data = tone(kind, 12.0)
    parts = packets(data, -(-len(data) // 80))
    found = heard(*(part for at, part in enumerate(parts) if at not in lost))
    # What is behind the last hole is heard again to its end.
    assert loud(found) >= 12 - 3.0 * len(lost) - 1.0
    assert loud(found[-5:]) > 0 or seconds(found) < 1


@pytest.mark.parametrize(("before", "after"), list(pairwise([*KINDS, "webm"])))
def test_a_recorder_that_was_started_anew_goes_on(before: str, after: str) -> None:
    """Another header comes at the beginning of a message, in whatever kind; the old one ended anywhere."""
    if after in {"mp3", "aac", "aiff", "caf", "au"}:
        pytest.skip("its beginning is not told from the middle of another recording")
    first = packets(tone(before, 2.0), 500)[:-1]
    found = heard(*first, *packets(tone(after, 2.0), 500))
    assert loud(found) >= 3.3


def test_silence_that_was_not_sent_is_silence() -> None:
    """A recorder that sends nothing while nobody speaks, or bytes that were lost: the clock says it."""
    data = paused("webm", sine(1.0, rate=48_000)[:, 0], (0, 5, 100))
    found = heard(data)
    assert loud(found) == pytest.approx(3.0, abs=0.1)
    # Four seconds were silence; a minute and a half is another clock.
    assert seconds(found) == pytest.approx(7.0, abs=0.1)


# -- what is no audio ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"<!DOCTYPE html><html>", "begins like no recording"),
        (b"\x00" * 4000, "begins like no recording"),
        (b"RIFF\0\0\0\0WAVEfmt \x10", "its WAV header breaks off"),
        (b"RIFF\0\0\0\0WAVEdata\0\0\0\0", "does not say what the samples are"),
        (b"fLaC" + bytes(2000), "not one sample"),
        (b"#EXTM3U\nfile:///etc/passwd\n", "begins like no recording"),
        (b"ffconcat version 1.0\nfile '/etc/passwd'\n", "begins like no recording"),
        (b"\x1aE\xdf\xa3" + bytes(HEADER + 1000), "bytes came without a sample|not one sample"),
    ],
)
def test_what_is_no_audio_is_refused_by_name(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why) as caught:
        heard(*packets(data, 4096))
    assert (caught.value.code, caught.value.field) == ("bad_audio", "audio.encoding")
    assert "send a recording from its first byte on" in caught.value.message


def test_only_listed_decoders_and_rates_are_let_at_the_bytes() -> None:
    foreign = muxed(Kind("matroska", "ac3", 48_000), audio_frames(sine(1.0, rate=48_000), 48_000, 0))
    with pytest.raises(ProtocolError, match="ac3 is not decoded here"):
        heard(foreign)
    unknown = tone("webm").replace(b"A_OPUS", b"A_XXXX")
    with pytest.raises(ProtocolError, match="its codec is not decoded here"):
        heard(unknown)
    with pytest.raises(ProtocolError, match="100 samples a second are not taken"):
        heard(wav(bytes(4000), 100))


def test_nothing_at_all_is_no_error() -> None:
    assert heard() == []


def test_far_too_much_audio_for_its_bytes_is_refused() -> None:
    data = recorded("flac", np.zeros(240 * 16_000, np.int16))
    assert round(seconds(heard(data))) == 240, "an honest one is taken"
    bomb = paused("webm", sine(0.02, rate=48_000)[:, 0], range(0, 6000, 29))
    with pytest.raises(ProtocolError, match=r"audio in \d+ bytes are more than recorders make"):
        heard(bomb)
    assert len(bomb) / LEAST_BYTES < 6000 - FREE_S


@settings(max_examples=300)
@given(
    kind=st.sampled_from(list(KINDS)),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=30),
    cut=st.integers(50, 3000),
)
def test_whatever_comes_gives_samples_or_one_clear_error(
    kind: str, changes: list[tuple[float, int]], cut: int
) -> None:
    data = bytearray(tone(kind, 1.0))
    for at, value in changes:
        data[min(int(at * len(data)), len(data) - 1)] = value
    broke: list[str] = []
    refusal, found = None, list[Piece]()
    try:
        found = heard(*packets(bytes(data), cut), broke=broke)
    except ProtocolError as error:
        refusal = error
    assert refusal is None or (refusal.code == "bad_audio" and refusal.field)
    assert all(np.isfinite(piece.samples).all() for piece in found)
    assert all(len(piece.samples) <= piece.rate for piece in found)
    assert len(broke) < 10 * BREAKS
