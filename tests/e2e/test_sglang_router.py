"""Two of our processes, which share a Redis, over two real SGLang servers behind SGLang's own router: one of
each is lost in the middle of a session, and nothing with it."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
import yaml

from clients.aio import connect
from clients.captions import Captions
from engine.contract import Audio
from engine.sglang.bench.clips import distance, words
from engine.sglang.folders import serving_folder
from engine.sglang.http1 import HttpError
from streaming.wire.messages import Flushed, Start
from tests.engine.sglang.scripted import site
from tests.engine.sglang.test_router import unending
from tests.support.cluster import Crew, crew, owner, redis_server
from tests.support.data import DATA, needs_data

pytest.importorskip("redis", reason="needs the extra redis")

from redis.asyncio import Redis

from .sglang_sessions import pcm
from .sglang_site import ANSWER_S, ROOT, Child, Router
from .test_sglang_speech import read

RUNS = int(os.environ.get("SEAMSCRIBE_RUNS", "1"))
"""A front and a server are killed so often."""
WAIT_S = 900.0
"""For whatever comes at last: the machine may have much other work, or stand still for minutes."""

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.timeout(WAIT_S * (1 + RUNS)),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("sglang_router") is None, reason="SGLang has its own environment"),
    needs_data,
]

CONFIGS = ROOT / "configs"
COMPOSED = yaml.safe_load((CONFIGS / "compose.yaml").read_text("utf-8"))["services"]["router"]["command"]
FLAGS = [
    flag
    for flag in COMPOSED
    if flag.startswith("--") and not flag.startswith(("--host", "--port", "--worker"))
] + [flag for flag in COMPOSED if flag.startswith("--worker-startup")]
"""How the shipped router treats servers."""


@dataclass
class Fleet:
    """Two of each."""

    servers: list[Child]
    router: Router
    fronts: Crew
    redis: Redis

    async def whole(self) -> None:
        """Return once the router has two servers that are well, and Redis two fronts that live."""

        async def living() -> bool:
            return len(await self.redis.keys("seamscribe:p:*")) == 2

        await both(self.router)
        await until(living)

    async def mend(self) -> None:
        """Start and add what is not there, and return once it is."""
        there = await self.router.servers()
        for server in self.servers:
            if not server.runs:
                await server.start()
            elif server.url not in there:
                await self.router.add(server.url)
        await self.whole()

    async def busy(self) -> Child:
        """The server that decodes, as soon as one does."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for server in self.servers:
                    with suppress(HttpError):
                        if await server.busy():
                            return server
                await asyncio.sleep(0.005)

    async def answers(self, status: int, why: str) -> None:
        """Return once a front says so when asked whether it is ready."""

        async def told() -> bool:
            async with httpx.AsyncClient(
                base_url=self.fronts.url, trust_env=False, timeout=ANSWER_S
            ) as asking:
                answer = await asking.get("/readyz")
            return answer.status_code == status and why in answer.text

        await until(told)


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await true():  # noqa: ASYNC110 - other processes do not tell
            await asyncio.sleep(0.2)


async def both(router: Router) -> None:
    """Return once it has two servers that are well."""

    async def well() -> bool:
        return list((await router.servers()).values()) == [True, True]

    await until(well)


@asynccontextmanager
async def fleet() -> AsyncIterator[Fleet]:
    folder = serving_folder("tiny.en")
    async with AsyncExitStack() as stack:
        url = stack.enter_context(redis_server())
        servers = [await stack.enter_async_context(started(folder)) for _ in range(2)]
        await asyncio.gather(*(one.start() for one in servers))
        router = await stack.enter_async_context(Router([one.url for one in servers], FLAGS).running())
        engine = ("--engine", "sglang", "--model", "tiny.en", "--no-speakers")
        fronts = await stack.enter_async_context(
            crew(2, url, *engine, SEAMSCRIBE_ENGINE__SERVERS=router.url, PYTHONPATH=str(ROOT))
        )
        redis = await stack.enter_async_context(Redis.from_url(url))
        found = Fleet(servers, router, fronts, redis)
        await found.whole()
        yield found


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Child]:
    child = Child(folder)
    try:
        yield child
    finally:
        await child.end()


Strike = Callable[[str], Coroutine[None, None, None]]


class Missed(Exception):
    """The session was over before all was lost that should have been: it shows nothing."""


