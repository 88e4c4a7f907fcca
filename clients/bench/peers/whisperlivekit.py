"""WhisperLiveKit: its server of that name, over its own WebSocket protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from clients.bench.load import Script
from clients.launch import answers, free_port

from .judge import Heard
from .servers import LAST_WORDS_S, child, paced


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
        ready = partial(answers, f"http://127.0.0.1:{port}/")
        async with child([str(self.program), *arguments], ready) as pid:
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
    async for packet in paced(said, heard, zero):
        await line.send(packet)
    await line.send(b"")
