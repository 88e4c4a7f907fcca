"""Whether the server lives, and whether it is ready for one more client: two questions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.borders import Bordered
from engine.contract import EngineError
from engine.fake import FakeRecognizer
from streaming.app import narrowed, pulse_of
from streaming.observe.pulse import AGAIN_S, PATIENCE_S, Pulse
from streaming.sessions.history import History
from streaming.sessions.services import Services
from streaming.settings import JournalSettings
from streaming.web.server import build
from tests.streaming.test_journal import begun, journaling
from tests.support.virtual import run
from tests.support.waiting import until
from tests.support.world import START, World, serving


async def ready(services: Services) -> Any:
    """What /readyz says why not; checks that status and body agree, and that the process is well anyhow."""
    transport = httpx.ASGITransport(build(services))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answer = await http.get("/readyz")
        assert (await http.get("/healthz")).text == "ok\n"
    body = answer.json()
    assert (answer.status_code == 200) == body["ready"] == (body["reason"] is None)
    assert answer.status_code in (200, 503)
    assert body["sessions"] == services.sessions.active
    return body["reason"]


class Beating(FakeRecognizer):
    """An engine that can tell whether it lives."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = True
        self.asked = 0
        self.slow_s = 0.0
        self.error: Exception | None = None

    async def healthy(self) -> bool:
        self.asked += 1
        await asyncio.sleep(self.slow_s)
        if self.error is not None:
            raise self.error
        return self.alive


def test_ready_until_full_and_until_draining() -> None:
    async def body(world: World) -> None:
        assert await ready(world.services) is None
        client = world.client()
        client.say(START)
        await asyncio.sleep(0.1)
        assert await ready(world.services) == "full"
        draining = asyncio.create_task(world.services.sessions.drain(5.0))
        await asyncio.sleep(0)
        assert await ready(world.services) == "draining"
        assert await draining
        assert world.services.sessions.active == 0
        assert await ready(world.services) == "draining"

    serving(body, max_sessions=1)


def test_not_ready_while_the_engine_is_dead() -> None:
    engine = Beating()

    async def body(world: World) -> None:
        services = replace(world.services, pulse=pulse_of(narrowed(Bordered(engine), 10.0)))
        assert await ready(services) is None
        engine.alive = False
        assert await ready(services) is None, "an answer holds for a while"
        await asyncio.sleep(AGAIN_S)
        assert await ready(services) == "engine"
        engine.alive = True
        await asyncio.sleep(AGAIN_S)
        assert await ready(services) is None

    serving(body)


@pytest.mark.parametrize("error", [EngineError("closed", "x", retryable=False), ConnectionError()])
def test_an_engine_that_cannot_be_asked_is_dead(error: Exception) -> None:
    async def main() -> None:
        engine = Beating()
        engine.error = error
        assert not await Pulse(engine.healthy).beats()

    run(main())


def test_however_many_ask_the_engine_is_asked_once_and_not_waited_for() -> None:
    async def main() -> None:
        engine, loop = Beating(), asyncio.get_running_loop()
        engine.slow_s = 60.0
        pulse = Pulse(engine.healthy)
        gone = asyncio.create_task(pulse.beats())
        await asyncio.sleep(0.5)
        gone.cancel()  # who asked first does not wait; the others do
        assert await asyncio.gather(*(pulse.beats() for _ in range(100))) == [False] * 100
        assert loop.time() == pytest.approx(PATIENCE_S, abs=0.01)
        assert engine.asked == 1

    run(main())


def test_not_ready_while_a_journal_that_is_required_fails() -> None:
    class Failing(History):
        def __init__(self) -> None:
            """Of a disk that takes nothing."""

        @property
        def wanting(self) -> bool:
            return True

    async def body(world: World) -> None:
        assert await ready(replace(world.services, history=Failing())) == "journal"

    serving(body)


def test_an_engine_that_does_not_say_lives() -> None:
    async def main() -> None:
        assert await pulse_of(FakeRecognizer()).beats()

    run(main())


@pytest.mark.parametrize("required", [True, False])
async def test_a_journal_that_fails_counts_where_it_is_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    monkeypatch.setattr("streaming.kept.journal.AGAIN_S", 0.01)
    async with journaling(tmp_path) as (journal, disk, metrics):
        assert metrics.journal_ok.value() == 1, "before anything is written"
        history = History(journal, JournalSettings(required=required))
        assert not history.wanting
        disk.fails = "database or disk is full"
        recorder = begun(journal)
        await until(lambda: journal.failing)
        assert history.wanting == required
        disk.fails = None
        await recorder.on_disk(0)
        await until(lambda: not journal.failing)
        assert not history.wanting
