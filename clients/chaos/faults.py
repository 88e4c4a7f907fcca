"""Faults of the line and of clients, each against a server that stays as it is. Every kind is one scenario:
(base URL, its own random numbers, its trial)."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from clients.captions import Captions
from clients.dialing import ClientError, Deadlines, Dialer, Disconnected, receive
from streaming.wire.errors import CloseCode
from streaming.wire.messages import End, Error, Flush, Ready, Resume, Start

from .line import Fault, How, line
from .talk import CODEC, TRIES, Trial, converse, follow

BREAKS: tuple[How, How] = ("close", "reset")


def dialer(url: str) -> Dialer:
    """For connections that we lead by hand."""
    return Dialer(url, CODEC, Deadlines())


async def meet(url: str, start: Start) -> tuple[ClientConnection, Ready]:
    """A session, led by hand; who is refused for want of room comes again. Raises `ClientError`."""
    for attempt in range(TRIES):
        try:
            return await dialer(url).dial(start)
        except ClientError as error:
            if not error.retryable or attempt == TRIES - 1:
                raise
        await asyncio.sleep(min(10.0, 0.5 * 2**attempt))
    raise AssertionError("the last try has raised")


async def cut(url: str, drawn: random.Random, trial: Trial) -> None:
    """Connections end at any byte, up or down, with a close of the socket or a reset."""
    scene = trial.draw(drawn)
    faults: list[Fault] = []
    for _ in range(drawn.randint(1, 6)):
        most = len(scene.data) // 3
        up, down = drawn.randint(1, most), drawn.randint(1, 12_000)
        how = drawn.choice(BREAKS)
        faults.append(Fault(up=up, how=how) if drawn.random() < 0.5 else Fault(down=down, how=how))
    async with line(url, faults) as broken:
        await converse(broken.url, scene, drawn, trial)
    trial.struck += broken.struck


async def half_open(url: str, drawn: random.Random, trial: Trial) -> None:
    """The line falls silent, and both ends believe in it: only the missing beat tells."""
    scene = trial.draw(drawn)
    at = drawn.randint(2_000, len(scene.data) // 2)
    fault = (
        Fault(up=at, how="silence") if drawn.random() < 0.5 else Fault(down=at % 8_000 + 800, how="silence")
    )
    async with line(url, [fault]) as broken:
        await converse(broken.url, scene, drawn, trial)
    trial.struck += broken.struck


async def slow(url: str, drawn: random.Random, trial: Trial) -> None:
    """The client, or a reader beside it, reads only a few bytes a second for a while."""
    scene = trial.draw(drawn)
    fault = Fault(down=drawn.randint(4_000, 20_000), how="stall", crawl=drawn.randint(800, 4_000))
    async with line(url, [fault]) as broken:
        await converse(broken.url, scene, drawn, trial)
    trial.struck += broken.struck


async def burst(url: str, drawn: random.Random, trial: Trial) -> None:
    """Nothing passes for seconds, then everything at once."""
    scene = trial.draw(drawn)
    at = drawn.randint(2_000, len(scene.data) // 2)
    fault = Fault(up=at, how="stall", stall_s=drawn.uniform(1.0, 8.0))
    async with line(url, [fault]) as broken:
        await converse(broken.url, scene, drawn, trial)
    trial.struck += broken.struck


async def none(url: str, drawn: random.Random, trial: Trial) -> None:
    """Nothing but a client."""
    await converse(url, trial.draw(drawn), drawn, trial)


async def plain(url: str, drawn: random.Random, trial: Trial) -> None:
    """Nothing but a client: the faults are the server's (its engine stalls and fails)."""
    await none(url, drawn, trial)
    trial.struck += 1


async def reader(url: str, drawn: random.Random, trial: Trial) -> None:
    """A reader beside the speaker is cut off again and again, and comes in anew."""
    scene, captions, shown = trial.draw(drawn), Captions(), Captions()
    faults = [
        Fault(down=drawn.randint(1, 6_000), how=drawn.choice(BREAKS)) for _ in range(drawn.randint(1, 8))
    ]
    async with line(url, faults) as broken:
        socket, ready = await meet(url, scene.start)
        captions.receive(ready)
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow(broken.url, ready, shown))
            tasks.create_task(hear(socket, captions))
            await say(socket, scene.data, drawn, pause_s=0.02)
            await socket.send(CODEC.encode_client(End()))
        await socket.close()
        trial.resumes += following.result()
    trial.struck += broken.struck
    trial.judge(scene, captions)
    trial.judge(scene, shown)


