"""An engine that has places for all and time for few: refreshes become rarer before words are late."""

from __future__ import annotations

from tests.crowded import crowd
from tests.support.virtual import run


def test_words_are_in_time_before_an_engine_at_its_limit() -> None:
    """Where only places count nothing becomes rarer: 95 of 100 words then take up to 3.9 s, not 3.0 s."""
    found = run(crowd(20, 13_400.0, 2, 30.0))
    assert found.count > 1000
    assert found.p95 is not None
    assert found.p95 < 3.3


def test_words_are_in_time_before_one_asked_for_half_as_much_again() -> None:
    """Where the intervals go up and down in steps, they swing: 95 of 100 words take up to 4.3 s, not 3.2."""
    found = run(crowd(28, 13_400.0, 2, 40.0))
    assert found.p95 is not None
    assert found.p95 < 3.5


def test_words_are_as_early_as_ever_before_one_with_time_to_spare() -> None:
    found = run(crowd(10, 13_400.0, 2, 20.0))
    assert found.p95 is not None
    assert found.p95 < 2.7
