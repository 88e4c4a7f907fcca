"""Who begins to speak, and who stopped."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.contract import FRAME, Voice
from streaming.core.events import ActivityChanged
from streaming.core.settings import SessionSettings
from streaming.core.watch import Watch

SETTINGS = SessionSettings()
ONSET, PAUSE = 3, 10  # frames


def verdicts(voiced: str) -> list[Voice]:
    return [Voice(cheap=one == "x", neural=1.0 if one == "x" else 0.0) for one in voiced]


def told(*tracks: str, numbered: bool = False, start: int = 0) -> list[ActivityChanged]:
    watch = Watch(SETTINGS, PAUSE * 0.02, len(tracks) if numbered else 0, start)
    return [*watch.receive([verdicts(track) for track in tracks]), *watch.end()]


def test_speech_begins_with_its_first_frame_and_stopped_with_its_last() -> None:
    assert told(".." + "x" * 20 + "." * 9 + "xx" + "." * 30 + "xx.") == [
        ActivityChanged(True, 2 * FRAME),
        ActivityChanged(False, 33 * FRAME),
    ]
    assert told("xxx", start=7 * FRAME) == [
        ActivityChanged(True, 7 * FRAME),
        ActivityChanged(False, 10 * FRAME),
    ]


def test_tracks_are_told_by_their_index() -> None:
    assert told("." * 20, "x" * 20, numbered=True) == [
        ActivityChanged(True, 0, 1),
        ActivityChanged(False, 20 * FRAME, 1),
    ]


@given(st.lists(st.sampled_from("x."), max_size=200).map("".join))
def test_beginning_and_stop_follow_each_other_and_no_pause_is_too_short(voiced: str) -> None:
    events = told(voiced)
    assert [event.speaking for event in events] == [True, False] * (len(events) // 2)
    for begun, stopped in zip(events[::2], events[1::2], strict=True):
        assert stopped.at - begun.at >= ONSET * FRAME
    for stopped, begun in zip(events[1::2], events[2::2], strict=False):
        assert begun.at - stopped.at >= (PAUSE - ONSET) * FRAME
    runs = any("x" * ONSET in voiced[at:] for at in range(len(voiced)))
    assert bool(events) is runs
