"""An engine's first request comes before anybody speaks, and before the service says that it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from engine.contract import EngineError, Priority
from engine.fake import FakeDetector
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.http import HttpTransport
from engine.sglang.transport import Part, Request
from engine.sglang.warming import TOKENS, first_task
from streaming import app
from streaming.settings import EngineSettings, JournalSettings, Settings
from tests.engine.adapters import MODELS
from tests.support.virtual import run
from tests.support.waiting import until

from .scripted import MemoryTransport, PlainPolicy, growing, respond, site, task


@dataclass
class Cold(MemoryTransport):
    """Answers when `warm` is set, and fails with `faults` first."""

    faults: list[str] = field(default_factory=list)
    warm: asyncio.Event = field(default_factory=asyncio.Event)

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        if self.faults:
            self.requests.append(request)
            raise EngineError(self.faults.pop(0), "not now", retryable=True)
        async for part in super().generate(request):
            await self.warm.wait()
            yield part


def recognizer(transport: MemoryTransport, **more: Any) -> SglangRecognizer:
    return SglangRecognizer(transport, PlainPolicy(), ClientSettings(model="m", **more))


async def test_it_is_not_well_before_it_has_answered() -> None:
    transport = Cold(growing("x"))
    engine = recognizer(transport)
    assert [await engine.healthy() for _ in range(3)] == [False] * 3
    await until(lambda: bool(transport.requests))
    transport.warm.set()
    await engine.warm()
    assert await engine.healthy()
    assert len(transport.requests) == 1
    assert transport.requests[0].sampling["max_new_tokens"] == TOKENS
    await engine.close()


async def test_one_that_has_served_somebody_needs_no_first_request() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    await engine.recognize(task())
    assert await engine.healthy()
    assert len(transport.requests) == 1


@pytest.mark.parametrize(("cause", "asked"), [("unreachable", 2), ("overloaded", 2), ("request", 1)])
async def test_one_that_is_not_there_is_asked_again_and_one_that_refuses_is_there(
    cause: str, asked: int
) -> None:
    transport = Cold(growing("x"), faults=[cause])
    transport.warm.set()
    engine = recognizer(transport)
    await engine.warm()
    if asked > 1:
        assert not await engine.healthy()
        await engine.warm()
    assert await engine.healthy()
    assert len(transport.requests) == asked


def test_one_that_compiles_for_longer_than_requests_are_waited_for_is_asked_until_it_answers() -> None:
    """SGLang took 98 s on an H200: it was taken for well after 20, and all who spoke waited for the rest."""

    async def body() -> None:
        transport = Cold(growing("x"), faults=["stalled"] * 4)
        transport.warm.set()
        engine = recognizer(transport)
        await engine.warm()
        assert len(transport.requests) == 5
        assert await engine.healthy()
        await engine.close()

    run(body())


def test_one_of_two_that_compiles_is_waited_for() -> None:
    async def body() -> None:
        transport = Cold(growing("x"), faults=["stalled"])
        transport.warm.set()
        engine = recognizer(transport, engines=2)
        await engine.warm()
        assert len(transport.requests) == 4
        await engine.close()

    run(body())


def test_one_that_never_answers_holds_the_start_up_for_three_minutes() -> None:
    async def body() -> None:
        engine = recognizer(Cold(growing("x")))
        await asyncio.wait_for(engine.warm(), 181)
        assert not await engine.healthy()
        await engine.close()

    run(body())


async def test_closing_ends_it() -> None:
    transport = Cold(growing("x"))
    engine = recognizer(transport)
    waits = asyncio.create_task(engine.warm())
    await until(lambda: bool(transport.requests))
    await engine.close()
    with pytest.raises(asyncio.CancelledError):
        await waits


async def test_every_scheduler_is_asked() -> None:
    transport = MemoryTransport(growing("x"))
    await recognizer(transport, schedulers=3).warm()
    assert sorted(request.scheduler for request in transport.requests) == [0, 1, 2]  # type: ignore[type-var]


async def test_every_server_is_asked() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, b'{"text": "x", "output_ids": [1], "meta_info": {"finish_reason": {"type": "stop"}}}')

    async with site(answer) as one, site(answer) as two, site(answer) as apart:
        transport = HttpTransport([one.url, two.url], recordings=[apart.url])
        settings = ClientSettings(model="m", engines=3, recording_engines=1)
        engine = SglangRecognizer(transport, PlainPolicy(20), settings)
        await engine.warm()
        assert (len(one.asked), len(two.asked), len(apart.asked)) == (1, 1, 1)
        await engine.recognize(task(priority=Priority.BATCH))
        assert len(apart.asked) == 2
        await engine.close()


@pytest.mark.parametrize(
    ("servers", "recordings", "well"),
    [(["live", "dead"], [], True), (["live"], ["dead"], True), (["dead"], ["live"], False)],
)
async def test_it_is_well_as_soon_as_one_serves_who_speaks(
    servers: list[str], recordings: list[str], well: bool
) -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, b'{"text": "x", "output_ids": [1], "meta_info": {"finish_reason": {"type": "stop"}}}')

    async with site(answer) as live:
        urls = {"live": live.url, "dead": "http://127.0.0.1:9"}
        transport = HttpTransport([urls[s] for s in servers], recordings=[urls[s] for s in recordings])
        settings = ClientSettings(
            model="m", engines=len(servers) + len(recordings), recording_engines=len(recordings)
        )
        engine = SglangRecognizer(transport, PlainPolicy(20), settings)
        await engine.warm()
        assert await engine.healthy() is well
        await engine.close()


@pytest.mark.parametrize("model", MODELS)
async def test_every_model_can_be_asked(model: str) -> None:
    transport = MemoryTransport(growing("x"))
    engine = SglangRecognizer(transport, MODELS[model].policy(), ClientSettings(model="m"))
    await engine.warm()
    assert await engine.healthy()
    # What draws its tokens is compiled by itself, and not before somebody needs it.
    usual, drawn = (request.sampling["temperature"] for request in transport.requests)
    assert usual == 0.0
    assert isinstance(drawn, float)
    assert drawn > 0.0


def test_the_first_task_is_not_silence() -> None:
    audio = first_task(None).audio
    assert 0.01 < float(np.abs(audio).mean()) < float(np.abs(audio).max()) < 1.0


async def test_the_service_has_it_done_before_it_takes_anybody(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = MemoryTransport(growing("x"))
    monkeypatch.setitem(app.ENGINES, "here", lambda _: (recognizer(transport), FakeDetector()))
    engine = EngineSettings(kind="here", max_window_s=10.0)
    settings = Settings(engine=engine, journal=JournalSettings(on=False))
    async with app.running(settings) as services:
        assert len(transport.requests) == 1
        assert await services.pulse.beats()
