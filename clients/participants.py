"""Recordings as the tracks of one stream: the channels of one file, or several files side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from streaming.wire.messages import Start, Track
from streaming.wire.names import plain

from .audio import RATE, AudioError, Warn, count_channels, decode, duration_s, packets

MOST = 8
"""Tracks in one stream, as the protocol has it."""

_BLOCK_S = 0.5


@dataclass(frozen=True, slots=True)
class Participants:
    """Several people, each on a channel; the first samples are there already."""

    tracks: tuple[Track, ...]
    pieces: Iterator[bytes]
    """s16le 16 kHz, the tracks interleaved; cut anywhere."""
    length_s: float | None


def open_participants(paths: Sequence[Path], names: Sequence[str], warn: Warn) -> Participants:
    """The channels of one file, or several files, each mixed down to mono and filled up with silence to the
    longest. `names` go by order; files without one go by theirs. Raises `AudioError`."""
    channels = count_channels(paths[0]) if len(paths) == 1 else len(paths)
    what = f"{paths[0]} has 1 channel" if channels == 1 else f"{channels} tracks"
    if not 2 <= channels <= MOST:
        raise AudioError(f"{what}: --tracks takes a file of 2 to {MOST} channels, or 2 to {MOST} files")
    if len(names) > channels:
        raise AudioError(f"{len(names)} times --track-name, but {channels} tracks: name each track once")
    if len(paths) == 1:
        pieces = _begun(decode(paths[0], warn, channels))
        known: list[str | None] = [None] * channels
    else:
        pieces = beside([_begun(decode(path, warn)) for path in paths])
        known = [plain(path.stem)[:64].strip() or None for path in paths]
    tracks = tuple(Track(name) for name in [*names, *known[len(names) :]])
    lengths = [duration_s(path) for path in paths]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    return Participants(tracks, pieces, longest)


def _begun(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same with its first piece decoded: a file that gives nothing fails before a stream is opened."""
    return chain([next(pieces)], pieces)


def with_tracks(start: Start, tracks: Sequence[Track]) -> Start:
    """`start` for audio that holds these tracks."""
    audio = replace(start.audio, channels=len(tracks))
    return replace(start, audio=audio, tracks=tuple(tracks))


def beside(sources: Sequence[Iterator[bytes]]) -> Iterator[bytes]:
    """Mono s16le pieces of each source as one interleaved stream, as long as the longest. A source that
    breaks goes on in silence, and its `AudioError` comes at the end."""
    broken: list[AudioError] = []

    def whole(source: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from packets(source, 2 * round(_BLOCK_S * RATE))
        except AudioError as error:
            broken.append(error)

    for blocks in zip_longest(*map(whole, sources), fillvalue=b""):
        size = max(map(len, blocks))
        columns = [np.frombuffer(block.ljust(size, b"\0"), "<i2") for block in blocks]
        if size:
            yield np.stack(columns, axis=1).tobytes()
    if broken:
        raise broken[0]
