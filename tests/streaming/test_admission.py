"""Three times as many clients as fit, in virtual time: who is let in does not notice, the rest is told."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from engine.dispatcher import Dispatcher, DispatchSettings, Load
from engine.fake import FakeRecognizer, FakeScript
from streaming.app import observer
from streaming.observe.metrics import Histogram, Metrics
from streaming.sessions.admission import FEW, LOOKS, Admission, Recent, memory_there_is, memory_used
from streaming.sessions.capacity import BUSY
from streaming.sessions.registry import Sessions
from streaming.settings import AdmissionSettings, LimitSettings, ServerSettings
from streaming.web.server import build
from tests.support.channel import MemoryChannel
from tests.support.services import VIRTUAL, services_of
from tests.support.sound import s16, speech
from tests.support.virtual import VirtualLoop, run
from tests.support.world import END, START, World, check_end, live

SLOTS = "xxxxxxxx--" * 12  # a minute: four seconds of speech, one of silence
AUDIO = speech(SLOTS)
ENGINE = FakeScript(delay_s=0.06, per_audio_s=0.012, concurrency=2)


def server(rules: AdmissionSettings, script: FakeScript = ENGINE) -> tuple[World, Admission]:
    metrics, engine, limits = Metrics(), FakeRecognizer(script), LimitSettings(max_sessions=1000)
    dispatcher = Dispatcher(engine, DispatchSettings(), observer(metrics))
    door = Admission(rules, limits.retry_after_s, dispatcher, script.concurrency, metrics, lambda: 1 << 20)
    sessions = Sessions(ServerSettings(), limits, door=door)
    shared = {"dispatcher": dispatcher, "metrics": metrics, "sessions": sessions}
    return World(services_of(engine, limits, **shared, **VIRTUAL), engine), door


class Timed(MemoryChannel):
    """Notes when each message came."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    async def send(self, data: str | bytes) -> None:
        await super().send(data)
        self.times.append(asyncio.get_running_loop().time())

    def delays(self, began: float) -> list[float]:
        """Of every word, the seconds from its end to its being committed."""
        found: dict[int, float] = {}
        for message, at in zip(self.sent, self.times, strict=True):
            for index, word in enumerate(message.get("words", ()), message.get("first_word", 0)):
                found.setdefault(index, at - began - word["end_ms"] / 1000)
        return list(found.values())


@dataclass
class Crowd:
    """What became of those who came."""

    delays: list[float] = field(default_factory=list)
    admitted: int = 0
    refused_after: list[float] = field(default_factory=list)
    waiting: int = 0
    """Most decodes that waited at once."""


async def come(world: World, crowd: Crowd) -> None:
    """One client: a minute of speech as a microphone brings it, unless it is refused."""
    loop, channel = asyncio.get_running_loop(), Timed()
    asked = loop.time()
    connection = world.connect(channel)
    channel.say(START)
    await asyncio.sleep(0.05)
    if channel.closed is not None:
        assert channel.closed[0] == 1013
        (error,) = channel.of("error")
        assert error["code"] == "overloaded"
        assert error["retry_after_ms"] > 0
        crowd.refused_after.append(channel.times[-1] - asked)
        return
    crowd.admitted += 1
    began = loop.time()
    for start in range(0, AUDIO.size, 1600):
        channel.say(s16(AUDIO[start : start + 1600]))
        await asyncio.sleep(0.1)
    channel.say(END)
    await connection
    receipt = check_end(channel, AUDIO.size)
    assert receipt["gap_samples"] == 0
    crowd.delays += channel.delays(began)


async def offer(rules: AdmissionSettings, arrivals: list[float]) -> Crowd:
    """A client at each of these times."""
    world, door = server(rules)
    crowd = Crowd()
    async with door.watching(), asyncio.TaskGroup() as group:
        watch = group.create_task(_watch(world, crowd))
        clients = []
        for now, then in itertools.pairwise([0.0, *arrivals]):
            await asyncio.sleep(then - now)
            clients.append(group.create_task(come(world, crowd)))
        await asyncio.gather(*clients)
        watch.cancel()
    await world.all_done()
    await world.services.dispatcher.close()
    return crowd


async def _watch(world: World, crowd: Crowd) -> None:
    while True:
        crowd.waiting = max(crowd.waiting, world.services.dispatcher.load.waiting)
        await asyncio.sleep(0.25)


def p95(delays: list[float]) -> float:
    return sorted(delays)[int(0.95 * len(delays))]


UNLOADED = 1.31
"""Seconds: what `p95` says of one client alone; `test_one_client_alone` holds it to that."""


def test_one_client_alone() -> None:
    crowd = run(offer(AdmissionSettings(), [0.0]))
    assert p95(crowd.delays) == pytest.approx(UNLOADED, abs=0.01)


@pytest.mark.parametrize(
    "arrivals",
    [
        [0.0] * 24,
        [0.3 * i for i in range(24)],
        [1.5 * i for i in range(40)],
        [0.0, *(80 + 0.1 * i for i in range(24))],
        [0.0] * 4 + [90 + 0.1 * i for i in range(24)],
    ],
    ids=["at once", "in seven seconds", "in a minute", "after one", "after a few"],
)
def test_of_three_times_as_many_as_fit_those_let_in_do_not_notice(arrivals: list[float]) -> None:
    """Seven or eight fit: with all let in, 24 wait more than three seconds for their words."""
    crowd = run(offer(AdmissionSettings(), arrivals))
    assert crowd.admitted >= 4
    assert crowd.admitted + len(crowd.refused_after) == len(arrivals)
    assert p95(crowd.delays) <= 1.5 * UNLOADED
    assert max(crowd.refused_after) <= 1.0
    assert crowd.waiting <= crowd.admitted  # at most one decode of each waits: nothing piles up


