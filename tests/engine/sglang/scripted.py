"""Engines made of a script: a transport in memory, and an HTTP server that speaks SGLang's routes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.contract import Hypothesis, Priority, RecognitionTask
from engine.guards import GuardLimits
from engine.policies.serving import Ask, ModelFacts, Reply
from engine.policies.text_words import estimated_words
from engine.sglang.transport import Part, Request

Answer = Callable[[dict[str, Any], asyncio.StreamWriter], Any]

FACTS = ModelFacts(
    native_s=30.0,
    audio_tokens_per_s=50.0,
    context_tokens=448,
    kv_bytes_per_token=None,
    chunked_prefill=False,
    prefix_cache=False,
)


class PlainPolicy:
    """Text in, words out; what was asked is kept."""

    def __init__(self, budget: int = 64, *, detects: bool = False) -> None:
        self.budget = budget
        self.detects = detects

    @property
    def facts(self) -> ModelFacts:
        return FACTS

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        if language == "xx":
            raise ValueError("no such language")
        guard = GuardLimits(audio_s=len(task.audio) / 16_000)
        return Ask(self.budget, guard, text=f"in {language}", language=language)

    def detection(self, task: RecognitionTask) -> Ask | None:
        return Ask(1, GuardLimits(1.0), text="which?") if self.detects and task.language is None else None

    def heard(self, reply: Reply) -> tuple[str | None, float]:
        return reply.text or None, 1.0

    def astray(self, ask: Ask, reply: Reply) -> str | None:
        return "en" if reply.text == "elsewhere" else None

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:

        finish = reply.finish
        return Hypothesis(tuple(estimated_words(reply.text, task)), finish, ask.language)


def task(number: int = 0, **changes: Any) -> RecognitionTask:
    values: dict[str, Any] = {
        "id": f"t{number}",
        "session": "s",
        "audio": np.full(16_000, 0.25, np.float32),
        "start": 0,
        "priority": Priority.FINAL,
    }
    return RecognitionTask(**values | changes)


@dataclass
class MemoryTransport:
    """Answers with `parts`, slowly enough to be cancelled where `hang` is set."""

    parts: list[Part]
    hang: bool = False
    requests: list[Request] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    closed: bool = False

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        self.requests.append(request)
        done = False
        try:
            for part in self.parts:
                done = part.finish is not None
                yield part
                if done:
                    return
            if self.hang:
                await asyncio.Event().wait()
        finally:
            if not done:
                self.aborted.append(request.rid)

    async def abort(self, rid: str) -> None:
        self.aborted.append(rid)

    async def healthy(self) -> bool:
        return True

    async def close(self) -> None:
        self.closed = True


def growing(text: str, finish: str = "stop", step: int = 4) -> list[Part]:
    """Cumulative parts of a text, one token a character."""
    ends = [*range(step, len(text), step), len(text)]
    return [
        Part(tuple(map(ord, text[:end])), text[:end], finish if end == len(text) else None) for end in ends
    ]


def message(part: Part) -> dict[str, Any]:
    """The part as SGLang writes it."""
    reason = None if part.finish is None else {"type": part.finish, "message": part.detail}
    return {
        "text": part.text,
        "output_ids": list(part.ids),
        "meta_info": {"finish_reason": reason, "prompt_tokens": 5, "cached_tokens": 2},
    }


@dataclass
class Site:
    """A running HTTP server: what it was asked, and how it answers `/generate`."""

    answer: Answer
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    connections: int = 0
    pages: dict[str, Answer] = field(default_factory=dict)
    """How other routes are answered."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client left before its answer was whole."""
    _server: asyncio.Server | None = None
    _port: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen, after `kill` at the same address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def kill(self) -> None:
        """End as a killed process does: nobody listens, every connection is cut."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            sizes = [int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")]
            size = sizes[0] if sizes else 0
            body = json.loads(await reader.readexactly(size) or b"{}")
            path = head.split()[1].decode()
            if path == "/abort_request":
                self.aborted.append(body["rid"])
            if path in self.pages:
                await self.pages[path](body, writer)
            elif path in ("/abort_request", "/health"):
                respond(writer, b"")
            elif path != "/generate":
                respond(writer, b"{}", "404 Not Found")
            else:
                self.asked.append(body)
                await self.answer(body, writer)
            await writer.drain()


@asynccontextmanager
async def site(answer: Answer) -> AsyncIterator[Site]:
    found = Site(answer)
    await found.start()
    try:
        yield found
    finally:
        await found.kill()


def respond(writer: asyncio.StreamWriter, body: bytes, status: str = "200 OK") -> None:
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def begin_chunks(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


async def stream_parts(parts: list[Part], writer: asyncio.StreamWriter, cut: int = 0) -> None:
    """All parts as server-sent events; `cut` > 0 breaks the bytes into pieces of that size."""
    begin_chunks(writer)
    data = b"".join(event(message(part)) for part in parts) + b"data: [DONE]\n\n"
    for at in range(0, len(data), cut or len(data)):
        chunk(writer, data[at : at + (cut or len(data))])
        await writer.drain()
    writer.write(b"0\r\n\r\n")
