"""`bench load`: many live streams at once, spoken by several processes, and what all of them come to.

Each stream has its own order of the corpus's utterances and its own pauses, so none refreshes in step with
another. Words count from when all streams are live until the first of them ends: what a server does with few
streams says nothing of many.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from time import monotonic, process_time
from typing import Any

from clients.aio import ClientError
from clients.audio import BYTES_PER_SECOND
from clients.delays import measure, own_times
from clients.play import Arrival, Listener, Pace, Playback, play
from streaming.wire.messages import Segment, Start

from .corpus import GAP_S, Clip
from .scoring import Errors, score

_BLOCK = BYTES_PER_SECOND
_IMPORT_S = 120.0
"""A process of speakers is ready within this, or something is wrong with the machine."""
_LAST_WORDS_S = 120.0
"""The end of a stream may take so long after its audio."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`streams` streams of at least `seconds` each; the last begins `ramp_s` after the first."""

    url: str
    streams: int
    seconds: float
    ramp_s: float
    seed: int = 1
    language: str | None = None
    pace: Pace = field(default_factory=Pace)

    def __post_init__(self) -> None:
        if self.streams < 1:
            raise ValueError(f"--streams {self.streams}: use 1 or more")
        if self.ramp_s < 0:
            raise ValueError(f"--ramp {self.ramp_s:g}: use 0 or more seconds")
        if self.seconds <= self.ramp_s:
            raise ValueError(
                f"--seconds {self.seconds:g} is not more than --ramp {self.ramp_s:g}: the first stream would"
                " have ended before the last begins; speak longer, or begin sooner"
            )

    def to(self, url: str) -> Plan:
        """The same for the server at `url`."""
        return replace(self, url=url)

    def begins(self, number: int) -> float:
        """When stream `number` begins, seconds after the run."""
        return self.ramp_s * number / self.streams


@dataclass(frozen=True, slots=True)
class Script:
    """What one stream says: `turns` are utterances, each after so many seconds of silence."""

    turns: tuple[tuple[float, Clip], ...]

    @property
    def reference(self) -> str:
        return " ".join(clip.reference for _, clip in self.turns)

    def pieces(self) -> Iterator[bytes]:
        """Its audio, a second at a time at the most: a thousand streams are never in memory whole."""
        for gap_s, clip in self.turns:
            yield bytes(2 * round(gap_s * BYTES_PER_SECOND / 2))
            data = clip.pcm.tobytes()
            yield from (data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK))


def script(clips: Sequence[Clip], number: int, plan: Plan) -> Script:
    """The utterances of stream `number`: the corpus in an order of its own, again and again, none cut."""
    dice = random.Random(f"{plan.seed}:{number}")
    turns: list[tuple[float, Clip]] = []
    lasts, order = 0.0, list[Clip]()
    while lasts < plan.seconds:
        order = order or dice.sample(list(clips), len(clips))
        turns.append((dice.uniform(*GAP_S), order.pop()))
        lasts += turns[-1][0] + turns[-1][1].seconds
    return Script(tuple(turns))


@dataclass(slots=True)
class Heard:
    """What one stream brought. Times in seconds; `live` and `over` on the machine's monotonic clock."""

    number: int
    live: float
    """When its first sample was spoken; audio began to flow."""
    over: float
    """When its last sample was."""
    commits: list[tuple[float, float]]
    """Of every committed word: when it had been spoken, on the monotonic clock, and its delay."""
    first_text: list[float]
    final: list[float]
    updates: int
    """Segments that came: refreshes that changed something."""
    errors: Errors
    revised: int
    sent: int
    """Samples; `gap` of them without text that should have it."""
    gap: int
    lag_s: float
    resumes: int
    faults: list[str]


Enter = Callable[[Playback, Script, Listener], Any]


