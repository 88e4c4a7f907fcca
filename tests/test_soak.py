"""The soaks measure what they say; some minutes of the one in virtual time."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys

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


HELD_BY_THREADS = """
import ctypes, sys, threading
from streaming.heap import one_heap
assert sys.argv[1] != "one" or one_heap()
ready = threading.Barrier(5)
kept = []
def hold():
    kept.append([bytes(2000) for _ in range(500)])
    ready.wait()
threads = [threading.Thread(target=hold) for _ in range(4)]
for thread in threads:
    thread.start()
ready.wait()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="glibc alone has heaps of threads")
def test_threads_share_one_heap() -> None:
    def heaps(how: str) -> int:
        command = [sys.executable, "-c", HELD_BY_THREADS, how]
        return subprocess.run(command, capture_output=True, check=True).stdout.count(b"<heap nr=")

    assert heaps("one") == 1 < heaps("own")
