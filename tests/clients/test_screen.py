"""What the terminal shows: committed text plain, the rest dim, the newest words last."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from clients.play import Arrival, Playback
from clients.screen import Screen, clock, commit_delay_s

from .build import ready, segment, words


def terminal(width: int = 60) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=width, height=40, highlight=False), out


def playing(name: str = "talk.wav") -> Playback:
    playback = Playback(name, sent=48_000)
    playback.captions.receive(ready(1))
    playback.captions.receive(segment(2, 1, 1, words("It was late"), partial=" perhaps too late"))
    playback.committed_s = [2.0, 2.0, 2.0]
    return playback


def test_committed_text_and_text_that_may_change_look_different() -> None:
    console, out = terminal()
    with Screen([playing()], [10.0], console):
        pass
    shown = out.getvalue()
    assert "It was late" in shown
    assert "\x1b[2;3m perhaps too late" in shown  # dim, italic
    assert "00:03 / 00:10" in shown
    assert "0.6 s behind the speaker" in shown


ERASED = "\x1b[1A\x1b[2K"


def test_what_was_shown_makes_room_for_the_transcript() -> None:
    console, out = terminal()
    with Screen([playing()], [10.0], console):
        pass
    # Progress and captions, two lines, are erased from below: the transcript follows on standard output.
    assert out.getvalue().endswith(2 * ERASED)


def test_of_a_playback_that_is_stopped_the_text_stays() -> None:
    console, out = terminal()

    def stopped() -> None:
        with Screen([playing()], [10.0], console):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    shown = out.getvalue()
    assert "It was late" in shown[shown.rfind(ERASED) + 1 :]


def test_many_streams_of_unknown_length_take_two_lines_each() -> None:
    console, out = terminal(width=30)
    playbacks = [playing(f"{number}.wav") for number in range(5)]
    with Screen(playbacks, [None] * 5, console):
        pass
    assert all(f"{number}.wav" in out.getvalue() for number in range(5))
    assert "late" in out.getvalue()


def test_before_the_first_word_there_is_only_progress() -> None:
    console, out = terminal()
    playback = Playback("x.wav")
    with Screen([playback], [None], console):
        pass
    assert "x.wav" in out.getvalue()
    assert commit_delay_s(playback) is None


def test_without_a_terminal_each_finished_segment_is_one_line() -> None:
    out = io.StringIO()
    playback = playing()
    final = segment(3, 1, 2, words("It was late [once]", 61_000), final=True)
    with Screen([playback], [10.0], Console(file=out, width=20)) as screen:
        screen.hear(playback, Arrival(1.0, segment(2, 1, 1, words("It was"))))
        screen.hear(playback, Arrival(2.0, final))
    assert out.getvalue() == "01:01 It was late [once]\n"


def test_clocks() -> None:
    assert [clock(s) for s in (0, 59.9, 60, 3599, 3600, 36_061)] == [
        "00:00",
        "00:59",
        "01:00",
        "59:59",
        "1:00:00",
        "10:01:01",
    ]
