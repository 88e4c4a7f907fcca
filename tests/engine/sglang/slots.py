"""The scripted engine's language over SGLang's routes: a server that hears the words of `engine.fake` in the
samples it is sent, a policy that asks it, and the ways in which such a server can fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.contract import Hypothesis, RecognitionTask, Word
from engine.fake import word, words_of
from engine.guards import GuardLimits
from engine.policies.serving import Ask, Reply
from engine.policies.text_words import estimated_words, readable
from engine.sglang.payload import Samples, read_payload
from engine.sglang.transport import Part, Request

from .scripted import (
    MemoryTransport,
    PlainPolicy,
    begin_chunks,
    chunk,
    event,
    growing,
    message,
    respond,
    stream_parts,
)

Fault = Callable[[list[Part], asyncio.StreamWriter], Awaitable[None]]
"""Answers a request in another way than with the parts of the right answer."""


class SlotsPolicy(PlainPolicy):
    """Says where the window and what was committed end; gives the words it knows their own times."""

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        said = task.prefix[-1].end if task.prefix else task.start
        return Ask(64, GuardLimits(audio_s=len(task.audio) / 16_000), text=json.dumps([task.start, said]))

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        known = {word(slot).text: word(slot) for slot in range(task.start // 8000, task.end // 8000 + 1)}
        guessed = estimated_words(readable(reply.text), replace(task, prefix=()))
        words: list[Word] = [known.get(guess.text, guess) for guess in guessed]
        finish = reply.finish
        return Hypothesis(tuple(words), finish)


@dataclass
class SlotsServer:
    """Answers `/generate`; `fault` replaces the right answer, `faults` times."""

    fault: Fault | None = None
    faults: int = 0
    failed: int = 0

    async def __call__(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        samples = read_payload(body["audio_data"])
        assert samples is not None
        parts = heard(samples, body["text"])
        if self.fault is not None and self.failed < self.faults:
            self.failed += 1
            await self.fault(parts, writer)
        else:
            await stream_parts(parts, writer)

    def fail(self, fault: Fault, faults: int = 1_000_000) -> None:
        """From now on."""
        self.fault, self.faults, self.failed = fault, faults, 0

    def heal(self) -> None:
        self.fault = None


def heard(samples: Samples, asked: str) -> list[Part]:
    """The right answer to a request."""
    start, said = json.loads(asked)
    words = words_of(samples.astype(np.float32) / 32768.0, start)
    return growing(" ".join(w.text for w in words if w.start >= said) or " ")


class SlotsTransport(MemoryTransport):
    """The same engine in memory, where time may be virtual; silent while `awake` is cleared."""

    def __init__(self) -> None:
        super().__init__([])
        self.awake = asyncio.Event()
        self.awake.set()

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        self.requests.append(request)
        done = False
        try:
            await asyncio.sleep(0.05)
            await self.awake.wait()
            yield heard(np.frombuffer(request.pcm, "<i2"), request.text or "")[-1]
            done = True
        finally:
            if not done:
                self.aborted.append(request.rid)


def raw(data: bytes) -> Fault:
    """One event of these bytes, and the end of the answer."""

    async def answer(_: list[Part], writer: asyncio.StreamWriter) -> None:
        begin_chunks(writer)
        chunk(writer, data + b"\n\n")
        writer.write(b"0\r\n\r\n")

    return answer


def said(changes: dict[str, Any], meta: dict[str, Any] | None = None) -> Fault:
    """The right answer with fields of another kind."""

    async def answer(parts: list[Part], writer: asyncio.StreamWriter) -> None:
        found = message(parts[-1]) | changes
        found["meta_info"] = found["meta_info"] | (meta or {})
        await raw(event(found).strip())(parts, writer)

    return answer


async def half_a_stream(parts: list[Part], writer: asyncio.StreamWriter) -> None:
    begin_chunks(writer)
    chunk(writer, event(message(replace(parts[0], finish=None))))
    writer.write(b"ff\r\ndata: {")
    await writer.drain()
    writer.transport.abort()


async def no_end(parts: list[Part], writer: asyncio.StreamWriter) -> None:
    await stream_parts([replace(parts[-1], finish=None)], writer)


async def not_http(_: list[Part], writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-nothing\r\n\r\n")
    writer.close()


async def server_error(_: list[Part], writer: asyncio.StreamWriter) -> None:
    respond(writer, b'{"error": {"message": "CUDA out of memory"}}', "500 Internal Server Error")


async def given_up(parts: list[Part], writer: asyncio.StreamWriter) -> None:
    await stream_parts([replace(parts[0], finish="abort", detail="memory")], writer)


async def unending_text(_: list[Part], writer: asyncio.StreamWriter) -> None:
    """More and more words, all different."""
    begin_chunks(writer)
    text = ""
    for number in range(100_000):
        text += f" {number:x}th"
        chunk(writer, event(message(Part((number,), text, None))))
        await writer.drain()


async def unending_event(_: list[Part], writer: asyncio.StreamWriter) -> None:
    begin_chunks(writer)
    for _number in range(400):
        chunk(writer, b"data: {" + b" " * 60_000)
        await writer.drain()


async def signs_of_life(_: list[Part], writer: asyncio.StreamWriter) -> None:
    """Comments for ever: it lives, and says nothing."""
    begin_chunks(writer)
    while True:
        chunk(writer, b": ping\n\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def broken_characters(parts: list[Part], writer: asyncio.StreamWriter) -> None:
    """The right words, with a half character at the end of every piece."""
    await stream_parts(
        [replace(part, text=part.text + "\N{REPLACEMENT CHARACTER}") for part in parts], writer
    )
