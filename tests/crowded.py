"""Sessions before an engine with places for all and time for few, in virtual time: how late are words?

    python -m tests.crowded --streams 100 [--positions 67000] [--processes 2] [--seconds 40]

The engine is modelled after what SGLang logs of an encoder-decoder model on one H200: it prefills what
waits, in batches of 100,000 positions at the most, `--positions` a second and 0.015 s each time; eight decode
steps follow. Finals are read in the full window, refreshes in their audio and six seconds. Our sessions and
dispatchers are the real ones, one dispatcher a process. A word that is cut off is misheard.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from clients.stats import Summary, summarize
from engine.contract import (
    FRAME,
    SAMPLE_RATE,
    Capabilities,
    EngineError,
    Hypothesis,
    Priority,
    RecognitionTask,
    Voice,
    Word,
)
from engine.dispatcher import Dispatcher, DispatchSettings
from streaming.core.events import SegmentUpdated
from streaming.core.session import Session
from streaming.core.settings import SessionSettings
from tests.support.virtual import run

PACKET = SAMPLE_RATE // 10
SILENCE = np.zeros(PACKET, np.float32)
PER_S = 50
"""Encoder positions of a second."""
BATCH, PREFILL_S, STEP_S, STEPS = 100_000, 0.015, 0.005, 8
RAMP_S = 8.0

Spoken = list[tuple[int, int, int]]
"""Words: start, end, number; in samples."""


@dataclass(eq=False)
class _Request:
    priority: Priority
    positions: float
    words: tuple[Word, ...]
    left: float
    """Tokens to decode."""
    reply: asyncio.Future[Hypothesis]


class Engine:
    """A `Recognizer`: knows what each session says."""

    def __init__(self, positions_per_s: float, said: dict[str, Spoken]) -> None:
        self._rate, self._said = positions_per_s, said
        self._waiting: list[_Request] = []
        self._running: list[_Request] = []
        self._news = asyncio.Event()
        self._work = asyncio.create_task(self._serve())

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities("model", "crowded", 30.0, ("en",), concurrency=256)

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        words = tuple(self._heard(task))
        seconds = 30.0 if task.priority is Priority.FINAL else max(10.0, len(task.audio) / SAMPLE_RATE + 6.0)
        request = _Request(
            task.priority,
            PER_S * seconds,
            words,
            2 + 1.4 * len(words),
            asyncio.get_running_loop().create_future(),
        )
        self._waiting.append(request)
        self._news.set()
        return await request.reply

    async def close(self) -> None:
        self._work.cancel()

    def _heard(self, task: RecognitionTask) -> list[Word]:
        begin, end = task.prefix[-1].end if task.prefix else task.start, task.end - PACKET
        words = [word for word in self._said[task.session] if begin - PACKET // 2 <= word[0] < end]
        return [
            Word(f"w{n}" if high <= end else f"w{n}-{end}", low, min(high, task.end), estimated=True)
            for low, high, n in words
        ]

    async def _serve(self) -> None:
        while True:
            while not (self._waiting or self._running):
                self._news.clear()
                await self._news.wait()
            await self._prefill()
            for _ in range(STEPS if self._running else 0):
                await asyncio.sleep(STEP_S)
                for request in self._running:
                    request.left -= 1
                    if request.left <= 0 and not request.reply.done():
                        request.reply.set_result(Hypothesis(request.words))
                self._running = [request for request in self._running if request.left > 0]

    async def _prefill(self) -> None:
        self._waiting = [request for request in self._waiting if not request.reply.done()]
        self._waiting.sort(key=lambda request: request.priority)
        batch, positions = list[_Request](), 0.0
        while self._waiting and positions + self._waiting[0].positions <= BATCH:
            batch.append(self._waiting.pop(0))
            positions += batch[-1].positions
        if batch:
            await asyncio.sleep(PREFILL_S + positions / self._rate)
            self._running += batch


def speech(seconds: float, dice: random.Random) -> tuple[list[tuple[float, float]], Spoken]:
    """Utterances of 3-12 s with pauses between, and their words."""
    at, voiced, words = 0.3, list[tuple[float, float]](), Spoken()
    while at < seconds:
        start, end = at, at + dice.uniform(3, 12)
        while at < end:
            lasts = dice.uniform(0.2, 0.5)
            words.append((round(at * SAMPLE_RATE), round((at + lasts) * SAMPLE_RATE), len(words)))
            at += lasts
        voiced.append((start, end))
        at += dice.uniform(0.5, 1.5)
    return voiced, words


@dataclass
class Stream:
    """One live session; `delays` are (when committed, how long after the word's end)."""

    id: str
    dispatcher: Dispatcher
    seconds: float
    voiced: list[tuple[float, float]]
    delays: list[tuple[float, float]] = field(default_factory=list)

    async def run(self, begin: float) -> None:
        await asyncio.sleep(begin)
        loop = asyncio.get_running_loop()
        zero, capabilities = loop.time(), self.dispatcher.capabilities
        self._session = Session(self.id, SessionSettings(), capabilities, language="en")
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._zero, self._seen = zero, 0
        for packet in range(round(self.seconds * 10)):
            await asyncio.sleep(max(0.0, zero + (packet + 1) / 10 - loop.time()))
            if packet % 5 == 0:
                self._session.stretch(self.dispatcher.stretch, brief=self.dispatcher.brief)
            times = [(packet * PACKET + frame * FRAME) / SAMPLE_RATE for frame in range(PACKET // FRAME)]
            loud = [any(low <= at < high for low, high in self.voiced) for at in times]
            self._session.receive_audio(SILENCE, [Voice(on, 0.9 if on else 0.0) for on in loud])
            self._carry_out()

    def _carry_out(self) -> None:
        for id in self._session.tasks_to_cancel():
            if running := self._tasks.pop(id, None):
                running.cancel()
        for task in self._session.tasks_to_run():
            self._tasks[task.id] = asyncio.create_task(self._decode(task))
        now = asyncio.get_running_loop().time()
        for event in self._session.events_to_send():
            if isinstance(event, SegmentUpdated):
                for word in event.words[max(0, self._seen - event.first_word) :]:
                    self.delays.append((now, now - self._zero - word.end / SAMPLE_RATE))
                self._seen = max(self._seen, event.first_word + len(event.words))

    async def _decode(self, task: RecognitionTask) -> None:
        try:
            heard = await self.dispatcher.recognize(task)
        except EngineError as error:
            self._session.receive_failure(task.id, error.cause, retryable=error.retryable)
        else:
            self._session.receive_hypothesis(task.id, heard)
        self._tasks.pop(task.id, None)
        self._carry_out()


async def crowd(streams: int, positions_per_s: float, processes: int, seconds: float) -> Summary:
    """Delays of the words that are committed while all speak."""
    said: dict[str, Spoken] = {}
    engine = Engine(positions_per_s, said)
    dispatchers = [Dispatcher(engine, DispatchSettings(queue=8192)) for _ in range(processes)]
    made = []
    for number in range(streams):
        voiced, words = speech(seconds, random.Random(number))
        made.append(Stream(f"s{number:04d}", dispatchers[number % processes], seconds, voiced))
        said[made[-1].id] = words
    await asyncio.gather(*(stream.run(RAMP_S * n / streams) for n, stream in enumerate(made)))
    for dispatcher in dispatchers:
        await dispatcher.close()
    return summarize([delay for stream in made for at, delay in stream.delays if RAMP_S <= at < seconds])


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crowded", description=__doc__)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--positions", type=float, default=67_000.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args(argv)
    found = run(crowd(options.streams, options.positions, options.processes, options.seconds))
    sys.stdout.write(f"{found}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
