"""Several server processes over one Redis: one is killed, told to stop or frozen in mid-session, and a client
that comes back to any of the others loses nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import httpx
import psutil
import pytest

from clients.aio import Stream, connect
from clients.captions import Captions
from streaming.wire.messages import Start
from tests.support.cluster import Crew, crew, cut, until
from tests.support.redis import redis_server
from tests.support.sound import expected, s16, speech

pytestmark = pytest.mark.e2e
pytest.importorskip("redis", reason="needs the extra redis")

from streaming.cluster.redis_store import RedisStore  # noqa: E402

RUNS = int(os.environ.get("SEAMSCRIBE_RUNS", "1"))
"""Each way to lose a process so often; the figures in configs/SCALE.md are of 20."""

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


async def owner(crew: Crew, session: str) -> psutil.Process:
    """The process that has the session: the one that listens where Redis says."""
    store = RedisStore(crew.redis, "test")
    name = store.redis.hget(f"seamscribe:s:{session}", "owner").decode()
    address = store.redis.get(f"seamscribe:p:{name}").decode()
    store.close()
    port = int(address.rpartition(":")[2])
    for process in crew.processes():
        listens = {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
        if port in listens:
            return process
    raise AssertionError(f"nobody listens at {address}")


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("way", ["kill", "stop", "freeze", "cut"])
async def test_a_process_is_lost_and_nothing_with_it(redis: str, way: str, run: int) -> None:
    async with crew(2, redis) as processes, connect(processes.url, Start(label="x")) as stream:
        client = Client(stream)
        running = asyncio.create_task(client.run())
        await until(lambda: len(client.captions.transcript) >= 6 + run % 5)
        lost = await owner(processes, stream.ready.session)
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
        await until(lambda: client.captions.receipt is not None)
        if way == "freeze":
            await asyncio.sleep(1)
            lost.resume()
        await asyncio.wait_for(running, 60)
        client.check()
        if way == "freeze":
            await until(lambda: not lost.net_connections("tcp") or lost.is_running())
            await _still_as_told(processes, stream.ready.session, client)


async def _still_as_told(crew: Crew, session: str, client: Client) -> None:
    """What woke has changed nothing: the transcript is what the client was told."""
    for _ in range(4):
        await asyncio.sleep(0.5)
        async with httpx.AsyncClient(base_url=crew.url, trust_env=False) as asking:
            reply = await asking.get(f"/v1/sessions/{session}/transcript.json")
            assert reply.status_code == 200
            words = [w["text"] for s in reply.json()["segments"] for w in s["words"]]
            assert words == client.captions.committed.split()
