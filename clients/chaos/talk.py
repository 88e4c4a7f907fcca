"""Clients as they should be: one that speaks a scene and comes back by itself, one that only reads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import WebSocketException

from clients.aio import ClientError, Stream, connect
from clients.captions import Captions
from streaming.wire.codec import JSON_PROTOCOL, MSGPACK_PROTOCOL, JsonCodec
from streaming.wire.messages import Ready

from .scene import Scene, breaches, draw, edits

Draw = Callable[..., Scene]
"""As `scene.draw`."""
CODEC = JsonCodec()
TRIES = 8


@dataclass(slots=True)
class Trial:
    """One scenario: what it speaks, and what it saw."""

    draw: Draw = draw
    speeds: tuple[float | None, ...] = (5.0, 10.0, 20.0, None)
    """Times real time; None: as fast as the server reads."""
    engine: tuple[str, ...] = ("--engine", "fake")
    """What a server of its own is started with."""

    faults: list[str] = field(default_factory=list)
    struck: int = 0
    """Faults that came true: cuts, kills, stalls and the like."""
    resumes: int = 0
    sessions: int = 0
    receipts: int = 0
    """Sessions whose receipt came and is complete."""
    words: int = 0
    """Committed words seen."""
    expected: int = 0
    apart: int = 0
    """Where only a run without faults tells the words: so many it had, and so many differ from it."""

    def judge(self, scene: Scene, captions: Captions, *, whole: bool = True) -> None:
        """Count one session."""
        found = breaches(scene, captions, whole=whole)
        self.faults += found
        self.sessions += 1
        self.words += len(captions.transcript)
        if whole and scene.reference:
            self.expected += len(scene.reference)
            self.apart += edits(scene.reference, captions.committed.split())
        self.receipts += captions.receipt is not None and not any("receipt" in fault for fault in found)


async def converse(
    url: str,
    scene: Scene,
    drawn: random.Random,
    trial: Trial,
    *,
    talk_s: float | None = None,
    flushes: bool = True,
) -> Captions:
    """Speak all of the scene in pieces of any size, with flushes in between, in about `talk_s` seconds; read
    to the end and judge."""
    captions = Captions()
    speed = scene.seconds / talk_s if talk_s else drawn.choice(trial.speeds)
    protocol = drawn.choice([JSON_PROTOCOL, MSGPACK_PROTOCOL])
    asked: list[str] = []
    try:
        for attempt in range(TRIES):
            try:
                async with connect(url, scene.start, protocol=protocol) as stream:
                    captions.receive(stream.ready)
                    await _both(stream, scene, drawn, speed, captions, asked if flushes else None)
                    trial.resumes += stream.resumes
                    break
            except ClientError as error:
                # Before `ready` nothing was promised: a broken connection means to begin anew.
                if captions.ready is not None or not error.retryable or attempt == TRIES - 1:
                    raise
                # So is a refusal for want of room, as servers at their limit say it.
                await asyncio.sleep(min(10.0, drawn.uniform(0.1, 1.0) * 2**attempt))
    except ClientError as error:
        trial.faults.append(f"lost: {error}")
    answered = [flushed.id for flushed in captions.flushed]
    if captions.receipt is not None and answered != asked:
        trial.faults.append(f"flushes {asked} were answered with {answered}")
    trial.judge(scene, captions)
    return captions


async def _both(
    stream: Stream,
    scene: Scene,
    drawn: random.Random,
    speed: float | None,
    captions: Captions,
    flushes: list[str] | None,
) -> None:
    speaking = asyncio.create_task(_speak(stream, scene, drawn, speed, flushes))
    try:
        async for message in stream:
            captions.receive(message)
    finally:
        speaking.cancel()
        await asyncio.wait([speaking])


async def _speak(
    stream: Stream, scene: Scene, drawn: random.Random, speed: float | None, flushes: list[str] | None
) -> None:
    with suppress(ClientError):  # the reading side has the reason
        at, begun = 0, asyncio.get_running_loop().time()
        while at < len(scene.data):
            size = drawn.choice(
                [drawn.randint(1, 400), drawn.randint(400, 6_400), drawn.randint(6_400, 40_000)]
            )
            await stream.send(scene.data[at : at + size])
            at += size
            if flushes is not None and drawn.random() < 0.03:
                flushes.append(f"f{len(flushes)}")
                await stream.flush(flushes[-1])
            due = begun + at / len(scene.data) * scene.seconds / speed if speed else 0.0
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        await stream.end()


async def follow(url: str, ready: Ready, captions: Captions) -> int:
    """Read a session to its end, coming back as often as it takes; returns how often that was. Ends only by
    cancellation where the server never ends the session."""
    base = url.replace("http", "ws", 1)
    for again in range(10_000):
        address = f"{base}/v1/sessions/{ready.session}/events?token={ready.read_token}&after={captions.seq}"
        with suppress(OSError, WebSocketException):
            async with open_socket(address, proxy=None, max_size=1 << 24, compression=None) as socket:
                async for data in socket:
                    message = CODEC.decode_server(data)
                    if not (isinstance(message, Ready) and captions.ready):  # each connection begins with it
                        captions.receive(message)
                return again
        if captions.ended:
            return again
        await asyncio.sleep(0.2)
    raise AssertionError("no session lives so long")
