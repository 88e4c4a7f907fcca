"""Clips side by side as the tracks of one stream, and what each of them brought. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace as with_fields

from clients.participants import MOST
from clients.play import Playback
from streaming.wire.messages import Ended, Receipt

from .corpus import Clip


@dataclass(frozen=True, slots=True, eq=False)
class Joined(Clip):
    """Clips that are spoken at the same time, each on a channel; `pcm` has shape (samples, tracks)."""

    parts: tuple[Clip, ...]
    """All as long as the longest."""


def beside(clips: Sequence[Clip]) -> Joined:
    """The clips as one stream, the shorter ones filled up with silence."""
    longest = max(len(clip.pcm) for clip in clips)
    parts = tuple(
        replace(
            clip,
            name=f"{clip.name}, track {number} of {len(clips)}",
            pcm=np.pad(clip.pcm, (0, longest - len(clip.pcm))),
        )
        for number, clip in enumerate(clips, 1)
    )
    names = " + ".join(clip.name for clip in clips)
    pcm = np.stack([part.pcm for part in parts], axis=1)
    return Joined(names, pcm, " ".join(clip.reference for clip in clips), clips[0].language, parts)


def deal(clips: Sequence[Clip], tracks: int) -> list[Joined]:
    """As many streams as play every clip once at least, those of like length together. Raises ValueError
    where a clip would have to be on two tracks at once."""
    if not 2 <= tracks <= MOST:
        raise ValueError(f"--tracks {tracks}: use 1 to {MOST}")
    if len(clips) < tracks:
        raise ValueError(f"{tracks} tracks need {tracks} clips, --select gives {len(clips)}: select more")
    ordered = sorted(clips, key=lambda clip: -clip.seconds)
    return [
        beside([ordered[number % len(ordered)] for number in range(first, first + tracks)])
        for first in range(0, len(ordered), tracks)
    ]


def parts_of(clip: Clip) -> tuple[Clip, ...]:
    """Its tracks, or the clip itself."""
    return clip.parts if isinstance(clip, Joined) else (clip,)


def apart(clip: Joined, playback: Playback, end: Ended | None) -> list[tuple[Clip, Playback]]:
    """Each part with what was told about its track alone, as if it had been a stream of its own.

    What was wrong with the stream is wrong with every one of its tracks.
    """
    receipts = () if end is None or end.tracks is UNSET else end.tracks
    return [
        (part, _track(part, playback, number, receipts[number] if number < len(receipts) else None))
        for number, part in enumerate(clip.parts)
    ]


def _track(part: Clip, whole: Playback, number: int, receipt: Receipt | None) -> Playback:
    track = Playback(
        part.name,
        sent=whole.sent,
        lag_s=whole.lag_s,
        ended_sending_s=whole.ended_sending_s,
        finished_s=whole.finished_s,
        cut_off=whole.cut_off,
        failure=whole.failure or next(iter(whole.captions.faults), None),
    )
    captions = whole.captions
    segments = sorted(
        (s for s in captions.segments.values() if s.track == number), key=lambda s: (s.first_word, s.id)
    )
    seq = 1
    for message in (
        captions.ready,
        *segments,
        None if receipt is None else Ended(0, receipt),
        captions.error,
    ):
        if message is not None:
            track.captions.receive(with_fields(message, seq=seq))
            seq += 1
    arrivals = captions.tracks[number].arrivals if number in captions.tracks else []
    if number in track.captions.tracks:
        # The newest segments alone do not tell it.
        track.captions.tracks[number].revised = captions.tracks[number].revised
    track.committed_s = [whole.committed_s[at] for at in arrivals]
    track.final_s = {word: whole.final_s[at] for word, at in enumerate(arrivals) if at in whole.final_s}
    track.first_text_s = {s.id: whole.first_text_s[s.id] for s in segments if s.id in whole.first_text_s}
    return track
