"""Several server processes over one Redis: one is killed, told to stop or frozen in mid-session, and a client
that comes back to any of the others loses nothing."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from clients.aio import Stream, connect
from clients.captions import Captions
from streaming.wire.codec import JsonCodec
from streaming.wire.messages import Start
from tests.support.cluster import Crew, crew, cut, owner, until
from tests.support.keys import KEYS, SPEAK
from tests.support.redis import redis_server, running_redis
from tests.support.sound import expected, s16, speech

pytestmark = pytest.mark.e2e
pytest.importorskip("redis", reason="needs the extra redis")

RUNS = int(os.environ.get("SEAMSCRIBE_RUNS", "1"))
"""Each way to lose a process so often."""

SLOTS = "xxx...xxxx..xx...xxxxxx....x.xx..."
DATA = s16(speech(SLOTS))
PACKET = 3200


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with redis_server() as url:
        yield url


class Client:
    """Speaks `SLOTS` at eight times its speed, and keeps what it hears."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.captions = Captions()
        self.hold = asyncio.Event()
        self.hold.set()

    async def speak(self) -> None:
        for at in range(0, len(DATA), PACKET):
            await self.hold.wait()
            await self.stream.send(DATA[at : at + PACKET])
            await asyncio.sleep(0.0125)
        await self.stream.end()

    async def run(self) -> None:
        self.captions.receive(self.stream.ready)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.speak())
            async for message in self.stream:
                self.captions.receive(message)

    def check(self) -> None:
        """Every word, once, in its place, and an account without a gap."""
        captions = self.captions
        assert captions.faults == []
        assert captions.error is None
        assert captions.revised == 0
        assert captions.committed.split() == expected(SLOTS)
        assert captions.receipt is not None
        assert (captions.receipt.samples, captions.receipt.gap_samples) == (8000 * len(SLOTS), 0)


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("way", ["kill", "stop", "freeze", "cut"])
async def test_a_process_is_lost_and_nothing_with_it(redis: str, way: str, run: int) -> None:
    async with crew(2, redis) as processes, connect(processes.url, Start(label="x")) as stream:
        client = Client(stream)
        running = asyncio.create_task(client.run())
        await until(lambda: len(client.captions.transcript) >= 6 + run % 5)
        lost = owner(processes, stream.ready.session)
        match way:
            case "kill":
                lost.kill()
            case "stop":
                lost.terminate()
            case "freeze":
                lost.suspend()
                cut(stream)
            case "cut":  # the process lives: whoever the client comes back to leads it there
                cut(stream)
        await until(lambda: stream.resumes >= 1)
        if way == "freeze":
            # It wakes while its session goes on elsewhere, or after that has ended.
            await until(lambda: run % 2 == 0 or client.captions.receipt is not None)
            lost.resume()
        await asyncio.wait_for(running, 60)
        client.check()
        if way == "freeze":
            await asyncio.sleep(2)
            await _still_as_told(processes, stream.ready.session, client)


async def _still_as_told(crew: Crew, session: str, client: Client) -> None:
    """The transcript is what the client was told, whichever process is asked."""
    for _ in range(6):
        async with httpx.AsyncClient(base_url=crew.url, trust_env=False) as asking:
            reply = await asking.get(f"/v1/sessions/{session}/transcript.json")
            assert reply.status_code == 200
            words = [w["text"] for s in reply.json()["segments"] for w in s["words"]]
            assert words == client.captions.committed.split()


async def test_whoever_is_asked_leads_to_the_process_that_has_the_session(redis: str) -> None:
    async with crew(2, redis) as processes, connect(processes.url, Start(label="x")) as stream:
        client, session = Client(stream), stream.ready.session
        running = asyncio.create_task(client.run())
        await until(lambda: len(client.captions.transcript) >= 4)
        client.hold.clear()
        there = f"{processes.url}/v1/sessions/{session}"
        readers = [await read(processes.url, session, stream.ready.read_token) for _ in range(6)]
        for _ in range(6):
            async with httpx.AsyncClient(trust_env=False) as asking:
                kept = await asking.get(f"{there}/transcript.txt")
                assert kept.text.split()[-4:] == client.captions.committed.split()[-4:]
                assert (await asking.put(f"{there}/speakers/9", json={"name": "Ann"})).status_code == 404
                assert (await asking.delete(there)).status_code == 409
                listed = (await asking.get(f"{processes.url}/v1/sessions")).json()["sessions"]
                assert {"live"} == {one["state"] for one in listed if one["session"] == session}
        client.hold.set()
        await asyncio.wait_for(running, 60)
        client.check()
        for reader in readers:
            assert await words_of(reader) == expected(SLOTS)
        async with httpx.AsyncClient(trust_env=False) as asking:
            assert (await asking.delete(there)).status_code == 204
        for _ in range(6):
            async with httpx.AsyncClient(trust_env=False) as asking:
                assert (await asking.get(f"{there}/transcript.txt")).status_code == 404


