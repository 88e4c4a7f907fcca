"""Files and channels as people: who is on which track, and every sample on its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.audio import RATE, AudioError, count_channels, decode, load
from clients.participants import beside, open_participants, with_tracks
from streaming.wire.messages import Options, Start, Track

from .test_audio import no_warning, write_wav

TONES = np.stack(
    [(4000 * np.sin(2 * np.pi * hz * np.arange(RATE) / RATE)).astype("<i2") for hz in (200, 300, 500, 700)],
    axis=1,
)


def samples(pieces: Iterator[bytes], tracks: int) -> np.ndarray:
    return np.frombuffer(b"".join(pieces), "<i2").reshape(-1, tracks)


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_each_channel_of_a_file_is_somebody(tmp_path: Path, channels: int) -> None:
    path = write_wav(tmp_path / "a.wav", TONES[:, :channels], channels=channels)
    people = open_participants([path], ["Ann", "Bob"], no_warning)
    assert people.tracks == (Track("Ann"), Track("Bob"), *[Track()] * (channels - 2))
    assert people.length_s == pytest.approx(1.0)
    assert np.array_equal(samples(people.pieces, channels), TONES[:, :channels])


def test_channels_of_another_rate_stay_apart(tmp_path: Path) -> None:
    path = write_wav(
        tmp_path / "a.wav", np.stack([TONES[:, 0], 0 * TONES[:, 0]], axis=1), rate=8000, channels=2
    )
    left, right = samples(open_participants([path], [], no_warning).pieces, 2).T
    assert left.size == pytest.approx(2 * RATE, abs=64)
    assert np.sqrt(np.mean(left.astype(float) ** 2)) == pytest.approx(4000 / 2**0.5, rel=0.05)
    assert not right.any()


def test_files_beside_each_other_are_mixed_down_named_and_filled_up(tmp_path: Path) -> None:
    long = write_wav(tmp_path / "long.wav", TONES[:, 0])
    stereo = write_wav(tmp_path / "pair.wav", np.repeat(TONES[:8000, 1:2], 2, axis=1), channels=2)
    people = open_participants([long, stereo], ["Ann"], no_warning)
    assert people.tracks == (Track("Ann"), Track("pair"))
    assert people.length_s == pytest.approx(1.0)
    found = samples(people.pieces, 2)
    assert np.array_equal(found[:, 0], TONES[:, 0])
    assert np.array_equal(found[:8000, 1], load(stereo, no_warning))
    assert not found[8000:, 1].any()


def test_a_file_may_be_called_what_nobody_can_be(tmp_path: Path) -> None:
    odd, none = (write_wav(tmp_path / name, TONES[:, 0]) for name in ("An\nn.wav", "\x01.wav"))
    assert open_participants([odd, none], [], no_warning).tracks == (Track("An n"), Track())


@given(
    sizes=st.lists(st.integers(0, 40_000), min_size=2, max_size=4),
    cut=st.integers(1, 9_000),
)
def test_beside_loses_and_moves_no_sample(sizes: list[int], cut: int) -> None:
    tracks = [np.arange(size).astype("<i2") + number for number, size in enumerate(sizes)]

    def pieces(track: np.ndarray) -> Iterator[bytes]:
        return (track[at : at + cut].tobytes() for at in range(0, track.size, cut))

    found = samples(beside([pieces(track) for track in tracks]), len(tracks))
    assert len(found) == max(sizes)
    for number, track in enumerate(tracks):
        assert np.array_equal(found[: track.size, number], track)
        assert not found[track.size :, number].any()


def test_a_track_that_breaks_goes_on_in_silence_and_is_told_at_the_end() -> None:
    def broken() -> Iterator[bytes]:
        yield TONES[:100, 0].tobytes()
        raise AudioError("it broke")

    got: list[bytes] = []
    with pytest.raises(AudioError, match="it broke"):
        got.extend(beside([broken(), iter([TONES[:, 1].tobytes()])]))
    found = samples(iter(got), 2)
    assert np.array_equal(found[:, 1], TONES[:, 1])
    assert np.array_equal(found[:100, 0], TONES[:100, 0])
    assert not found[100:, 0].any()


def test_what_cannot_be_tracks_is_refused_with_the_remedy(tmp_path: Path) -> None:
    mono = write_wav(tmp_path / "mono.wav", TONES[:, 0])
    pair = write_wav(tmp_path / "pair.wav", TONES[:, :2], channels=2)
    nine = write_wav(tmp_path / "nine.wav", np.repeat(TONES[:, :1], 9, axis=1), channels=9)
    empty = tmp_path / "empty.wav"
    empty.touch()
    bare = tmp_path / "bare.pcm"
    bare.write_bytes(TONES.tobytes())
    for paths, names, text in (
        ([mono], [], r"mono.wav has 1 channel: --tracks takes a file of 2 to 8 channels, or 2 to 8 files"),
        ([bare], [], "has 1 channel"),
        ([nine], [], "9 tracks: --tracks takes"),
        ([mono] * 9, [], "9 tracks: --tracks takes"),
        ([pair], ["A", "B", "C"], "3 times --track-name, but 2 tracks"),
        ([mono, empty], [], "the file is empty"),
        ([mono, tmp_path / "none.wav"], [], "no such file"),
    ):
        with pytest.raises(AudioError, match=text):
            open_participants(paths, names, no_warning)
    with pytest.raises(AudioError, match="bare samples are read as mono"):
        next(decode(bare, no_warning, 2))
    assert [count_channels(path) for path in (mono, pair, nine, bare)] == [1, 2, 9, 1]


def test_a_start_gets_its_tracks_and_keeps_the_rest() -> None:
    start = Start(language="en", options=Options(pause_s=1.0))
    people = with_tracks(start, [Track("Ann"), Track()])
    assert (people.audio.channels, people.tracks) == (2, (Track("Ann"), Track()))
    assert (people.language, people.options) == (start.language, start.options)
