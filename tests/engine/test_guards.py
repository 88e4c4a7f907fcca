"""Broken output as token traces: what is stopped, when, and what is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.guards import (
    Alarm,
    Coverage,
    Finished,
    GuardLimits,
    TokenGuard,
    inspect,
    repetition,
)
from engine.policies.markup import MARKUP

HA = 7001
LIMITS = GuardLimits(audio_s=10.0)


def fed_until_alarm(ids: list[int], limits: GuardLimits, step: int = 8) -> tuple[int, Alarm | None]:
    """How many tokens were generated when the guard spoke up, and what it said."""
    guard = TokenGuard(limits)
    for end in range(step, len(ids) + step, step):
        if (alarm := guard.feed(ids[:end])) is not None:
            return min(end, len(ids)), alarm
    return len(ids), None


def test_the_laughter_loop_is_stopped_after_a_few_tokens() -> None:
    # Seed 1: 9.7 s of laughter, "ha ha ha ..." until the whole budget of 5,120 tokens is gone.
    trace = [11, 12, 13, *[HA] * 5120]
    used, alarm = fed_until_alarm(trace, GuardLimits(audio_s=9.7))
    assert alarm is Alarm.LOOP
    assert used <= 24


def test_a_phrase_loop_is_stopped() -> None:
    # Seed 3: a phrase 49 times, a character 102 times.
    used, alarm = fed_until_alarm([1, 2, 3, *[21, 22, 23, 24, 25] * 49], LIMITS)
    assert (alarm, used <= 32) == (Alarm.LOOP, True)
    used, alarm = fed_until_alarm([1, 2, 3, *[31] * 102], LIMITS)
    assert (alarm, used <= 24) == (Alarm.LOOP, True)


def test_a_loop_hidden_by_time_marks_is_stopped_by_its_text() -> None:
    text = "".join(f"[{second}.00][S01]哈哈[{second}.50]" for second in range(40))
    guard = TokenGuard(GuardLimits(audio_s=60.0, markup=MARKUP))
    assert guard.feed((), text) is Alarm.LOOP


def test_people_may_repeat_themselves() -> None:
    assert fed_until_alarm([5, *[9] * 6, 6], LIMITS)[1] is None
    assert (
        TokenGuard(LIMITS).feed((), "No, no, no, no. It was the best of times. It was the worst of times.")
        is None
    )


def test_more_text_than_anyone_can_say_is_a_flood() -> None:
    words = " ".join(f"word{number}" for number in range(200))
    assert TokenGuard(GuardLimits(audio_s=2.0)).feed((), words) is Alarm.FLOOD
    assert TokenGuard(GuardLimits(audio_s=60.0)).feed((), words) is None


def test_dense_scripts_have_their_own_measure() -> None:
    text = "".join(chr(0x4E00 + number) for number in range(90))
    assert TokenGuard(GuardLimits(audio_s=4.0)).feed((), text) is Alarm.FLOOD
    assert TokenGuard(GuardLimits(audio_s=12.0)).feed((), text) is None


def test_silent_truncation_is_seen() -> None:
    # Seed 1: HTTP 200 with 6,782 of 18,400 characters of 38.7 minutes; the last mark is far from the end.
    cut = Finished(text="...", full=False, audio_s=2322.0, last_s=856.0)
    assert inspect(cut) is Alarm.SHORT
    assert inspect(Finished(text="...", full=True, audio_s=2322.0, last_s=2321.0)) is Alarm.LENGTH
    assert inspect(Finished(text="...", full=False, audio_s=2322.0, last_s=2320.5)) is None


@pytest.mark.parametrize(
    ("text", "speech_s", "expected"),
    [
        ("", 4.0, Alarm.SILENT),
        ("", 0.4, None),
        ("Thank you.", 0.0, Alarm.CHATTER),
        ("Thank you.", 0.6, None),
        ("Thank you.", None, None),
    ],
)
def test_text_and_speech_must_go_together(text: str, speech_s: float | None, expected: Alarm | None) -> None:
    assert inspect(Finished(text=text, full=False, audio_s=8.0, speech_s=speech_s), Coverage()) is expected


@given(st.lists(st.integers(0, 50), max_size=30), st.lists(st.integers(100, 120), min_size=1, max_size=20))
def test_any_phrase_said_often_enough_is_found(start: list[int], phrase: list[int]) -> None:
    ids = start + phrase * max(LIMITS.single_rounds, LIMITS.min_tokens)
    assert repetition(ids, LIMITS) is not None


@given(st.lists(st.integers(0, 10**6), unique=True, max_size=200))
def test_output_without_repetition_is_never_stopped(ids: list[int]) -> None:
    assert fed_until_alarm(ids, LIMITS)[1] is None
