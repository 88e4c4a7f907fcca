"""WhisperLive: its server with faster-whisper, over its own WebSocket protocol."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from clients.bench.load import Script
from clients.launch import free_port

from .judge import Heard
from .servers import LAST_WORDS_S, child, listens, paced

QUIET_S = 15.0
"""Its own client waits so long for anything new before it says that there is no more audio."""
END = b"END_OF_AUDIO"
SERVE = """
import sys
from whisper_live.server import TranscriptionServer
TranscriptionServer().run(
    "127.0.0.1", port=int(sys.argv[1]), backend="faster_whisper", single_model=True,
    faster_whisper_custom_model_path=sys.argv[2], max_clients=int(sys.argv[3]), max_connection_time=86400,
)
"""
"""What its `run_server.py -b faster_whisper -fw DIR` does; the wheel does not hold that file."""


@dataclass(slots=True)
class Segments:
    """What its messages come to: each repeats the newest segments, the last of them not yet complete."""

    complete: list[str] = field(default_factory=list)
    open: str = ""
    changed_s: float = 0.0
    """When something new came."""
    _known: set[tuple[str, str, str]] = field(default_factory=set)

    def take(self, segments: list[dict[str, Any]], at_s: float) -> None:
        before = (len(self.complete), self.open)
        self.open = ""
        for segment in segments:
            if not segment.get("completed"):
                self.open = segment["text"]
                continue
            key = (segment["start"], segment["end"], segment["text"])
            if key not in self._known:
                self._known.add(key)
                self.complete.append(segment["text"])
        if (len(self.complete), self.open) != before:
            self.changed_s = at_s


@dataclass(frozen=True, slots=True)
class WhisperLive:
    """One model for all clients, as its help advises for weights of one's own; as many threads as there are
    cores, instead of one; voice detection on, as in its client; everything else as it comes."""

    python: Path
    weights: Path
    language: str
    name: str = "WhisperLive"

    @asynccontextmanager
    async def running(self, streams: int) -> AsyncIterator[tuple[str, int]]:
        port = free_port()
        command = [str(self.python), "-c", SERVE, str(port), str(self.weights), str(streams)]
        threads = {"OMP_NUM_THREADS": str(os.cpu_count() or 1)}
        async with child(command, partial(listens, port), threads) as pid:
            yield f"ws://127.0.0.1:{port}", pid

    async def speak(self, url: str, said: Script) -> Heard:
        heard, segments, loop = Heard(), Segments(), asyncio.get_running_loop()
        try:
            async with connect(url, max_size=None, proxy=None) as line:
                await line.send(json.dumps(self._options()))
                await asyncio.wait_for(_ready(line), LAST_WORDS_S)
                zero = loop.time()
                async with asyncio.TaskGroup() as group:
                    group.create_task(_send(line, said, heard, segments, zero))
                    # It closes the connection once it has been told that there is no more audio.
                    async for text in line:
                        message = json.loads(text)
                        if "status" in message:
                            raise OSError(f"it says {message['status']}: {message.get('message')}")
                        if "segments" in message:
                            segments.take(message["segments"], loop.time() - zero)
                            complete = " ".join(segments.complete)
                            heard.tell(complete, segments.open, loop.time() - zero)
        except (OSError, TimeoutError, WebSocketException, ExceptionGroup) as error:
            heard.faults.append(f"{type(error).__name__}: {error}")
        # What is still open at the end counts as its client writes it down, and from when it came.
        heard.tell(" ".join([*segments.complete, segments.open]), "", segments.changed_s)
        return heard

    def _options(self) -> dict[str, Any]:
        return {
            "uid": os.urandom(8).hex(),
            "language": self.language,
            "task": "transcribe",
            "model": str(self.weights),
            "use_vad": True,
        }


async def _ready(line: ClientConnection) -> None:
    """Raises `OSError` where it refuses."""
    while True:
        message = json.loads(await line.recv())
        if message.get("message") == "SERVER_READY":
            return
        if "status" in message:
            raise OSError(f"it says {message['status']}: {message.get('message')}")


async def _send(line: ClientConnection, said: Script, heard: Heard, segments: Segments, zero: float) -> None:
    loop = asyncio.get_running_loop()
    async for packet in paced(said, heard, zero):
        await line.send((np.frombuffer(packet, "<i2").astype("<f4") / 32768.0).tobytes())
    until = loop.time() + LAST_WORDS_S
    while (quiet := max(segments.changed_s, heard.sent_s) + QUIET_S + zero) > loop.time():
        if loop.time() > until:
            raise TimeoutError(f"still new text {LAST_WORDS_S:.0f} s after the audio")
        await asyncio.sleep(min(quiet, until) - loop.time() + 0.01)
    await line.send(END)
    await asyncio.wait_for(line.wait_closed(), LAST_WORDS_S)
