"""What the terminal shows: committed text plain, the rest dim, the newest words last."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from clients.play import Arrival, Playback
from clients.screen import COLOURS, Screen, clock, colour_of, commit_delay_s
from streaming.wire.messages import Ack, Named, ServerMessage, Speaker

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


@pytest.mark.parametrize("in_terminal", [True, False])
def test_a_disk_of_the_server_that_fails_is_told_and_that_it_is_back(*, in_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=in_terminal, width=100, highlight=False)
    playback = playing()
    told = "the newest 75 s are not on the server's disk"

    def hear(sample: int, durable: int) -> None:
        playback.captions.receive(Ack(2, sample, durable))
        screen.hear(playback, Arrival(3.0, Ack(2, sample, durable)))

    with Screen([playback], [200.0], console) as screen:
        hear(59 * 16_000, 0)
        assert told not in out.getvalue()
        hear(75 * 16_000, 0)
        hear(75 * 16_000, 0)
        if in_terminal:
            screen._live.refresh()
    assert told in out.getvalue()
    if not in_terminal:
        assert out.getvalue().count(told) == 1
        hear(80 * 16_000, 79 * 16_000)
        assert out.getvalue().count("the server's disk is back") == 1


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


def speaking(*messages: ServerMessage) -> Playback:
    playback = Playback("x.wav")
    for message in (ready(1), *messages):
        playback.captions.receive(message)
    return playback


TALK = (
    segment(2, 1, 1, words("Good morning"), final=True, speaker=1),
    segment(3, 2, 1, words("Hello", 2000), first_word=2, final=True, speaker=2),
    segment(4, 3, 1, words("hm", 4000), first_word=3, partial=" yes"),
)


def shown(playback: Playback) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=60, highlight=False)
    with Screen([playback], [None], console):
        pass
    return out.getvalue()


def sgr(colour: str) -> str:
    """The colour as a terminal is told it."""
    return "38;2;" + ";".join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))


def test_speakers_stand_in_lines_and_colours_of_their_own() -> None:
    text = shown(speaking(*TALK))
    first, second = map(colour_of, (1, 2))
    assert f"\x1b[1;{sgr(first)}mSpeaker 1: \x1b[0m\x1b[{sgr(first)}mGood morning\x1b[0m" in text
    assert f"\x1b[1;{sgr(second)}mSpeaker 2: \x1b[0m\x1b[{sgr(second)}mHello\x1b[0m" in text
    assert "\nhm\x1b[2;3m yes\x1b[0m" in text.replace("\r", "")  # nobody known: plain


def test_a_revised_or_named_speaker_is_painted_anew() -> None:
    revised = speaking(*TALK, Speaker(5, 1, 2, 2, frozen=False), Named(6, 2, "Ada"))
    text = shown(revised)
    assert f"\x1b[1;{sgr(colour_of(2))}mAda: " in text
    assert "Speaker 1" not in text
    assert "Good morning Hello" in text


def test_a_colour_belongs_to_a_number_and_near_numbers_differ() -> None:
    assert len({colour_of(number) for number in range(1, len(COLOURS) + 1)}) == len(COLOURS) > 6
    assert colour_of(1) == colour_of(len(COLOURS) + 1)
    assert colour_of(None) == ""


def test_without_a_terminal_a_split_prints_no_word_twice() -> None:
    out = io.StringIO()
    said = words("Good morning Hello")
    messages: list[ServerMessage] = [
        segment(2, 1, 1, said, final=True, speaker=1),
        segment(3, 1, 2, said[:2], final=True, speaker=1),
        segment(4, 2, 1, said[2:], first_word=2, final=True, speaker=2),
        segment(5, 3, 1, words("Bye", 3000), first_word=3, final=True, speaker=2),
    ]
    playback = speaking()
    with Screen([playback], [10.0], Console(file=out, width=80)) as screen:
        for message in messages:
            playback.captions.receive(message)
            screen.hear(playback, Arrival(1.0, message))
    assert out.getvalue() == "00:00 Speaker 1: Good morning Hello\n00:03 Speaker 2: Bye\n"


def test_clocks() -> None:
    assert [clock(s) for s in (0, 59.9, 60, 3599, 3600, 36_061)] == [
        "00:00",
        "00:59",
        "01:00",
        "59:59",
        "1:00:00",
        "10:01:01",
    ]