async def speak(enter: Enter, said: Script, number: int, language: str) -> Heard:
    """One stream from its beginning to its end; one that never came about is a fault, not an error."""
    playback, loop = Playback(f"stream {number + 1}"), asyncio.get_running_loop()
    live, updates = loop.time(), 0

    def listen(_: Playback, arrival: Arrival) -> None:
        nonlocal live, updates
        if not updates:
            live = loop.time() - arrival.at_s
        updates += isinstance(arrival.message, Segment)

    try:
        await enter(playback, said, listen)
    except ClientError as error:
        playback.failure = str(error)
    times = own_times(playback)
    delays, receipt = measure(playback, times), playback.captions.receipt
    spoken = receipt.text_samples + receipt.silence_samples if receipt else 0
    return Heard(
        number,
        live,
        live + playback.sent_s,
        [(live + end, delay) for end, delay in zip(times.ends, delays.commit, strict=True)],
        delays.first_text,
        delays.final,
        updates,
        score(said.reference, playback.captions.committed, language),
        playback.captions.revised,
        playback.sent,
        playback.sent - spoken,
        playback.lag_s,
        playback.resumes,
        [f"{playback.name}: {fault}" for fault in playback.faults()],
    )


async def chorus(
    plan: Plan, clips: Sequence[Clip], numbers: Sequence[int], begin: float, enter: Enter
) -> list[Heard]:
    """All streams with these `numbers`, each in its time after `begin` (the loop's clock)."""
    loop = asyncio.get_running_loop()

    async def one(number: int) -> Heard:
        await asyncio.sleep(begin + plan.begins(number) - loop.time())
        return await speak(enter, script(clips, number, plan), number, clips[0].language)

    return list(await asyncio.gather(*map(one, numbers)))


def entrance(plan: Plan) -> Enter:
    """The streams of the plan's server."""
    start = Start(language=plan.language)

    async def enter(playback: Playback, said: Script, listen: Listener) -> None:
        await play(playback, plan.url, start, said.pieces(), plan.pace, listen)

    return enter


def _perform(line: Connection, plan: Plan, clips: Sequence[Clip], numbers: Sequence[int]) -> None:
    """In a process of its own: say that it is ready, wait for the beginning, speak, tell."""
    score("a", "b", clips[0].language)  # brings the normaliser, which takes a second
    line.send("ready")
    begin = line.recv()
    before = process_time()
    heard = asyncio.run(chorus(plan, clips, numbers, begin, entrance(plan)))
    line.send((heard, process_time() - before))


@dataclass(slots=True)
class Load:
    """A whole run. `cpu_s` is what the speakers took of the machine."""

    plan: Plan
    processes: int
    heard: list[Heard] = field(default_factory=list)
    cpu_s: float = 0.0
    lost: list[str] = field(default_factory=list)
    """Processes that told nothing."""


async def load(plan: Plan, clips: Sequence[Clip], processes: int) -> Load:
    """Have `processes` processes speak all streams of the plan."""
    if not 1 <= processes <= plan.streams:
        raise ValueError(f"--processes {processes}: use 1 to the number of streams, {plan.streams}")
    context, found = multiprocessing.get_context("spawn"), Load(plan, processes)
    crew = []
    for place in range(processes):
        ours, theirs = context.Pipe()
        numbers = range(place, plan.streams, processes)
        process = context.Process(target=_perform, args=(theirs, plan, clips, numbers), daemon=True)
        process.start()
        theirs.close()
        crew.append((process, ours))
    try:
        for _, line in crew:
            await asyncio.to_thread(_told, line, _IMPORT_S)
        begin = monotonic() + 0.5
        for _, line in crew:
            line.send(begin)
        longest = plan.ramp_s + plan.seconds + max(clip.seconds for clip in clips)
        until = begin + longest + _LAST_WORDS_S
        for place, (_, line) in enumerate(crew):
            try:
                heard, cpu_s = await asyncio.to_thread(_told, line, max(1.0, until - monotonic()))
            except OSError as error:
                found.lost.append(f"process {place + 1} of the speakers: {error}")
                continue
            found.heard += heard
            found.cpu_s += cpu_s
    finally:
        for process, line in crew:
            line.close()
            process.kill()
            process.join()
    return found


def _told(line: Connection, limit_s: float) -> Any:
    """The next thing a process says; raises OSError where it has ended, or is silent for so long."""
    if not line.poll(limit_s):
        raise TimeoutError(f"said nothing for {limit_s:.0f} s")
    try:
        return line.recv()
    except EOFError:
        raise ConnectionError("ended before it was done") from None