@pytest.mark.parametrize(
    "arrivals", [[1.5 * i for i in range(40)], [0.0] * 4 + [90 + 0.1 * i for i in range(24)]]
)
def test_as_many_are_let_in_as_fit(arrivals: list[float]) -> None:
    """Refreshes a little rarer for all are worth one client more."""
    assert run(offer(AdmissionSettings(), arrivals)).admitted >= 8


def test_without_a_door_everybody_suffers() -> None:
    """The crowd above is one too many: else its test would prove nothing."""
    crowd = run(offer(AdmissionSettings(on=False), [0.3 * i for i in range(24)]))
    assert crowd.admitted == 24
    assert p95(crowd.delays) > 2.3 * UNLOADED


async def _closed() -> tuple[World, Admission]:
    """A server whose memory is used up."""
    world, door = server(AdmissionSettings(memory_bytes=1))
    door.look()
    return world, door


def test_a_new_client_is_refused_before_the_upgrade_and_one_that_comes_back_is_not() -> None:
    async def main() -> None:
        world, _ = await _closed()
        app = build(world.services)
        for query, refused in ((b"", True), (b"resume=1", False)):
            said: list[Any] = []

            async def receive(said: list[Any] = said) -> dict[str, Any]:
                return {"type": "websocket.connect"} if not said else {"type": "websocket.disconnect"}

            async def send(message: Any, said: list[Any] = said) -> None:
                said.append(message)

            scope = {
                "type": "websocket",
                "path": "/v1/stream",
                "raw_path": b"/v1/stream",
                "query_string": query,
                "headers": [(b"host", b"localhost")],
                "client": ("127.0.0.1", 1),
                "server": ("localhost", 80),
                "scheme": "ws",
                "subprotocols": [],
                "root_path": "",
                "extensions": {"websocket.http.response": {}},
            }
            await app(scope, receive, send)
            if refused:
                assert said[0]["status"] == 503
                assert (b"retry-after", b"5") in said[0]["headers"]
            else:
                assert said[0]["type"] == "websocket.accept"
        assert world.services.metrics.refused.value(reason="overloaded") == 1
        await world.services.dispatcher.close()

    run(main())


def test_readiness_tells_it_too() -> None:
    async def main() -> None:
        world, _ = await _closed()
        transport = httpx.ASGITransport(build(world.services))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["reason"]) == (503, "full")
        assert world.services.metrics.open.value() == 0
        await world.services.dispatcher.close()

    run(main())


def test_switched_off_it_refuses_nobody() -> None:
    async def main() -> None:
        world, door = server(AdmissionSettings(on=False, memory_bytes=1))
        door.look()
        door.admit()
        await world.services.dispatcher.close()

    run(main())


def test_recent_forgets_what_is_past() -> None:
    histogram = Histogram((1.0, 2.0, 4.0))
    recent = Recent(histogram)
    histogram.observe(0.5, FEW - 1)
    assert recent.quantile(0.95) is None
    histogram.observe(3.0, 100)
    assert recent.quantile(0.95) == pytest.approx(3.9, abs=0.1)
    for _ in range(LOOKS):
        histogram.observe(0.5, FEW)
        recent.quantile(0.95)
    assert recent.quantile(0.95) == pytest.approx(0.95, abs=0.01)


def test_memory_is_that_of_this_process() -> None:
    assert 0 < memory_used() < memory_there_is()


@pytest.mark.parametrize("stretch", [1.0, 2.0])
def test_how_much_is_used_counts_the_stretch_that_is_and_the_one_that_is_allowed(stretch: float) -> None:
    """An engine with one place that is busy for 0.2 s of each half second, refreshes half as often."""

    async def play() -> float:
        metrics = Metrics()
        engine = SimpleNamespace(load=Load(0, 0, 0.0, 0.4, 2.0, False))
        door = Admission(AdmissionSettings(stretch=stretch), 5.0, engine, 1, metrics, lambda: 1)
        for _ in range(240):
            await asyncio.sleep(0.5)
            metrics.live_engine_s += 0.2
            metrics.live_audio_s += 5.0
            door.look()
        return metrics.used.value()

    assert run(play()) == pytest.approx(0.4 * 2.0 / (BUSY * stretch), rel=0.01)


@pytest.mark.parametrize(("busy_s", "rare"), [(0.005, False), (0.37, True)])
def test_refreshes_become_rarer_where_this_process_itself_has_too_little_time(
    busy_s: float, rare: bool
) -> None:
    """It is at work for so long at a time: whatever the engine does, audio waits and words come late."""

    async def play() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)

        async def work() -> None:
            while True:
                await asyncio.sleep(0.05)
                loop.spend(busy_s)

        world, _ = server(AdmissionSettings(on=False), FakeScript(concurrency=256))
        channel = MemoryChannel()
        connection, working = world.connect(channel), asyncio.create_task(work())
        channel.say(START)
        await live(channel, AUDIO[:160_000])
        stretch = world.services.dispatcher.stretch
        working.cancel()
        channel.say(END)
        await connection
        await world.all_done()
        await world.services.dispatcher.close()
        return stretch

    assert (run(play()) > 1.5) is rare
