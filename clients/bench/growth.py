"""`bench growth`: does an hour cost what its first minutes cost? And a long silence nothing?

The server's CPU time and memory are read for each bucket of audio, at speed max.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import numpy as np
from rich.console import Console
from rich.table import Table

from clients.aio import ClientError
from clients.audio import RATE
from clients.play import Arrival, Pace, Playback, play
from streaming.wire.messages import Ack, Ended, Segment, Start

from .corpus import Clip
from .meter import Sample, sample
from .report import number

_BLOCK = RATE  # one second


@dataclass(frozen=True, slots=True)
class Bucket:
    """One stretch of audio: its end on the audio clock, and what it cost."""

    until_s: float
    cpu_s_per_audio_s: float | None
    wall_s_per_audio_s: float
    rss_mib: float | None


class Gauge:
    """Reads the server's meter each time it is done with another bucket of audio.

    What was sent says nothing: minutes of audio fit into the buffers of a socket. Speech is done with where
    its segments are final; silence, which has none, where it is acknowledged.
    """

    def __init__(self, pid: int | None, bucket_s: float) -> None:
        self._pid = pid
        self._bucket = round(bucket_s * RATE)
        self._from = 0
        self._at = monotonic()
        self._sample = self._look()
        self.buckets: list[Bucket] = []

    def hear(self, playback: Playback, arrival: Arrival) -> None:
        """A listener for `play`."""
        match arrival.message:
            case Segment(final=True, end_ms=end_ms):
                done = end_ms * RATE // 1000
            case Ack(sample=sample) if not playback.captions.segments:
                done = sample
            case Ended(receipt=receipt):
                self._close(receipt.samples)
                return
            case _:
                return
        if done - self._from >= self._bucket:
            self._close(done)

    def _close(self, done: int) -> None:
        if done <= self._from:
            return
        audio_s = (done - self._from) / RATE
        now, seen = monotonic(), self._look()
        cpu = (seen.cpu_s - self._sample.cpu_s) / audio_s if seen and self._sample else None
        rss = seen.rss_mib if seen else None
        self.buckets.append(Bucket(done / RATE, cpu, (now - self._at) / audio_s, rss))
        self._at, self._sample, self._from = now, seen, done

    def _look(self) -> Sample | None:
        return sample(self._pid) if self._pid is not None else None


def speech(clips: Sequence[Clip], seconds: float) -> Iterator[bytes]:
    """The clips again and again, one second at a time, half a second of silence between."""
    left = round(seconds * RATE)
    gap = np.zeros(RATE // 2, dtype=np.int16)
    while left > 0:
        for clip in clips:
            for part in (clip.pcm, gap):
                for at in range(0, min(len(part), left), _BLOCK):
                    yield part[at : min(at + _BLOCK, left)].tobytes()
                left -= min(len(part), left)
            if left <= 0:
                return


def silence(seconds: float) -> Iterator[bytes]:
    """Digital zero, one second at a time."""
    for _ in range(round(seconds)):
        yield bytes(2 * _BLOCK)


async def grow(
    url: str, pid: int | None, name: str, blocks: Iterator[bytes], bucket_s: float
) -> tuple[Playback, Gauge]:
    """Play `blocks` as fast as the server reads."""
    playback, gauge = Playback(name), Gauge(pid, bucket_s)
    try:
        await play(playback, url, Start(), blocks, Pace(packet_s=0.2, speed=None), gauge.hear)
    except ClientError as error:
        playback.failure = str(error)
    return playback, gauge


def show(playback: Playback, gauge: Gauge) -> None:
    """Print one table, and what the receipt says."""
    console = Console(highlight=False)
    table = Table("audio until", "CPU s / audio s", "wall s / audio s", "RSS MiB", title=playback.name)
    for bucket in gauge.buckets:
        table.add_row(
            f"{bucket.until_s / 60:.1f} min",
            number(bucket.cpu_s_per_audio_s, 4),
            number(bucket.wall_s_per_audio_s, 4),
            number(bucket.rss_mib, 1),
        )
    console.print(table)
    if receipt := playback.captions.receipt:
        console.print(
            f"receipt: {receipt.samples} of {playback.sent} samples, {receipt.words} words, "
            f"silence {receipt.silence_ms / 1000:.1f} s, gaps {receipt.gap_ms / 1000:.1f} s"
        )
    for fault in playback.faults():
        console.print(fault, style="red", markup=False)
