"""The asyncio shell over a scripted decoder: threads, cancellation, deadline, close."""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from engine.contract import Capabilities, EngineError, Hypothesis, Priority, RecognitionTask, Word
from engine.local import recognizer
from engine.local.recognizer import LocalRecognizer, open_recognizer


class Gated:
    """A decoder that waits for its gate and remembers what it was asked."""

    def __init__(self, threads: int = 1) -> None:
        self.capabilities = Capabilities("gated", "none", 30.0, concurrency=threads)
        self.gate = threading.Event()
        self.asked: list[str] = []
        self.started = threading.Semaphore(0)
        self.closed = False

    def decode(self, task: RecognitionTask) -> Hypothesis:
        self.asked.append(task.id)
        self.started.release()
        assert self.gate.wait(20)
        if task.id == "bad":
            raise EngineError("request", "no", retryable=False)
        return Hypothesis((Word(task.id, 0, 1),))

    def close(self) -> None:
        self.closed = True


def task(name: str) -> RecognitionTask:
    return RecognitionTask(name, "s", np.zeros(320, np.float32), 0, Priority.FINAL)


async def begun(decoder: Gated, count: int = 1) -> None:
    for _ in range(count):
        await asyncio.to_thread(decoder.started.acquire)


async def test_results_and_errors_come_back() -> None:
    decoder = Gated()
    decoder.gate.set()
    engine = LocalRecognizer(decoder, deadline_s=20.0)
    assert (await engine.recognize(task("one"))).words[0].text == "one"
    assert engine.decode(task("two")).words[0].text == "two"
    with pytest.raises(EngineError, match="no"):
        await engine.recognize(task("bad"))
    await engine.close()


async def test_as_many_run_at_once_as_there_are_workers_and_the_loop_stays_free() -> None:
    decoder = Gated(threads=2)
    engine = LocalRecognizer(decoder, deadline_s=20.0)
    waiting = [asyncio.create_task(engine.recognize(task(str(i)))) for i in range(3)]
    await begun(decoder, 2)
    assert len(decoder.asked) == 2
    decoder.gate.set()
    assert [(await w).words[0].text for w in waiting] == ["0", "1", "2"]
    await engine.close()


async def test_a_cancelled_queued_task_never_starts_and_a_running_ones_result_is_dropped() -> None:
    decoder = Gated()
    engine = LocalRecognizer(decoder, deadline_s=20.0)
    running = asyncio.create_task(engine.recognize(task("running")))
    await begun(decoder)
    queued = asyncio.create_task(engine.recognize(task("queued")))
    last = asyncio.create_task(engine.recognize(task("last")))
    await asyncio.sleep(0)
    for waiting in (queued, running):
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    decoder.gate.set()
    assert (await last).words[0].text == "last"
    assert decoder.asked == ["running", "last"]
    await engine.close()


async def test_a_deadline_is_an_error_worth_a_retry() -> None:
    decoder = Gated()
    engine = LocalRecognizer(decoder, deadline_s=0.01)
    with pytest.raises(EngineError, match=r"no result within 0\.01 s") as caught:
        await engine.recognize(task("slow"))
    assert (caught.value.cause, caught.value.retryable) == ("deadline", True)
    decoder.gate.set()
    await engine.close()


async def test_closing_fails_what_waits_finishes_what_runs_and_refuses_more() -> None:
    decoder = Gated()
    engine = LocalRecognizer(decoder, deadline_s=20.0)
    running = asyncio.create_task(engine.recognize(task("running")))
    await begun(decoder)
    queued = asyncio.create_task(engine.recognize(task("queued")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(engine.close())
    with pytest.raises(EngineError, match="shut down"):
        await queued
    assert not decoder.closed
    decoder.gate.set()
    await closing
    assert (await running).words[0].text == "running"
    assert decoder.closed
    with pytest.raises(EngineError, match="shut down") as caught:
        await engine.recognize(task("late"))
    assert caught.value.cause == "closed"
    await engine.close()


async def test_threads_do_not_wait_long_for_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognizer, "find_weights", Path)
    monkeypatch.setattr(recognizer, "LocalDecoder", lambda *_, **__: Gated())
    before = sys.getswitchinterval()
    try:
        for given, expected in ((0.005, recognizer.SWITCH_S), (0.0001, 0.0001)):
            sys.setswitchinterval(given)
            await open_recognizer("any").close()
            assert sys.getswitchinterval() == pytest.approx(expected, rel=0.05)
    finally:
        sys.setswitchinterval(before)
