"""Whether one more fits: properties of the decision, whatever is measured."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from streaming.sessions.capacity import CALM_S, LOWER, SMOOTH_S, Capacity, Look, Rules

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
