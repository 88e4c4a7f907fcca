"""Whether one more fits: properties of the decision, whatever is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.sessions.capacity import BUSY, CALM_S, FREE, LOWER, SAFETY, SMOOTH_S, Capacity, Look, Rules

RULES = Rules()
CAUSES = {"memory", "queue", "commit", "load", "burst"}
NOTHING = Look(busy=0.0, stretch=1.0, queue_s=0.0, commit_s=None, audio_rate=0.0, memory=0.1)

looks = st.builds(
    Look,
    busy=st.floats(0, 1),
    stretch=st.floats(1, 6),
    queue_s=st.floats(0, 60),
    commit_s=st.none() | st.floats(0, 60),
    audio_rate=st.floats(0, 1000),
    memory=st.floats(0, 2),
    slow=st.floats(0, 6),
)
steps = st.lists(st.tuples(looks, st.integers(0, 5)), max_size=60)


def after(steps: list[tuple[Look, int]]) -> tuple[Capacity, float]:
    """A capacity that saw these looks, half a second apart, with as many clients at each."""
    capacity, now = Capacity(RULES, 0.0), 0.0
    for look, clients in steps:
        now += 0.5
        capacity.look(look, now)
        for _ in range(clients):
            if capacity.refusal(now) is None:
                capacity.admit(now)
    return capacity, now


@given(steps, looks)
def test_nobody_begins_while_something_is_over_its_limit(steps: list[tuple[Look, int]], look: Look) -> None:
    capacity, now = after(steps)
    over = {"memory": replace(look, memory=1.0), "queue": replace(look, queue_s=RULES.queue_s, memory=0.5)}
    over["commit"] = replace(NOTHING, busy=0.9, stretch=2.0, commit_s=RULES.commit_s)
    for cause, beyond in over.items():
        capacity.look(beyond, now)
        assert capacity.refusal(now) == cause


@given(steps)
def test_once_all_is_calm_the_door_opens(steps: list[tuple[Look, int]]) -> None:
    capacity, now = after(steps)
    for _ in range(int(2 * (CALM_S + 12 * SMOOTH_S))):
        now += 0.5
        capacity.look(NOTHING, now)
    assert capacity.refusal(now) is None


@given(steps)
def test_what_closed_the_door_keeps_it_closed_for_a_while(steps: list[tuple[Look, int]]) -> None:
    """No flapping: the answer to the queue, the words or the memory lasts, whatever follows."""
    capacity, now = after(steps)
    capacity.look(replace(NOTHING, queue_s=RULES.queue_s), now)
    shut = now
    while capacity.refusal(now) is not None:
        now += 0.5
        capacity.look(NOTHING, now)
    assert now - shut >= CALM_S


@given(steps, st.floats(LOWER, 1.0, exclude_max=True))
def test_hovering_below_a_limit_opens_nothing(steps: list[tuple[Look, int]], share: float) -> None:
    capacity, now = after(steps)
    capacity.look(replace(NOTHING, memory=1.0), now)
    for _ in range(60):
        now += 0.5
        capacity.look(replace(NOTHING, memory=share), now)
        assert capacity.refusal(now) == "memory"


@given(steps, st.integers(1, 200))
def test_a_crowd_is_let_in_by_what_one_costs(steps: list[tuple[Look, int]], crowd: int) -> None:
    """Of those who come at one moment no more are let in than fit, though none of them is measured yet."""
    capacity, now = after(steps)
    for _ in range(20):
        now += 0.5
        capacity.look(replace(NOTHING, busy=0.4, audio_rate=10.0, memory=0.1), now)
    admitted = 0
    for _ in range(crowd):
        if (cause := capacity.refusal(now)) is None:
            capacity.admit(now)
            admitted += 1
        else:
            assert cause in CAUSES
    assert capacity.used <= 1.0 or admitted <= 1


@given(st.integers(1, 100), st.integers(1, 50))
def test_before_anything_was_measured_a_burst_fits(crowd: int, burst: int) -> None:
    capacity = Capacity(Rules(burst=burst), 0.0)
    admitted = 0
    for _ in range(crowd):
        if capacity.refusal(0.0) is None:
            capacity.admit(0.0)
            admitted += 1
    assert admitted == min(crowd, burst)


def test_on_an_idle_server_one_session_begins_whatever_it_costs() -> None:
    capacity, now = Capacity(RULES, 0.0), 0.0
    for _ in range(100):
        now += 0.5
        capacity.look(replace(NOTHING, busy=1.0, stretch=6.0, audio_rate=1.0), now)
    assert capacity.refusal(now) == "load"
    for _ in range(100):
        now += 0.5
        capacity.look(NOTHING, now)
    assert capacity.refusal(now) is None
    capacity.admit(now)
    assert capacity.refusal(now) == "load"


def test_words_that_come_late_on_an_idle_engine_refuse_nobody() -> None:
    """A client that sends a file as fast as it can waits long for its words: that is no overload."""
    capacity, now = Capacity(RULES, 0.0), 0.0
    for _ in range(40):
        now += 0.5
        capacity.look(replace(NOTHING, busy=0.3, commit_s=30.0, audio_rate=5.0), now)
    assert capacity.refusal(now) is None


def steadily(capacity: Capacity, look: Look, now: float = 0.0, seconds: float = 120.0) -> float:
    """Nothing else is seen for so long; the time then."""
    for _ in range(int(2 * seconds)):
        now += 0.5
        capacity.look(look, now)
    return now


@pytest.mark.parametrize("stretch", [1.0, 1.3, 2.0])
def test_so_many_fit_that_refreshes_are_as_rare_as_was_allowed(stretch: float) -> None:
    """Half of the busy engine's time with refreshes twice as rare is all of it without."""
    capacity = Capacity(replace(RULES, stretch=stretch), 0.0)
    steadily(capacity, replace(NOTHING, busy=BUSY / 2, stretch=2.0, audio_rate=10.0))
    assert capacity.used == pytest.approx(1 / stretch)


