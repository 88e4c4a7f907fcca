"""Pieces with times as channels on one clock."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.dialects.lanes import HOLD_S, LAG_S, LEAP_S, MULAW, PACKET, Lanes

RATE = 8000
FRAME = 160
FRAME_S = FRAME / RATE


def tone(frame: int, voice: int = 0) -> npt.NDArray[np.int16]:
    """Samples that tell which frame they are of; never 0."""
    return np.full(FRAME, 1 + frame + 100 * voice, "<i2")


def joined(pieces: list[bytes], lanes: int) -> npt.NDArray[np.int16]:
    return np.frombuffer(b"".join(pieces), "<i2").reshape(-1, lanes)


def play(lanes: Lanes, frames: list[tuple[int, int]], count: int) -> npt.NDArray[np.int16]:
    """(voice, frame) in the order in which they come."""
    given = [
        piece
        for voice, frame in frames
        for piece in lanes.put(str(voice), voice, frame * FRAME_S, tone(frame, voice).tobytes())
    ]
    return joined(given + lanes.finish(), count)


def test_one_voice_without_a_hole_waits_for_nothing() -> None:
    lanes = Lanes(1, RATE)
    for frame in range(5):
        data = tone(frame).tobytes()
        assert lanes.put("a", 0, 1e9 + frame * FRAME_S, data) == [data]


def test_two_tracks_side_by_side_wait_for_each_other_only() -> None:
    lanes = Lanes(2, RATE)
    assert lanes.put("a", 0, 0.0, tone(0).tobytes()) == []
    (both,) = lanes.put("b", 1, 0.0, tone(0, 1).tobytes())
    assert joined([both], 2).tolist() == [[1, 101]] * FRAME


def test_who_says_nothing_holds_the_others_up_for_a_moment_only() -> None:
    lanes, given = Lanes(8, RATE), 0
    for frame in range(50):
        given += sum(len(p) // 16 for p in lanes.put("a", 0, frame * FRAME_S, tone(frame).tobytes()))
        assert given == max(0, (frame + 1) * FRAME - round(HOLD_S * RATE))


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[list[tuple[int, int]], set[tuple[int, int]]]:
    """Frames of two voices as a bad line delivers them: some missing, some twice, some a little late; and
    which came at all."""
    sent = [(voice, frame) for frame in range(draw(st.integers(1, 40))) for voice in (0, 1)]
    kept = [one for one in sent if draw(st.integers(0, 9)) > 1]
    found: list[tuple[float, tuple[int, int]]] = []
    for voice, frame in kept:
        # Less than what is waited for.
        found.append((frame + draw(st.floats(0, HOLD_S / FRAME_S - 2)), (voice, frame)))
        if draw(st.booleans()):
            found.append((frame + draw(st.floats(0, 100)), (voice, frame)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])], set(kept)


@given(arrivals(), st.booleans())
def test_nothing_that_a_line_does_moves_the_clock(
    came: tuple[list[tuple[int, int]], set[tuple[int, int]]], begins: bool
) -> None:
    frames, kept = came
    # Where the stream begins is where its first piece does.
    frames, kept = [(0, 0), (1, 0), *frames], kept | {(0, 0), (1, 0)}
    if begins:
        frames = [*frames, (0, 45)]
        kept = kept | {(0, 45)}
    out = play(Lanes(2, RATE), frames, 2)
    assert len(out) == FRAME * (1 + max(frame for _, frame in kept))
    for frame in range(len(out) // FRAME):
        part = out[frame * FRAME : (frame + 1) * FRAME]
        for voice in (0, 1):
            wanted = tone(frame, voice)[0] if (voice, frame) in kept else 0
            assert set(part[:, voice].tolist()) == {wanted}, (voice, frame)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 9),
            st.none() | st.floats(-1e11, 1e11),
            st.binary(max_size=900),
        ),
        max_size=30,
    ),
    st.floats(0, 0.5),
)
def test_whatever_comes_the_bytes_are_whole_and_the_rest_is_bounded(
    pieces: list[tuple[int, float | None, bytes]], slack: float
) -> None:
    lanes, given = Lanes(3, RATE, slack_s=slack), 0
    for who, at, data in pieces:
        out = lanes.put(str(who), who % 3, at, data) + lanes.wait(1.0)
        assert all(0 < len(one) <= PACKET and len(one) % 6 == 0 for one in out)
        given += sum(map(len, out))
    given += sum(map(len, lanes.finish()))
    assert given <= 6 * RATE * (LEAP_S + 1) * (len(pieces) + 1)
    assert lanes.finish() == []


def test_a_time_that_is_broken_is_not_believed() -> None:
    lanes = Lanes(1, RATE)
    wrong = [0.0, FRAME_S, 1e9, 3 * FRAME_S, 4 * FRAME_S]
    out = [p for n, at in enumerate(wrong) for p in lanes.put("a", 0, at, tone(n).tobytes())]
    assert joined(out + lanes.finish(), 1)[::FRAME, 0].tolist() == [1, 2, 3, 4, 5]


def test_times_of_sending_shake_and_speech_stays_whole() -> None:
    lanes = Lanes(1, RATE, slack_s=0.2)
    shaken = [n * FRAME_S + (0.05 if n % 3 else 0.0) for n in range(30)]
    out = [p for n, at in enumerate(shaken) for p in lanes.put("a", 0, at, tone(n).tobytes())]
    assert joined(out, 1)[::FRAME, 0].tolist() == list(range(1, 31))
    # What comes twice comes with the time it had; a pause is one.
    assert lanes.put("a", 0, shaken[-1], tone(29).tobytes()) == []
    assert sum(map(len, lanes.put("a", 0, shaken[-1] + 5, tone(0).tobytes()) + lanes.finish())) > 2 * 4 * RATE


def test_who_shares_a_lane_is_added_up() -> None:
    lanes = Lanes(1, RATE)
    loud = np.full(FRAME, 20_000, "<i2").tobytes()
    given: list[bytes] = []
    for frame in range(3):
        given += lanes.put("a", 0, frame * FRAME_S, loud)
    lanes = Lanes(2, RATE)
    given = lanes.put("a", 1, 0.0, loud) + lanes.put("b", 1, 0.0, tone(1).tobytes())
    given += lanes.put("c", 1, FRAME_S, loud) + lanes.put("b", 1, FRAME_S, loud) + lanes.finish()
    out = joined(given, 2)
    assert out[:FRAME].tolist() == [[0, 20_002]] * FRAME
    assert out[FRAME:].tolist() == [[0, 32_767]] * FRAME


def test_the_clock_goes_on_while_nobody_sends() -> None:
    lanes = Lanes(2, RATE)
    assert lanes.wait(100.0) == []
    lanes.put("a", 0, 0.0, tone(0).tobytes())
    sizes = [sum(map(len, lanes.wait(float(second)))) // 4 for second in range(1, 41)]
    assert sizes[:29] == [FRAME, *[0] * 28]
    assert sizes[29:] == [0, *[RATE] * 10]
    # They are back after all that: where their time says.
    out = lanes.put("a", 0, 40.0, tone(1).tobytes()) + lanes.finish()
    assert sum(sizes) + sum(map(len, out)) // 4 == 40 * RATE + FRAME
    assert lanes.late == 0
    lanes.put("b", 1, 40.0 - LAG_S, tone(1).tobytes())
    assert lanes.late == FRAME


def test_mulaws_silence_is_no_zero() -> None:
    lanes = Lanes(2, RATE, MULAW)
    out: list[Any] = lanes.put("a", 0, 0.0, b"\x10" * 3) + lanes.finish()
    assert b"".join(out) == b"\x10\xff" * 3


@pytest.mark.parametrize(("samples", "count"), [(1, 5_000), (200_000, 40)])
def test_pieces_that_do_not_move_the_clock_do_not_pile_up(samples: int, count: int) -> None:
    """All of the same time: none pushes another out."""
    lanes = Lanes(2, RATE)
    given = lanes.put("a", 0, 0.0, bytes(2 * samples))
    tracemalloc.start()
    for number in range(1, count):
        piece = number.to_bytes(2, "little") * samples
        given += lanes.put("a", 0, 1 / RATE, piece)
        given += lanes.put("b", 1, 2 * (number % 2) / RATE, piece)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # Of each voice what it holds, and the newest piece, by which one that comes twice is known.
    assert held < 2 * 2 * 2 * samples + 100_000
    # The clock is where the last piece ends: none was put behind another.
    assert len(joined(given + lanes.finish(), 2)) == samples + 2
