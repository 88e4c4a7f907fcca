"""Play audio as one live stream: paced by an absolute clock, every message stamped with its arrival.

The clock starts when the first sample would have been spoken. A packet leaves when its last sample has
been, as from a microphone; a late packet does not delay the ones after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from streaming.wire.messages import Segment, ServerMessage, Start

from .aio import ClientError, Deadlines, Stream, connect
from .audio import RATE, AudioError, packets
from .captions import Captions


@dataclass(frozen=True, slots=True)
class Pace:
    """How audio is sent: packets of `packet_s` seconds, at `speed` times real time (None: as fast as the
    server reads)."""

    packet_s: float = 0.1
    speed: float | None = 1.0

    def __post_init__(self) -> None:
        if not 0.005 <= self.packet_s <= 2.0:
            raise ValueError("packets hold 5 ms to 2 s")
        if self.speed is not None and not 0.1 <= self.speed <= 100:
            raise ValueError("use 0.1 to 100 times real time, or max")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message and when it came, in seconds on the stream's clock."""

    at_s: float
    message: ServerMessage


@dataclass(slots=True)
class Playback:
    """One stream while it plays and after."""

    name: str
    captions: Captions = field(default_factory=Captions)
    sent: int = 0
    """Samples sent; one of all channels counts once."""
    lag_s: float = 0.0
    """The worst delay of a packet behind its time: this machine was busy, or the server paused reading."""
    ended_sending_s: float | None = None
    """When `end` was sent, on the stream's clock."""
    finished_s: float | None = None
    """When the newest message came; of a stream that is over: the last one."""
    cut_off: bool = False
    """Whether audio was left to send; while it plays, true."""
    committed_s: list[float] = field(default_factory=list)
    """Arrival of every committed word, by its index in `captions.transcript`."""
    first_text_s: dict[int, float] = field(default_factory=dict)
    """By segment: when its first text came, partial or not; not told of words that were another segment's."""
    final_s: dict[int, float] = field(default_factory=dict)
    """By the index in `captions.transcript` of a segment's last word: when the segment was final."""
    resumes: int = 0
    """How often the connection broke and the session went on over another."""
    failure: str | None = None
    """Why there is no receipt."""

    @property
    def sent_s(self) -> float:
        return self.sent / RATE

    def faults(self) -> list[str]:
        """Everything that keeps this stream from being a whole, kept promise; empty is good."""
        found = list(self.captions.faults)
        error, receipt = self.captions.error, self.captions.receipt
        if self.failure:
            found.append(self.failure)
        if error is not None:
            found.append(f"the server ended the stream: {error.message} ({error.code})")
        if receipt is not None and self.cut_off:
            found.append(
                f"the stream ended at {receipt.samples / RATE:.2f} s, before all of the audio was sent"
            )
        elif receipt is not None and receipt.samples != self.sent:
            found.append(f"the receipt covers {receipt.samples} of {self.sent} samples sent")
        if receipt is not None:
            found += [
                f"gap from {gap.start / RATE:.2f} to {gap.end / RATE:.2f} s: {gap.cause or 'no cause given'}"
                for gap in receipt.spans
                if gap.cover == "gap"
            ]
        return found


Listener = Callable[[Playback, Arrival], None]


async def play(
    playback: Playback,
    url: str,
    start: Start,
    pieces: Iterable[bytes],
    pace: Pace,
    listen: Listener,
    *,
    deadlines: Deadlines | None = None,
) -> None:
    """Stream `pieces` (s16le 16 kHz, with the channels of `start`) and listen until the last message.

    A connection that breaks is made again; one that cannot be, and audio that cannot be read on, are noted in
    `playback.failure`. Raises `ClientError` only where no stream came about.
    """
    async with connect(url, start, deadlines=deadlines) as stream:
        clock = _Clock()
        hear = _Listener(playback, clock, listen).hear
        hear(stream.ready)
        async with asyncio.TaskGroup() as tasks:
            sender = tasks.create_task(_send(playback, stream, pieces, pace, clock, 2 * start.audio.channels))
            try:
                async for message in stream:
                    playback.resumes = stream.resumes
                    hear(message)
            except ClientError as error:
                playback.failure = playback.failure or str(error)
            sender.cancel()


class _Clock:
    """Seconds since the first sample."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._zero = self._loop.time()

    def now(self) -> float:
        return self._loop.time() - self._zero


class _Listener:
    def __init__(self, playback: Playback, clock: _Clock, listen: Listener) -> None:
        self._playback = playback
        self._clock = clock
        self._listen = listen

    def hear(self, message: ServerMessage) -> None:
        playback, now = self._playback, self._clock.now()
        known = len(playback.committed_s)
        playback.captions.receive(message)
        playback.finished_s = now
        if isinstance(message, Segment):
            captions = playback.captions
            playback.committed_s += [now] * (len(captions.transcript) - known)
            count = len(message.words)
            first, last = captions.place(message, 0) if count else None, captions.place(message, count - 1)
            # A split moves words that were there, and final, before.
            if message.partial.strip() if first is None else first >= known:
                playback.first_text_s.setdefault(message.id, now)
            if message.final and count and last is not None:
                playback.final_s.setdefault(last, now)
        self._listen(playback, Arrival(now, message))


async def _send(
    playback: Playback, stream: Stream, pieces: Iterable[bytes], pace: Pace, clock: _Clock, width: int
) -> None:
    """`width` is the size of one sample of all channels, bytes."""
    playback.cut_off = True
    try:
        for packet in packets(pieces, width * max(1, round(pace.packet_s * RATE))):
            samples = len(packet) // width
            await _wait(playback, playback.sent_s + samples / RATE, pace, clock)
            await stream.send(packet)
            playback.sent += samples
    except AudioError as error:
        playback.failure = str(error)  # what was sent still deserves its text and receipt
    except ClientError:
        return  # the listening side reads the server's reason, which may still be on its way
    playback.cut_off = False
    playback.ended_sending_s = clock.now()
    with suppress(ClientError):
        await stream.end()


async def _wait(playback: Playback, due_s: float, pace: Pace, clock: _Clock) -> None:
    if pace.speed is None:
        await asyncio.sleep(0)  # a socket with room never yields, and messages must be read too
        return
    due_s /= pace.speed
    if (wait := due_s - clock.now()) > 0:
        await asyncio.sleep(wait)
    playback.lag_s = max(playback.lag_s, clock.now() - due_s)