def test_an_engine_with_places_left_is_full_once_refreshes_take_too_long_in_it() -> None:
    """Hundreds of places of which few are used: they let in everybody, and words came late."""
    calm, slow = replace(NOTHING, busy=0.05, audio_rate=400.0, slow=0.3), {"busy": 0.1, "audio_rate": 500.0}
    capacity = Capacity(RULES, 0.0)
    now = steadily(capacity, calm)
    assert capacity.refusal(now) is None
    now = steadily(capacity, replace(NOTHING, **slow, slow=1.4, stretch=1.4), now)
    assert capacity.refusal(now) == "load"
    now = steadily(capacity, calm, now)
    assert capacity.refusal(now) is None


def test_words_that_come_late_from_a_slow_engine_close_the_door_whatever_places_are_left() -> None:
    capacity = Capacity(RULES, 0.0)
    late = replace(NOTHING, busy=0.1, stretch=1.1, slow=1.1, commit_s=RULES.commit_s, audio_rate=100.0)
    assert capacity.refusal(steadily(capacity, late)) == "commit"


def test_words_that_come_late_under_load_do_not_become_the_measure() -> None:
    capacity = Capacity(RULES, 0.0)
    now = steadily(capacity, replace(NOTHING, busy=0.2, commit_s=1.2, audio_rate=5.0))
    loaded = replace(NOTHING, busy=0.5, stretch=2.0, audio_rate=9.0)
    now = steadily(capacity, replace(loaded, commit_s=1.6), now)  # a third more than 1.2 is allowed
    capacity.look(replace(loaded, commit_s=1.65), now)
    assert capacity.refusal(now) == "commit"
    fresh = Capacity(RULES, 0.0)
    now = steadily(fresh, replace(loaded, commit_s=1.65))
    assert fresh.refusal(now) != "commit", "without load nothing was seen: nobody knows what late is"


def test_an_engine_that_gives_way_is_busy_however_much_time_it_has_left() -> None:
    capacity = Capacity(RULES, 0.0)
    now = steadily(capacity, replace(NOTHING, busy=0.4, stretch=2.0, commit_s=RULES.commit_s, audio_rate=9.0))
    assert capacity.refusal(now) == "commit"


def test_of_a_crowd_as_many_are_let_in_at_once_as_the_trusted_part_holds() -> None:
    """What is not measured may cost more than what is, so half of what may be used is given away at that."""
    capacity, busy, rate = Capacity(RULES, 0.0), 0.3, 10.0
    now = steadily(capacity, replace(NOTHING, busy=busy, audio_rate=rate))
    admitted = 0
    while capacity.refusal(now) is None:
        capacity.admit(now)
        admitted += 1
    cost = SAFETY * busy / rate
    assert admitted == int((FREE * BUSY * RULES.stretch - busy) / cost)


def test_a_full_server_takes_nobody_until_there_is_room_again() -> None:
    """No flapping at the limit: a little less than full is full."""
    capacity, look = Capacity(RULES, 0.0), replace(NOTHING, stretch=2.0, audio_rate=10.0)
    answers, now = [], 0.0
    for demand in (1.1, 0.86, 0.6):
        now = steadily(capacity, replace(look, busy=demand / 2), now)
        answers.append(capacity.refusal(now))
    assert answers == ["load", "load", None]