async def meeting(url: str, audio: Audio, strike: Strike | None = None) -> Captions:
    """A session that is flushed in the middle; `strike` gets its id when the rest comes in. Raises
    `Missed`."""
    captions, middle = Captions(), len(audio) // 2
    async with connect(url, Start(language="en")) as stream, asyncio.timeout(WAIT_S):
        captions.receive(stream.ready)
        await stream.send(pcm(audio[:middle]))
        await stream.flush("first")
        async for message in stream:
            captions.receive(message)
            if isinstance(message, Flushed):
                break
        before = captions.committed
        assert before
        striking = None if strike is None else asyncio.create_task(strike(stream.ready.session))
        try:
            await stream.send(pcm(audio[middle:]))
            await stream.end()
            async for message in stream:
                captions.receive(message)
            struck = striking is None or striking.done()
        finally:
            if striking is not None:
                striking.cancel()
                await asyncio.wait([striking])
        if striking is not None and not striking.cancelled():
            await striking
    assert captions.committed.startswith(before)
    assert captions.faults == []
    assert captions.error is None
    assert captions.revised == 0
    assert [gap.cause for gap in captions.gaps] == []
    assert captions.receipt is not None
    assert (captions.receipt.samples, captions.receipt.gap_samples) == (len(audio), 0)
    if not struck:
        raise Missed
    assert stream.resumes >= (strike is not None)
    return captions


def test_the_shipped_options_are_options() -> None:
    parser = argparse.ArgumentParser()
    import_module("sglang_router.router_args").RouterArgs.add_cli_args(parser)
    manifests = yaml.safe_load_all((CONFIGS / "k8s" / "engines.yaml").read_text("utf-8"))
    (router,) = (
        one for one in manifests if one["kind"] == "Deployment" and "router" in one["metadata"]["name"]
    )
    for command in (COMPOSED, router["spec"]["template"]["spec"]["containers"][0]["args"]):
        assert command[:3] == ["python", "-m", "sglang_router.launch_router"]
        parser.parse_args(command[3:])


async def test_streams_are_spread_evenly() -> None:
    """The router does not count what it streams, and asks servers for their load where SGLang 0.5.23 has no
    such page: to it the less busy of two would be any of them."""
    async with AsyncExitStack() as stack:
        sites = [await stack.enter_async_context(site(unending)) for _ in range(2)]
        router = await stack.enter_async_context(Router([one.url for one in sites], FLAGS).running())
        await both(router)
        asking = await stack.enter_async_context(
            httpx.AsyncClient(base_url=router.url, trust_env=False, timeout=ANSWER_S)
        )
        for _ in range(20):
            await stack.enter_async_context(
                asking.stream("POST", "/generate", json={"text": "", "stream": True})
            )
            one, two = (len(server.asked) for server in sites)
            assert abs(one - two) <= 1


async def test_a_front_and_a_server_are_lost_and_nothing_with_them() -> None:
    """Killed as often as is told, so that the engines' start is paid once; before that one of each is stopped
    in order and comes back. At the end, and only then, nobody is left to decode."""
    audio = read(DATA / "formats" / "jfk-44k1-stereo-24bit.flac")
    since = time.monotonic()
    async with fleet() as all:
        note(f"all up after {time.monotonic() - since:.0f} s")
        undisturbed = words((await meeting(all.fronts.url, audio)).committed)
        for lose in (drained, *[killed] * RUNS):
            await all.mend()
            since = time.monotonic()
            captions = await lost(all, audio, lose)
            assert distance(undisturbed, words(captions.committed)) <= 1, captions.committed
            note(f"{lose.__name__} within {time.monotonic() - since:.1f} s: {captions.committed}")
        await all.answers(200, "")
        (last,) = (server for server in all.servers if server.runs)
        await last.end(signal.SIGKILL)
        await all.answers(503, "engine")


async def lost(
    all: Fleet, audio: Audio, lose: Callable[[Fleet, str], Coroutine[None, None, None]]
) -> Captions:
    """What a session says that was struck; one whose decodes were over too soon is followed by another."""
    for _ in range(5):
        with suppress(Missed):
            return await meeting(all.fronts.url, audio, partial(lose, all))
        note(f"{lose.__name__}: missed")
        await all.mend()
    raise AssertionError("no decode was seen")


def note(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%X')} {text}\n")


async def drained(all: Fleet, session: str) -> None:
    """As an operator stops them, in the middle of a decode: the front by SIGTERM, the server by telling the
    router to send it nothing more."""
    server = await all.busy()
    owner(all.fronts, session).terminate()
    await all.router.remove(server.url)

    async def gone() -> bool:
        return server.url not in await all.router.servers()

    await until(gone)


async def killed(all: Fleet, session: str) -> None:
    """Both by SIGKILL: the server while it decodes for the session, then, while the other one decodes that
    again, the front."""
    front = owner(all.fronts, session)
    await (await all.busy()).end(signal.SIGKILL)
    await all.busy()
    front.kill()
