"""Deadlines, cancellation, order and load over the scripted engine, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import numpy as np
import pytest

from engine.contract import SAMPLE_RATE, Capabilities, EngineError, Hypothesis, Priority, RecognitionTask
from engine.dispatcher import Dispatcher, DispatchSettings, Served
from engine.fake import FakeRecognizer, FakeScript
from tests.support.virtual import run, settle


def task(
    id: str, session: str = "s", priority: Priority = Priority.FINAL, seconds: float = 1.0
) -> RecognitionTask:
    return RecognitionTask(id, session, np.zeros(int(seconds * SAMPLE_RATE), np.float32), 0, priority)


def dispatching(
    body: Callable[[Dispatcher, FakeRecognizer, list[Served]], Awaitable[None]],
    script: FakeScript,
    settings: DispatchSettings | None = None,
) -> None:
    async def main() -> None:
        engine, served = FakeRecognizer(script), list[Served]()
        dispatcher = Dispatcher(engine, settings or DispatchSettings(), served.append)
        await body(dispatcher, engine, served)
        await dispatcher.close()
        assert engine.closed
        assert dispatcher.load.running == dispatcher.load.waiting == 0

    run(main())


async def cause_of(running: asyncio.Task[Hypothesis]) -> tuple[str, bool]:
    with pytest.raises(EngineError) as caught:
        await running
    return caught.value.cause, caught.value.retryable


def test_concurrency_and_times() -> None:
    async def body(d: Dispatcher, _: FakeRecognizer, served: list[Served]) -> None:
        await asyncio.gather(*(d.recognize(task(f"t{i}", f"s{i}")) for i in range(4)))
        assert [round(s.queue_s, 3) for s in served] == [0.0, 0.0, 1.0, 1.0]
        assert [round(s.engine_s, 3) for s in served] == [1.0] * 4
        assert all(s.cause is None and s.hypothesis is not None for s in served)

    dispatching(body, FakeScript(delay_s=1.0, concurrency=2))


def test_finals_overtake() -> None:
    async def body(d: Dispatcher, engine: FakeRecognizer, _: list[Served]) -> None:
        calls = [
            asyncio.create_task(d.recognize(task("running", "a", Priority.REFRESH))),
            asyncio.create_task(d.recognize(task("refresh", "b", Priority.REFRESH))),
            asyncio.create_task(d.recognize(task("final", "c"))),
        ]
        await asyncio.gather(*calls)
        assert engine.tasks == ["running", "final", "refresh"]

    dispatching(body, FakeScript(delay_s=1.0, concurrency=1))


def test_deadline_counts_waiting_and_frees_the_engine() -> None:
    async def body(d: Dispatcher, engine: FakeRecognizer, served: list[Served]) -> None:
        slow = asyncio.create_task(d.recognize(task("slow")))
        waiting = asyncio.create_task(d.recognize(task("waiting", "b")))
        assert await cause_of(slow) == ("deadline", True)
        assert await cause_of(waiting) == ("deadline", True)
        assert engine.abandoned == ["slow"]
        assert {s.cause for s in served} == {"deadline"}

    dispatching(body, FakeScript(delay_s=1e6, concurrency=1), DispatchSettings(final_deadline_s=5.0))


def test_cancel_by_id_abandons_waiting_and_running_work() -> None:
    async def body(d: Dispatcher, engine: FakeRecognizer, _: list[Served]) -> None:
        running = asyncio.create_task(d.recognize(task("running")))
        waiting = asyncio.create_task(d.recognize(task("waiting")))
        await settle()
        assert d.cancel("running")
        assert d.cancel("waiting")
        assert not d.cancel("unknown")
        assert await cause_of(running) == ("cancelled", False)
        assert await cause_of(waiting) == ("cancelled", False)
        assert engine.tasks == engine.abandoned == ["running"]

    dispatching(body, FakeScript(delay_s=10.0, concurrency=1))


def test_a_caller_goes_on_after_its_task_was_cancelled() -> None:
    async def body(d: Dispatcher, _: FakeRecognizer, __: list[Served]) -> None:
        async def caller() -> int:
            with pytest.raises(EngineError):
                await d.recognize(task("a"))
            current = asyncio.current_task()
            assert current is not None
            return current.cancelling()

        running = asyncio.create_task(caller())
        await settle()
        d.cancel("a")
        assert await running == 0

    dispatching(body, FakeScript(delay_s=10.0))


def test_cancelling_the_caller_is_cancellation() -> None:
    async def body(d: Dispatcher, engine: FakeRecognizer, _: list[Served]) -> None:
        running = asyncio.create_task(d.recognize(task("running")))
        await settle()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert engine.abandoned == ["running"]
        await d.recognize(task("next"))

    dispatching(body, FakeScript(delay_s=1.0, concurrency=1))


def test_a_replaced_refresh_is_told() -> None:
    async def body(d: Dispatcher, engine: FakeRecognizer, _: list[Served]) -> None:
        busy = asyncio.create_task(d.recognize(task("busy", "other")))
        old = asyncio.create_task(d.recognize(task("old", "s", Priority.REFRESH)))
        await settle()
        new = asyncio.create_task(d.recognize(task("new", "s", Priority.REFRESH)))
        assert await cause_of(old) == ("replaced", True)
        await asyncio.gather(busy, new)
        assert engine.tasks == ["busy", "new"]

    dispatching(body, FakeScript(delay_s=1.0, concurrency=1))


def test_failures_pass_and_foreign_exceptions_are_translated() -> None:
    class Broken(FakeRecognizer):
        async def recognize(self, task: RecognitionTask) -> Hypothesis:
            if task.id == "bug":
                raise ZeroDivisionError
            return await super().recognize(task)

    async def main() -> None:
        engine = Broken(FakeScript(failures={0: EngineError("scripted", "no", retryable=True)}))
        d = Dispatcher(engine, DispatchSettings())
        assert await cause_of(asyncio.create_task(d.recognize(task("a")))) == ("scripted", True)
        assert await cause_of(asyncio.create_task(d.recognize(task("bug")))) == ("engine", False)
        assert (await d.recognize(task("b"))).words == ()
        await d.close()

    run(main())


def test_a_full_queue_refuses() -> None:
    async def body(d: Dispatcher, _: FakeRecognizer, __: list[Served]) -> None:
        calls = [asyncio.create_task(d.recognize(task(f"t{i}"))) for i in range(2)]
        await settle()
        assert await cause_of(asyncio.create_task(d.recognize(task("t2")))) == ("queue_full", True)
        assert await cause_of(asyncio.create_task(d.recognize(task("t0")))) == ("duplicate", False)
        await asyncio.gather(*calls)

    dispatching(body, FakeScript(delay_s=1.0, concurrency=1), DispatchSettings(queue=1))


def test_close_ends_everything() -> None:
    async def main() -> None:
        d = Dispatcher(FakeRecognizer(FakeScript(delay_s=9.0)), DispatchSettings())
        running = asyncio.create_task(d.recognize(task("a")))
        await settle()
        await d.close()
        assert await cause_of(running) == ("closed", False)
        assert await cause_of(asyncio.create_task(d.recognize(task("b")))) == ("closed", False)

    run(main())


def test_load_is_reported() -> None:
    async def body(d: Dispatcher, _: FakeRecognizer, __: list[Served]) -> None:
        assert d.load.stretch == 1.0
        calls = [asyncio.create_task(d.recognize(task(f"t{i}", f"s{i}"))) for i in range(30)]
        await settle()
        assert (d.load.running, d.load.waiting) == (1, 29)
        stretched = 1.0
        while not all(call.done() for call in calls):
            await asyncio.sleep(0.5)
            stretched = max(stretched, d.load.stretch)
        assert stretched > 3
        await asyncio.sleep(1.0)
        assert d.load.oldest_s == 0.0

    dispatching(body, FakeScript(delay_s=1.0, concurrency=1))


def test_refreshes_that_come_back_late_become_rarer_though_places_are_free() -> None:
    async def body(d: Dispatcher, _: FakeRecognizer, served: list[Served]) -> None:
        seen = []
        for priority in (Priority.FINAL, Priority.REFRESH):
            for number in range(60):
                await d.recognize(task(f"{priority.name}{number}", priority=priority))
                seen.append(d.load.stretch)
        assert max(seen[:61]) == 1.0  # a final may take its time
        assert seen[-1] > 2.0
        assert d.load.utilisation < 0.1

    # Quick at first, so that it is known what it takes.
    dispatching(body, FakeScript(concurrency=64, stalls=lambda call: 0.05 if 60 <= call < 80 else 0.8))


def test_recordings_have_places_and_deadlines_of_their_own() -> None:
    long = task("t", priority=Priority.BATCH, seconds=600.0)
    settings = DispatchSettings(final_deadline_s=60.0, partial_deadline_s=10.0)
    assert settings.deadline(long) == 300.0
    assert settings.deadline(replace(long, priority=Priority.FINAL)) == 60.0
    assert settings.deadline(replace(long, priority=Priority.REFRESH)) == 10.0
    plain = Capabilities("e", "m", 30.0, concurrency=64)
    whole = replace(plain, recording_s=5400.0)
    assert [settings.batch(one) for one in (plain, whole, replace(whole, concurrency=8))] == [63, 4, 1]
    assert DispatchSettings(recordings=2).batch(plain) == 2
    assert DispatchSettings(recordings=99).batch(replace(plain, concurrency=1)) == 1
