"""The recognizer over a scripted transport: what it sends, what it makes of what comes back."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from engine.contract import EngineError, Finish, Priority, join
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.transport import Part
from tests.support.waiting import until

from .scripted import MemoryTransport, PlainPolicy, growing, task


def recognizer(
    transport: MemoryTransport, policy: PlainPolicy | None = None, **more: object
) -> SglangRecognizer:
    settings = ClientSettings(model="m", **more)  # type: ignore[arg-type]
    return SglangRecognizer(transport, policy or PlainPolicy(), settings)


async def test_words_come_back_and_everything_needed_is_sent() -> None:
    transport = MemoryTransport(growing("Good morning all."))
    found = await recognizer(transport).recognize(task(language="en"))
    assert join(found.words) == "Good morning all."
    assert found.finish is Finish.STOP
    sent = transport.requests[0]
    assert sent.sampling["max_new_tokens"] == 64
    assert sent.sampling["temperature"] == 0.0
    assert (sent.text, sent.priority, sent.stream) == ("in en", 30, True)
    assert transport.aborted == []


async def test_priorities_keep_their_order_on_the_engine() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    for number, kind in enumerate(Priority):
        await engine.recognize(task(number, priority=kind))
    sent = [request.priority for request in transport.requests]
    assert sent == sorted(sent, reverse=True)  # type: ignore[type-var]
    assert len(set(sent)) == len(Priority)


async def test_no_request_id_begins_another() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    for number in range(120):
        await engine.recognize(task(number))
    ids = [request.rid for request in transport.requests]
    assert len({len(rid) for rid in ids}) == 1
    assert len(set(ids)) == 120


async def test_a_loop_is_aborted_while_it_runs() -> None:
    transport = MemoryTransport(growing("so " + "ha " * 400))
    engine = recognizer(transport)
    found = await engine.recognize(task())
    assert found.finish is Finish.LOOP
    assert transport.aborted == [transport.requests[0].rid]
    assert len(join(found.words)) < 100
    assert engine.counters["alarm_loop"] == 1


async def test_how_it_ended_is_always_looked_at() -> None:
    cut = await recognizer(MemoryTransport(growing("the end is miss", "length"))).recognize(task())
    assert cut.finish is Finish.LENGTH
    with pytest.raises(EngineError) as aborted:
        await recognizer(MemoryTransport([Part((1,), "hal", "abort", "out of memory")])).recognize(task())
    assert (aborted.value.cause, aborted.value.retryable) == ("aborted", True)
    assert "out of memory" in str(aborted.value)
    with pytest.raises(EngineError) as ended:
        await recognizer(MemoryTransport([Part((1,), "hal", None)])).recognize(task())
    assert ended.value.cause == "garbage"


async def test_a_cancelled_task_is_aborted_in_the_engine() -> None:
    transport = MemoryTransport([Part((1,), "a", None)], hang=True)
    running = asyncio.create_task(recognizer(transport).recognize(task()))
    await until(lambda: bool(transport.requests))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert transport.aborted == [transport.requests[0].rid]


async def test_a_stalled_engine_ends_at_the_deadline() -> None:
    transport = MemoryTransport([], hang=True)
    with pytest.raises(EngineError) as late:
        await recognizer(transport, deadline_s=0.02).recognize(task())
    assert (late.value.cause, late.value.retryable) == ("deadline", True)
    assert transport.aborted == [transport.requests[0].rid]


async def test_what_the_model_cannot_take_is_refused_before_it_is_sent() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    for bad, cause in (
        (task(audio=np.zeros(31 * 16_000, np.float32)), "audio"),
        (task(audio=np.array([np.nan], np.float32)), "audio"),
        (task(language="xx"), "request"),
    ):
        with pytest.raises(EngineError) as refused:
            await engine.recognize(bad)
        assert (refused.value.cause, refused.value.retryable) == (cause, False)
    assert transport.requests == []


async def test_silence_is_not_sent() -> None:
    transport = MemoryTransport(growing("Thank you."))
    engine = recognizer(transport)
    for audio in (np.zeros(48_000, np.float32), np.zeros(0, np.float32)):
        found = await engine.recognize(task(audio=audio))
        assert (found.words, found.no_speech) == ((), 1.0)
    assert transport.requests == []


async def test_a_session_is_asked_for_its_language_once() -> None:
    transport = MemoryTransport(growing("zh"))
    engine = recognizer(transport, PlainPolicy(detects=True))
    await engine.recognize(task(1))
    await engine.recognize(task(2))
    assert [request.text for request in transport.requests] == ["which?", "in zh", "in zh"]
    assert engine.counters["detection"] == 1


async def test_a_reply_that_went_astray_is_asked_for_again() -> None:
    transport = MemoryTransport(growing("elsewhere", step=20))
    await recognizer(transport).recognize(task())
    assert [request.text for request in transport.requests] == ["in None", "in en"]


async def test_short_outputs_are_not_streamed() -> None:
    transport = MemoryTransport(growing("x"))
    await recognizer(transport, PlainPolicy(budget=20)).recognize(task())
    assert transport.requests[0].stream is False
    assert "stream_interval" not in transport.requests[0].sampling


async def test_closing_refuses_new_work() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    await engine.close()
    await engine.close()
    assert transport.closed
    with pytest.raises(EngineError, match="shut down"):
        await engine.recognize(task())
    assert not await engine.healthy()
