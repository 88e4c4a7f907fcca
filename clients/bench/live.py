"""N streams at speed 1, as long as the clips or the clock last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from clients.aio import ClientError
from clients.participants import with_tracks
from clients.play import Arrival, Pace, Playback, play
from streaming.wire.messages import Ended, Start, Track

from .corpus import Clip
from .tracks import Joined, apart

Played = list[tuple[Clip, Playback]]
Tell = Callable[[str], None]

_BLOCK = 32_000
_SPREAD_S = 2.0
_GOLDEN = 0.618034


def plan(clips: Sequence[Clip], streams: int, seconds: float | None) -> list[list[Clip]]:
    """Which slot plays which clips, one after the other.

    Without `seconds` every clip is played once and every slot plays at least one. With it each slot goes
    round the clips until it has played so many seconds; a clip is never cut, or its reference would lie.
    """
    if streams < 1:
        raise ValueError(f"--streams {streams}: use 1 or more")
    if seconds is None:
        count = max(streams, len(clips))
        dealt = [clips[i % len(clips)] for i in range(count)]
        slots: list[list[Clip]] = [[] for _ in range(streams)]
        for clip in sorted(dealt, key=lambda c: -c.seconds):
            min(slots, key=lambda slot: sum(c.seconds for c in slot)).append(clip)
        return slots
    return [_round(clips, first, seconds) for first in range(streams)]


def _round(clips: Sequence[Clip], first: int, seconds: float) -> list[Clip]:
    chosen: list[Clip] = []
    while sum(c.seconds for c in chosen) < seconds:
        chosen.append(clips[(first + len(chosen)) % len(clips)])
    return chosen


async def play_slots(
    url: str, slots: Sequence[Sequence[Clip]], pace: Pace, start: Callable[[Clip], Start], tell: Tell
) -> Played:
    """Play all slots at once; every clip comes back, also one that failed, of joined clips each part."""
    groups = await asyncio.gather(
        *(_slot(url, number, clips, pace, start, tell) for number, clips in enumerate(slots))
    )
    return [played for group in groups for played in group]


async def _slot(
    url: str,
    number: int,
    clips: Sequence[Clip],
    pace: Pace,
    start: Callable[[Clip], Start],
    tell: Tell,
) -> Played:
    # Streams that begin together refresh together; real ones do not.
    await asyncio.sleep(number * _GOLDEN % 1 * _SPREAD_S if pace.speed is not None else 0)
    played: Played = []
    for clip in clips:
        parts = await play_clip(url, clip, pace, start(clip))
        count = sum(len(playback.faults()) for _, playback in parts)
        faults = f", {count} faults" if count else ""
        tell(f"stream {number + 1}: {clip.name}, {clip.seconds:.0f} s{faults}")
        played += parts
    return played


async def play_clip(url: str, clip: Clip, pace: Pace, start: Start) -> Played:
    """Play one clip; a stream that never came about is a failure of the playback, not an error."""
    playback, ends = Playback(clip.name), list[Ended]()

    def listen(_: Playback, arrival: Arrival) -> None:
        # The playback itself keeps what a bench needs, but for the receipts of tracks.
        if isinstance(arrival.message, Ended):
            ends.append(arrival.message)

    if isinstance(clip, Joined):
        start = with_tracks(start, [Track()] * len(clip.parts))
    data = clip.pcm.tobytes()
    pieces = (data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK))
    try:
        await play(playback, url, start, pieces, pace, listen)
    except ClientError as error:
        playback.failure = str(error)
    return (
        apart(clip, playback, ends[0] if ends else None) if isinstance(clip, Joined) else [(clip, playback)]
    )
