"""The live pattern: streams that speak, are decoded again every second, and end their utterances.

Everything goes through our own dispatcher, with its order, replacement and stretch: what is measured is
what a session would see, decoding and waiting together.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from engine.contract import EngineError, Finish, Hypothesis, Priority, RecognitionTask, Word, join
from engine.dispatcher import Dispatcher

from .clips import RATE, Clip, distance, words

_PAUSE_S = 1.0
"""Silence between two utterances of a stream."""


@dataclass(slots=True)
class Tally:
    """What happened while it was watched. Delays in seconds, by kind of task."""

    delays: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: Counter[str] = field(default_factory=Counter)
    first_error: str = ""
    finishes: Counter[str] = field(default_factory=Counter)
    errors: int = 0
    spoken: int = 0
    """Words of the reference texts of finished utterances, and how many were heard wrongly."""
    watching: bool = False

    def note(self, kind: str, delay: float, hypothesis: Hypothesis) -> None:
        if self.watching:
            self.delays[kind].append(delay)
            self.finishes[hypothesis.finish.value] += 1

    def fail(self, kind: str, error: EngineError) -> None:
        if self.watching:
            self.failures[f"{kind}:{error.cause}"] += 1
            self.first_error = self.first_error or str(error)

    def score(self, reference: str, heard: str) -> None:
        if self.watching and reference:
            expected = words(reference)
            self.spoken += len(expected)
            self.errors += distance(expected, words(heard))


@dataclass(frozen=True, slots=True)
class LivePlan:
    """`refresh_s` is stretched by the dispatcher's load as it is in a session."""

    streams: int
    seconds: float
    warm_s: float = 5.0
    refresh_s: float = 1.0
    force: bool = True
    """Words that two decodes agree on go back as a forced prefix."""
    language: str | None = "en"


async def live(dispatcher: Dispatcher, clips: Sequence[Clip], plan: LivePlan) -> Tally:
    """Run `plan.streams` streams for `warm_s` + `seconds`; the tally covers the latter part."""
    tally, loop = Tally(), asyncio.get_running_loop()
    end = loop.time() + plan.warm_s + plan.seconds
    dice = random.Random(7)
    async with asyncio.TaskGroup() as group:
        for number in range(plan.streams):
            stream = _Stream(dispatcher, clips, plan, tally, number)
            group.create_task(stream.run(loop.time() + dice.random() * plan.refresh_s, end))
        group.create_task(_watch(dispatcher, tally, plan.warm_s, end))
    return tally


async def _watch(dispatcher: Dispatcher, tally: Tally, warm_s: float, end: float) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.sleep(warm_s)
    tally.watching = True
    while loop.time() < end:
        # Reading the load advances the stretch factor.
        _ = dispatcher.load
        await asyncio.sleep(0.5)
    tally.watching = False


class _Stream:
    """One speaker: utterances in turn, from its own place in the list."""

    def __init__(
        self, dispatcher: Dispatcher, clips: Sequence[Clip], plan: LivePlan, tally: Tally, number: int
    ) -> None:
        self._dispatcher = dispatcher
        self._clips = itertools.islice(itertools.cycle(clips), number % len(clips), None)
        self._plan = plan
        self._tally = tally
        self._session = f"stream{number}"
        self._serial = itertools.count()

    async def run(self, start: float, end: float) -> None:
        loop = asyncio.get_running_loop()
        for clip in self._clips:
            await asyncio.sleep(max(0.0, start - loop.time()))
            if loop.time() >= end:
                return
            await self._utterance(clip, start, end)
            start = max(start + clip.seconds + _PAUSE_S, loop.time())

    async def _utterance(self, clip: Clip, start: float, end: float) -> None:
        loop = asyncio.get_running_loop()
        committed: list[Word] = []
        last: list[Word] = []
        due = start + self._plan.refresh_s
        kind = Priority.FIRST
        while due < start + clip.seconds:
            await asyncio.sleep(max(0.0, due - loop.time()))
            heard = round((due - start) * RATE)
            found = await self._decode(clip.audio[:heard], kind, committed, due)
            if found is not None:
                current = committed + list(found.words)
                if self._plan.force:
                    committed = agreed(committed, last, current, heard - RATE)
                last, kind = current, Priority.REFRESH
            step = self._plan.refresh_s * self._dispatcher.load.stretch
            due = max(due + step, loop.time())
            if due >= end:
                return
        done = start + clip.seconds
        await asyncio.sleep(max(0.0, done - loop.time()))
        found = await self._decode(clip.audio, Priority.FINAL, committed, done)
        if found is not None and found.finish is not Finish.LOOP:
            self._tally.score(clip.text, join(committed + list(found.words)))

    async def _decode(
        self,
        audio: np.ndarray[tuple[int], np.dtype[np.float32]],
        kind: Priority,
        prefix: list[Word],
        due: float,
    ) -> Hypothesis | None:
        loop = asyncio.get_running_loop()
        task = RecognitionTask(
            id=f"{self._session}.{next(self._serial)}",
            session=self._session,
            audio=audio,
            start=0,
            priority=kind,
            prefix=tuple(prefix),
            language=self._plan.language,
        )
        try:
            found = await self._dispatcher.recognize(task)
        except EngineError as error:
            self._tally.fail(kind.name.lower(), error)
            return None
        self._tally.note(kind.name.lower(), loop.time() - due, found)
        return found


def agreed(committed: list[Word], before: list[Word], now: list[Word], until: int) -> list[Word]:
    """`committed` and the words after it that two decodes agree on and that end before sample `until`."""
    size = len(committed)
    for old, new in zip(before[size:], now[size:], strict=False):
        if old.text != new.text or new.end > until:
            break
        size += 1
    return now[:size]


async def burst(
    recognize: Callable[[RecognitionTask], Awaitable[Hypothesis]],
    clips: Sequence[Clip],
    tally: Tally,
) -> float:
    """All `clips` at once as final tasks; seconds until the last one is answered."""
    loop = asyncio.get_running_loop()
    tally.watching = True
    start = loop.time()

    async def one(number: int, clip: Clip) -> None:
        task = RecognitionTask(
            f"burst{start:.6f}.{number}", f"burst{number}", clip.audio, 0, Priority.FINAL, language="en"
        )
        try:
            found = await recognize(task)
        except EngineError as error:
            tally.fail("final", error)
            return
        tally.note("final", loop.time() - start, found)
        tally.score(clip.text, join(found.words))

    async with asyncio.TaskGroup() as group:
        for number, clip in enumerate(clips):
            group.create_task(one(number, clip))
    tally.watching = False
    return loop.time() - start


async def beside(
    dispatcher: Dispatcher, audio: np.ndarray[tuple[int], np.dtype[np.float32]], stop: asyncio.Event
) -> int:
    """One long request after another next to the live streams, until `stop`; how many were answered."""
    served = 0
    while not stop.is_set():
        task = RecognitionTask(f"long.{served}", "long", audio, 0, Priority.BATCH, language="en")
        with suppress(EngineError):
            await dispatcher.recognize(task)
            served += 1
        await asyncio.sleep(0.1)
    return served
