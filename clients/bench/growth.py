"""`bench growth --against length`: do hours cost what their first minute costs? And a long silence nothing?

The server's CPU time and memory are read for each bucket of audio, at speed max.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic

import numpy as np

from clients.aio import ClientError
from clients.audio import RATE
from clients.play import Arrival, Pace, Playback, play
from streaming.wire.messages import Ack, Ended, Segment, Start

from .corpus import Clip
from .growth_page import Curve, Plot
from .meter import Sample, sample
from .report import number

LENGTHS_MIN = (1.0, 10.0, 60.0, 480.0)
"""The table has a row from each of these to the next."""
PARTS = 16
"""Of a plot, at the most; of more the labels run together."""
_BLOCK = RATE  # one second


@dataclass(frozen=True, slots=True)
class Bucket:
    """One stretch of audio: its end on the audio clock, and what it cost."""

    until_s: float
    cpu_s_per_audio_s: float | None
    wall_s_per_audio_s: float
    rss_mib: float | None
    """At its end; of several put together, the highest."""


class Gauge:
    """Reads the server's meter each time it is done with another bucket of audio.

    What was sent says nothing: minutes of audio fit into the buffers of a socket. Speech is done with where
    its segments are final; silence, which has none, where it is acknowledged.
    """

    def __init__(
        self, pid: int | None, bucket_s: float, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._pid = pid
        self._tell = tell
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
        # Hours pass until the run is over: what is known by then is not lost with it.
        self._tell(
            f"{done / RATE / 60:.1f} min: {number(cpu, 4)} s an audio second, RSS {number(rss, 0)} MiB"
        )

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
    url: str,
    pid: int | None,
    name: str,
    blocks: Iterator[bytes],
    bucket_s: float,
    tell: Callable[[str], None],
) -> tuple[Playback, Gauge]:
    """Play `blocks` as fast as the server reads."""
    playback, gauge = Playback(name), Gauge(pid, bucket_s, tell)
    try:
        await play(playback, url, Start(), blocks, Pace(packet_s=0.2, speed=None), gauge.hear)
    except ClientError as error:
        playback.failure = str(error)
    return playback, gauge


def merged(buckets: Sequence[Bucket], edges_s: Sequence[float]) -> list[Bucket]:
    """The buckets put together where their middles lie before the same one of the ascending edges, those
    behind the last edge too; a stretch without any is left out. Costs are weighed by audio."""
    begins = [0.0, *(bucket.until_s for bucket in buckets)]
    groups: dict[int, list[tuple[float, Bucket]]] = {}
    for begin, bucket in zip(begins, buckets, strict=False):
        place = bisect_right(edges_s, (begin + bucket.until_s) / 2)
        groups.setdefault(place, []).append((bucket.until_s - begin, bucket))
    return [_one(groups[place]) for place in sorted(groups)]


def _one(group: Sequence[tuple[float, Bucket]]) -> Bucket:
    audio_s = sum(length for length, _ in group)
    cpu = [length * b.cpu_s_per_audio_s for length, b in group if b.cpu_s_per_audio_s is not None]
    return Bucket(
        group[-1][1].until_s,
        sum(cpu) / audio_s if len(cpu) == len(group) else None,
        sum(length * b.wall_s_per_audio_s for length, b in group) / audio_s,
        max((b.rss_mib for _, b in group if b.rss_mib is not None), default=None),
    )


def curve(model: str, spoken: Sequence[Bucket], silent: Sequence[Bucket]) -> Curve:
    """Both runs: speech by its length, then silence as one row."""
    until_s = spoken[-1].until_s if spoken else 0.0
    stretches = merged(spoken, [60 * length for length in LENGTHS_MIN])
    ends = ["0", *(f"{bucket.until_s / 60:.3g}" for bucket in stretches)]
    names = [f"{begin} to {end} min" for begin, end in pairwise(ends)]
    quiet = merged(silent, [])
    names += [f"silence, {bucket.until_s / 60:.4g} min" for bucket in quiet]
    rows = [
        (
            name,
            number(_ms(bucket), 2),
            f"{1000 * bucket.wall_s_per_audio_s:.2f}",
            number(bucket.rss_mib, 1),
        )
        for name, bucket in zip(names, [*stretches, *quiet], strict=True)
    ]
    parts = merged(spoken, [until_s * part / PARTS for part in range(1, PARTS)])
    places = tuple(f"{bucket.until_s / 60:.0f}" for bucket in parts)
    across = "minutes of the meeting"
    return Curve(
        "length",
        f"Length of a meeting, {model}",
        ("audio", "CPU ms / audio s", "wall ms / audio s", "RSS max, MiB"),
        tuple(rows),
        (
            Plot("CPU of the server", across, places, "CPU ms / audio s", tuple(map(_ms, parts))),
            Plot("Memory of the server", across, places, "RSS, MiB", tuple(b.rss_mib for b in parts)),
        ),
    )


def _ms(bucket: Bucket) -> float | None:
    return None if bucket.cpu_s_per_audio_s is None else 1000 * bucket.cpu_s_per_audio_s
