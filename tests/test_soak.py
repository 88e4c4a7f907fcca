"""The soaks measure what they say; some minutes of the one in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from clients.bench.soak import Look, session_mib, slope
from streaming import heap
from tests.soak import soak


def test_the_slope_is_that_of_the_line() -> None:
    assert slope([Look(360.0 * i, 100 + 0.5 * i, 2) for i in range(20)]) == pytest.approx(5.0)
    assert slope([Look(0, 100, 1), Look(1800, 90, 1), Look(3600, 100, 1)]) == pytest.approx(0.0)
    assert slope([Look(0, 100, 1)]) == slope([]) == 0.0


def test_memory_is_shared_among_the_most_sessions_at_once() -> None:
    assert session_mib([Look(0, 100, 0), Look(1, 130, 3), Look(2, 140, 4)], 100) == 10.0


def test_some_minutes_of_a_working_day() -> None:
    found = soak(hours=0.05, long=1, seats=1, seed=2)
    assert found.faults == []
    assert found.ended >= 1
    assert found.words > 50


async def test_what_is_free_is_given_back_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "TRIM_S", 0.0)
    trim, calls = heap.trimmer(), asyncio.Semaphore(0)
    if trim is not None:
        trim()
    loop = asyncio.get_running_loop()

    def count() -> None:
        loop.call_soon_threadsafe(calls.release)

    giving = asyncio.create_task(heap.give_back(count))
    for _ in range(3):
        await calls.acquire()
    giving.cancel()
    await asyncio.gather(giving, return_exceptions=True)
    await heap.give_back(None)