async def takeover(url: str, drawn: random.Random, trial: Trial) -> None:
    """The session is taken over by a newer connection, again and again, while older ones go on sending what
    they still had: audio that the newer one sends too."""
    scene, captions = trial.draw(drawn), Captions()
    socket, ready = await meet(url, scene.start)
    captions.receive(ready)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(drawn.randint(1, 4)):
            hearing = asyncio.create_task(hear(socket, captions))
            rest = scene.after(ready.next_sample)
            some = drawn.randint(0, len(rest) // 2)
            await say(socket, rest[:some], drawn)
            hearing.cancel()
            await asyncio.wait([hearing])
            older = socket
            resume = Resume(ready.session, ready.token, captions.seq)
            tasks.create_task(_haunt(older, rest[some:], drawn, trial))
            socket, ready = await dialer(url).dial(resume)
            captions.receive(ready)
            trial.struck += 1
            trial.resumes += 1
        tasks.create_task(hear(socket, captions))
        await say(socket, scene.after(ready.next_sample), drawn)
        await socket.send(CODEC.encode_client(End()))
    await socket.close()
    trial.judge(scene, captions)


async def ragged(url: str, drawn: random.Random, trial: Trial) -> None:
    """Packets of one byte and of none, fragments, pings and flushes between them in any order, and after a
    resume flushes and the end that were said before."""
    scene, captions = trial.draw(drawn, 4.0, 10.0), Captions()
    socket, ready = await meet(url, scene.start)
    captions.receive(ready)
    hearing = asyncio.create_task(hear(socket, captions))
    half = len(scene.data) // 2 // scene.stride * scene.stride
    said: list[str] = []
    await say(socket, scene.data[:half], drawn, ragged=True, flushes=said)
    socket.transport.abort()
    await asyncio.wait([hearing])
    socket, ready = await dialer(url).dial(Resume(ready.session, ready.token, captions.seq))
    captions.receive(ready)
    trial.resumes += 1
    trial.struck += 1
    hearing = asyncio.create_task(hear(socket, captions))
    known = {flushed.id for flushed in captions.flushed}
    for id in said:  # at least those of which no answer came are said again, where they may have been lost
        if id not in known or drawn.random() < 0.5:
            await socket.send(CODEC.encode_client(Flush(id)))
    await say(socket, scene.after(ready.next_sample), drawn, ragged=True, flushes=said)
    await socket.send(CODEC.encode_client(End()))
    await asyncio.wait([hearing])
    await socket.close()
    answered = [flushed.id for flushed in captions.flushed]
    if sorted(answered) != sorted(said):
        trial.faults.append(f"flushes {said} were answered with {answered}")
    trial.judge(scene, captions)


async def hear(socket: ClientConnection, captions: Captions) -> None:
    """Read until the connection ends."""
    with suppress(Disconnected):
        while True:
            captions.receive(await receive(socket, CODEC, 60.0))


async def say(
    socket: ClientConnection,
    data: bytes,
    drawn: random.Random,
    *,
    pause_s: float = 0.005,
    ragged: bool = False,
    flushes: list[str] | None = None,
) -> None:
    """Send audio in pieces of any size; what cannot be sent any more is for the reading side to explain."""
    at = 0
    with suppress(ConnectionClosed):
        while at < len(data):
            size = drawn.choice([1, 2, 3, 331, 8_000, 20_000]) if ragged else drawn.randint(320, 20_000)
            piece = data[at : at + size]
            at += size
            if ragged and drawn.random() < 0.3:
                await socket.send([piece[: size // 2], piece[size // 2 :], b""])
            else:
                await socket.send(piece)
            if ragged and drawn.random() < 0.1:
                await socket.send(b"")
                await socket.ping()
            if flushes is not None and drawn.random() < 0.05:
                flushes.append(f"f{len(flushes)}")
                await socket.send(CODEC.encode_client(Flush(flushes[-1])))
            await asyncio.sleep(pause_s)


async def _haunt(socket: ClientConnection, data: bytes, drawn: random.Random, trial: Trial) -> None:
    """An older connection that does not know yet: it must be told so, and go."""
    sending = asyncio.create_task(say(socket, data, random.Random(drawn.random())))
    last = None
    try:
        while True:
            last = await receive(socket, CODEC, 60.0)
    except Disconnected as error:
        told = isinstance(last, Error) and last.code == "replaced"
        if not told or error.code != f"close_{int(CloseCode.REPLACED)}":
            trial.faults.append(f"an older connection was not told that it is replaced, but {last}: {error}")
    finally:
        sending.cancel()
        await asyncio.wait([sending])
        await socket.close()