async def read(url: str, session: str, token: str) -> ClientConnection:
    """A reader, at whichever process takes it."""
    place = f"ws{url.removeprefix('http')}/v1/sessions/{session}/events?token={token}&after=0"
    return await websocket(place, proxy=None)


async def words_of(reader: ClientConnection) -> list[str]:
    """What it is told up to the end, partial texts included."""
    captions, partial = Captions(), False
    codec = JsonCodec()
    with suppress(ConnectionClosed):
        while True:
            message = codec.decode_server(await reader.recv())
            captions.receive(message)
            partial = partial or bool(getattr(message, "partial", ""))
    assert reader.close_code == 1000
    assert captions.faults == []
    assert partial
    return captions.committed.split()


async def test_redis_goes_and_comes_back_and_no_session_notices() -> None:
    with ExitStack() as stack:
        # Not pytest's folder: a socket's path has 108 bytes at most.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redis")))
        url, server = stack.enter_context(running_redis(folder, "--appendonly", "yes"))
        required = {"SEAMSCRIBE_JOURNAL__REQUIRED": "true"}
        async with crew(2, url, **required) as processes, connect(processes.url) as stream:
            client = Client(stream)
            running = asyncio.create_task(client.run())
            await until(lambda: len(client.captions.transcript) >= 4)
            async with httpx.AsyncClient(base_url=processes.url, trust_env=False) as asking:
                server.kill()
                server.wait()
                said = len(client.captions.transcript)
                await until(lambda: len(client.captions.transcript) >= said + 2)
                client.hold.clear()
                await _until_answered(asking, "/readyz", 503)
                gone = await asking.get("/v1/sessions")
                assert (gone.status_code, "journal" in gone.text) == (503, True)
                (folder / "r.sock").unlink()
                stack.enter_context(running_redis(folder, "--appendonly", "yes"))
                client.hold.set()
                await asyncio.wait_for(running, 60)
                client.check()
                assert stream.resumes == 0
                await _until_answered(asking, "/readyz", 200)
            await _still_as_told(processes, stream.ready.session, client)


async def test_redis_loses_all_it_had_and_no_session_is_lost_with_it() -> None:
    """It kept nothing on its disk, and is started anew while people speak; then their process is killed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redis")))
        url, server = stack.enter_context(running_redis(folder))
        async with crew(2, url) as processes, connect(processes.url, Start(label="x")) as stream:
            client = Client(stream)
            running = asyncio.create_task(client.run())
            await until(lambda: len(client.captions.transcript) >= 4)
            server.kill()
            server.wait()
            (folder / "r.sock").unlink()
            stack.enter_context(running_redis(folder))
            said = len(client.captions.transcript)
            await until(lambda: len(client.captions.transcript) >= said + 2)
            client.hold.clear()
            await until(lambda: _listed(url, stream.ready.session))
            client.hold.set()
            owner(processes, stream.ready.session).kill()
            await asyncio.wait_for(running, 60)
            client.check()
            assert stream.resumes >= 1
            await _still_as_told(processes, stream.ready.session, client)


def _listed(url: str, session: str) -> bool:
    from streaming.cluster.redis_store import RedisStore

    store = RedisStore(url, "test")
    try:
        return [(summary.id, summary.elsewhere) for summary in store.page(9)] == [(session, True)]
    finally:
        store.close()


async def _until_answered(asking: httpx.AsyncClient, path: str, status: int) -> None:
    async with asyncio.timeout(30):
        while (await asking.get(path)).status_code != status:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)


async def test_keys_have_their_limits_and_tokens_in_all_processes(redis: str) -> None:
    bot = {
        "SEAMSCRIBE_AUTH__KEYS__BOT__SHA256": KEYS["bot"].sha256,
        "SEAMSCRIBE_AUTH__KEYS__BOT__SCOPES": "speak",
        "SEAMSCRIBE_AUTH__KEYS__BOT__MAX_SESSIONS": "8",
    }
    async with crew(2, redis, **bot) as processes, AsyncExitStack() as stack:
        url = f"{processes.url}/v1/tokens"
        place = f"ws{processes.url.removeprefix('http')}/v1/stream"

        async def came() -> dict[str, Any]:
            """What is said to who comes with a new token, a connection each for making and using it."""
            headers = {"authorization": f"Bearer {SPEAK}"}
            async with httpx.AsyncClient(trust_env=False, headers=headers) as asking:
                token = (await asking.post(url)).json()["token"]
            offered = [Subprotocol("seamscribe.v1.json"), Subprotocol(f"seamscribe.token.{token}")]
            client = websocket(place, proxy=None, subprotocols=offered)
            socket = await stack.enter_async_context(client)
            await socket.send('{"type": "start"}')
            return dict(json.loads(await socket.recv()))

        said = [await came() for _ in range(10)]
        assert [one["type"] for one in said] == ["ready"] * 8 + ["error"] * 2
        assert {one["code"] for one in said[8:]} == {"key_limit"}
        homes = {owner(processes, one["session"]).pid for one in said[:8]}
        assert len(homes) == 2, "or this shows nothing"
