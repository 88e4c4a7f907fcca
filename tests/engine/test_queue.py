"""Order, replacement, fairness and bounds of the waiting line; the load loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Priority, RecognitionTask
from engine.queue import LoadGauge, QueueFull, TaskQueue

FINAL, FIRST, REFRESH, BATCH = Priority


def task(id: str, session: str = "s", priority: Priority = FINAL) -> RecognitionTask:
    return RecognitionTask(id, session, np.zeros(320, np.float32), 0, priority)


def drained(queue: TaskQueue) -> list[str]:
    ids = []
    while queued := queue.pop():
        ids.append(queued.task.id)
    return ids


def test_the_more_urgent_first() -> None:
    queue = TaskQueue(10)
    for priority in (BATCH, REFRESH, FIRST, FINAL):
        queue.push(task(priority.name, priority=priority), 0.0)
    assert drained(queue) == ["FINAL", "FIRST", "REFRESH", "BATCH"]


def test_a_newer_refresh_replaces_the_older() -> None:
    queue = TaskQueue(10)
    queue.push(task("a1", "a", REFRESH), 0.0)
    queue.push(task("b1", "b", REFRESH), 0.0)
    assert [t.id for t in queue.push(task("a2", "a", REFRESH), 1.0)] == ["a1"]
    # Its turn is kept, or a session that asks often would never be served.
    assert drained(queue) == ["a2", "b1"]


def test_finals_are_never_replaced() -> None:
    queue = TaskQueue(10)
    assert queue.push(task("a1"), 0.0) == []
    assert queue.push(task("a2"), 0.0) == []
    assert drained(queue) == ["a1", "a2"]


def test_sessions_take_turns() -> None:
    queue = TaskQueue(10)
    for id in ("a1", "a2", "a3", "b1", "c1"):
        queue.push(task(id, id[0]), 0.0)
    assert drained(queue) == ["a1", "b1", "c1", "a2", "a3"]


def test_full_means_the_newest_less_urgent_goes() -> None:
    queue = TaskQueue(2)
    queue.push(task("r1", "a", REFRESH), 0.0)
    queue.push(task("r2", "b", REFRESH), 1.0)
    assert [t.id for t in queue.push(task("f1", "c"), 2.0)] == ["r2"]
    assert [t.id for t in queue.push(task("f2", "d"), 2.0)] == ["r1"]
    with pytest.raises(QueueFull, match="none less urgent"):
        queue.push(task("f3", "e"), 2.0)
    assert drained(queue) == ["f1", "f2"]


def test_a_queue_holds_something() -> None:
    with pytest.raises(ValueError, match="at least one"):
        TaskQueue(0)


def test_cancelling_and_age() -> None:
    queue = TaskQueue(5)
    queue.push(task("a1", "a"), 1.0)
    queue.push(task("a2", "a"), 2.0)
    queue.push(task("z", "z", BATCH), 0.0)
    assert queue.oldest(5.0) == 4.0
    assert queue.cancel("a1")
    assert not queue.cancel("a1")
    assert queue.oldest(5.0) == 3.0
    with pytest.raises(ValueError, match="waits already"):
        queue.push(task("a2", "a"), 3.0)
    assert drained(queue) == ["a2", "z"]
    assert queue.pop() is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["push", "push", "push", "pop", "cancel"]),
            st.sampled_from("abc"),
            st.sampled_from(Priority),
        ),
        max_size=60,
    )
)
def test_nothing_is_lost_or_served_twice(steps: list[tuple[str, str, Priority]]) -> None:
    queue, inside, served = TaskQueue(8), set[str](), list[str]()
    for number, (step, session, priority) in enumerate(steps):
        if step == "push":
            try:
                displaced = queue.push(task(f"t{number}", session, priority), float(number))
            except QueueFull:
                continue
            assert {t.id for t in displaced} <= inside
            inside -= {t.id for t in displaced}
            inside.add(f"t{number}")
        elif step == "cancel" and inside:
            victim = min(inside)
            assert queue.cancel(victim)
            inside.remove(victim)
        elif queued := queue.pop():
            served.append(queued.task.id)
            inside.remove(queued.task.id)
        assert len(queue) == len(inside) <= 8
    assert set(drained(queue)) == inside
    assert len(served) == len(set(served))


def test_load_stretches_refreshes_and_lets_go() -> None:
    gauge = LoadGauge(concurrency=2, now=0.0)
    gauge.run(+2, 0.0)
    for step in range(40):
        gauge.step(0.0, step / 2)
    assert gauge.factor == LoadGauge.MOST
    assert gauge.utilisation > 0.9
    gauge.run(-2, 20.0)
    for step in range(100):
        gauge.step(0.0, 20 + step / 2)
    assert gauge.factor == 1.0


def test_refreshes_are_brief_from_some_load_until_it_is_nearly_gone() -> None:
    gauge, seen = LoadGauge(concurrency=1, now=0.0), list[tuple[float, bool]]()
    for change, steps in ((+1, 4), (-1, 10), (+1, 40), (-1, 100)):
        gauge.run(change, gauge._stepped)
        for _ in range(steps):
            gauge.step(0.0, gauge._stepped + gauge.PERIOD_S)
            seen.append((gauge.factor, gauge.brief))
    assert all(brief for factor, brief in seen if factor > LoadGauge.BRIEF)
    assert not any(brief for factor, brief in seen if factor <= LoadGauge.WHOLE)
    changes = [(b, f) for (_, a), (f, b) in itertools.pairwise(seen) if a != b]
    assert [brief for brief, _ in changes] == [True, False] * (len(changes) // 2)
    assert all(f > LoadGauge.BRIEF if brief else f <= LoadGauge.WHOLE for brief, f in changes)
    assert seen[-1] == (1.0, False)


def test_half_busy_stretches_nothing_but_waiting_does() -> None:
    gauge = LoadGauge(concurrency=2, now=0.0)
    gauge.run(+1, 0.0)
    for step in range(40):
        gauge.step(0.0, step / 2)
    assert gauge.factor == 1.0
    gauge.step(2.0, 21.0)
    assert gauge.factor > 1.0


def looked(gauge: LoadGauge, *took: float, steps: int = 40) -> LoadGauge:
    """So many periods, each with refreshes that took so long."""
    for _ in range(steps):
        for seconds in took:
            gauge.served(seconds)
        gauge.step(0.0, gauge._stepped + gauge.PERIOD_S)
    return gauge


def test_an_engine_with_places_left_that_answers_late_is_busy_all_the_same() -> None:
    """One that takes hundreds at once has a queue of its own: its places say nothing."""
    gauge = looked(LoadGauge(concurrency=256, now=0.0), 0.05, 0.15)
    assert gauge.factor == 1.0
    assert looked(gauge, 0.7, 0.9).factor == pytest.approx(2.0, rel=0.01)
    assert gauge.utilisation == 0.0
    assert looked(gauge, 0.1, 0.2).factor == 1.0


def test_an_engine_that_always_takes_so_long_is_not_busy() -> None:
    gauge = looked(LoadGauge(concurrency=256, now=0.0), 0.8)
    assert gauge.factor == 1.0
    assert looked(gauge, 3.0).factor == 1.0
    assert looked(gauge, 4.0).factor > 1.0


def test_where_places_are_few_they_tell_and_not_how_long_it_takes() -> None:
    """There a decode is slow because its window is long, or the machine has other work."""
    gauge = looked(looked(LoadGauge(concurrency=2, now=0.0), 0.1), 0.8)
    assert (gauge.slow, gauge.factor) == (0.0, 1.0)


def test_refreshes_are_as_rare_as_they_are_late_and_no_rarer_for_its_lasting() -> None:
    """Steps up and down for as long as it lasts swung between none and the most."""
    gauge = looked(LoadGauge(concurrency=256, now=0.0), 0.1)
    seen = [looked(gauge, 0.6, steps=1).factor for _ in range(40)]
    assert all(a <= b for a, b in itertools.pairwise(seen))
    assert seen[-1] == pytest.approx(1.5, rel=0.01)


def test_load_that_lasts_for_hours_is_not_taken_for_idleness() -> None:
    gauge = looked(LoadGauge(concurrency=256, now=0.0), 0.1)
    assert looked(gauge, 0.8, steps=8 * 7200).factor == pytest.approx(2.0, rel=0.01)


def test_what_is_answered_without_the_engine_says_nothing_of_it() -> None:
    gauge = looked(looked(LoadGauge(concurrency=256, now=0.0), 0.0), 0.8)
    assert gauge.factor == 1.0


def test_a_process_that_is_late_once_asks_as_often_as_before() -> None:
    """At a start, or where nobody spoke for an hour: there is no earlier measure to weigh it against."""
    gauge = looked(LoadGauge(concurrency=256, now=0.0), 0.1)
    gauge.late(0.3)
    gauge.served(1.0)
    gauge.step(0.0, 3600.0)
    assert gauge.factor == 1.0


def test_a_process_with_too_little_time_of_its_own_asks_less_often() -> None:
    """Whatever the engine: its places are free, and its answers wait in this process."""
    gauge, seen = LoadGauge(concurrency=2, now=0.0), list[float]()
    for late in (0.003, 0.3, 60.0, 0.003):
        for _ in range(40):
            gauge.late(late)
            gauge.step(0.0, gauge._stepped + gauge.PERIOD_S)
        seen.append(gauge.factor)
    assert seen == [1.0, pytest.approx(3.0, rel=0.01), gauge.MOST, 1.0]
