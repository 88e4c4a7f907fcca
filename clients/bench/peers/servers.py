"""How each server is started and spoken to. Every one plays a stream at speed 1, in packets of 100 ms."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from clients.aio import ClientError
from clients.audio import BYTES_PER_SECOND, packets
from clients.bench.capacity import open_door
from clients.bench.load import Script
from clients.launch import serving
from clients.play import Arrival, Pace, Playback, play
from streaming.wire.messages import Start

from .judge import Heard

PACKET_S = 0.1
START_S = 180.0
"""A peer that loads its model is ready within this."""
LAST_WORDS_S = 120.0
"""The rest of its text comes within this, or it is lost."""
STOP_S = 15.0


class Peer(Protocol):
    """A server and the way to speak to it."""

    @property
    def name(self) -> str: ...

    def running(self, streams: int) -> AbstractAsyncContextManager[tuple[str, int]]:
        """Start it for so many streams: its address and process id."""
        ...

    async def speak(self, url: str, said: Script) -> Heard:
        """Play one stream."""
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """Seamscribe, over its own protocol; voices are not told apart, as the others do not either."""

    model: str
    language: str
    name: str = "seamscribe"

    @asynccontextmanager
    async def running(self, streams: int) -> AsyncIterator[tuple[str, int]]:
        given = ["--engine", "local", "--model", self.model, "--no-speakers"]
        with open_door(given, streams) as arguments:
            async with serving(arguments) as child:
                yield child.url, child.pid

    async def speak(self, url: str, said: Script) -> Heard:
        heard, playback = Heard(), Playback("")

        def listen(playback: Playback, arrival: Arrival) -> None:
            captions = playback.captions
            heard.tell(captions.committed, captions.partial, arrival.at_s)

        try:
            start = Start(language=self.language)
            await play(playback, url, start, said.pieces(), Pace(packet_s=PACKET_S), listen)
        except ClientError as error:
            playback.failure = str(error)
        heard.sent_s, heard.faults = playback.sent_s, playback.faults()
        return heard


@dataclass(frozen=True, slots=True)
class WhisperLiveKit:
    """Its server of that name, with the agreement of two decodes over the same weights: the way in which it
    runs without a GPU and without a download; everything else as it comes."""

    program: Path
    weights: Path
    language: str
    name: str = "WhisperLiveKit"

    @asynccontextmanager
    async def running(self, streams: int) -> AsyncIterator[tuple[str, int]]:
        port = free_port()
        arguments = [
            "--host=127.0.0.1",
            f"--port={port}",
            "--backend-policy=localagreement",
            "--backend=faster-whisper",
            f"--model_dir={self.weights}",
            f"--lan={self.language}",
            "--pcm-input",
            "--warmup-file=",
        ]
        async with child([str(self.program), *arguments], f"http://127.0.0.1:{port}/") as pid:
            yield f"ws://127.0.0.1:{port}/asr", pid

    async def speak(self, url: str, said: Script) -> Heard:
        heard, loop = Heard(), asyncio.get_running_loop()
        try:
            async with connect(url, max_size=None, proxy=None) as line, asyncio.TaskGroup() as group:
                zero = loop.time()
                sender = group.create_task(_send(line, said, heard, zero))
                while True:
                    # While audio goes out it may be silent for as long as the audio lasts.
                    wait = None if not sender.done() else LAST_WORDS_S
                    message = json.loads(await asyncio.wait_for(line.recv(), wait))
                    if message.get("type") == "ready_to_stop":
                        break
                    lines = message.get("lines")
                    if lines is not None:
                        committed = " ".join(part.get("text") or "" for part in lines)
                        heard.tell(committed, message.get("buffer_transcription") or "", loop.time() - zero)
        except (OSError, TimeoutError, WebSocketException, ExceptionGroup) as error:
            heard.faults.append(f"{type(error).__name__}: {error}")
        return heard


async def _send(line: ClientConnection, said: Script, heard: Heard, zero: float) -> None:
    loop = asyncio.get_running_loop()
    for packet in packets(said.pieces(), round(PACKET_S * BYTES_PER_SECOND)):
        heard.sent_s += len(packet) / BYTES_PER_SECOND
        await asyncio.sleep(zero + heard.sent_s - loop.time())
        await line.send(packet)
    await line.send(b"")


@asynccontextmanager
async def child(command: Sequence[str], probe: str) -> AsyncIterator[int]:
    """Another's server as a child process, ready once `probe` answers; its process id."""
    surroundings = {**os.environ, "HF_HUB_OFFLINE": "1"}
    surroundings.pop("PYTHONPATH", None)
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=surroundings,
    )
    try:
        async with asyncio.timeout(START_S):
            while not await asyncio.to_thread(_answers, probe):
                if process.returncode is not None:
                    raise OSError(f"{command[0]} ended with status {process.returncode}")
                await asyncio.sleep(0.5)
        yield process.pid
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
