"""Which of several schedulers a request goes to."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.sglang.schedulers import Spread


def test_the_least_busy_takes_it() -> None:
    spread = Spread(2, sticky=False)
    assert [spread.take("a"), spread.take("a"), spread.take("a")] == [0, 1, 0]
    spread.done(0)
    spread.done(0)
    assert spread.take("b") == 0


def test_a_session_stays_where_its_prefix_is() -> None:
    spread = Spread(2, sticky=True)
    home = spread.take("a")
    assert spread.take("b") != home
    assert [spread.take("a") for _ in range(5)] == [home] * 5


@given(st.integers(1, 4), st.booleans(), st.lists(st.integers(0, 20), max_size=60))
def test_what_is_given_back_is_free_again(count: int, sticky: bool, sessions: list[int]) -> None:
    spread = Spread(count, sticky=sticky)
    taken = [spread.take(f"s{number}") for number in sessions]
    assert all(0 <= scheduler < count for scheduler in taken)
    if not sticky:
        held = [taken.count(scheduler) for scheduler in range(count)]
        assert max(held) - min(held) <= 1
    for scheduler in taken:
        spread.done(scheduler)
    fresh = Spread(count, sticky=sticky)
    if not sticky:
        assert spread.take("new") == fresh.take("new")
