"""The audio that is kept of sessions, on disk: what there is of each, and all of it as one FLAC file.

A session's folder holds a file for each run, named by its first sample on the session's clock; what was sent
again after a crash is in two of them, and between two there may be a hole. `AudioKeeper` writes them.
"""

from __future__ import annotations

import asyncio
import importlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.contract import SAMPLE_RATE

LAYOUTS = ("mono", "stereo", "3.0", "quad", "5.0", "5.1", "6.1", "7.1")
"""By the number of tracks; what the names promise of loudspeakers means nothing here."""

SILENCE = SAMPLE_RATE
"""Samples of a hole that are written at a time."""

Samples = npt.NDArray[np.int16]
"""Samples x channels."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One file: samples [start, end) of the session."""

    path: Path
    start: int
    end: int
    tracks: int


@dataclass(frozen=True, slots=True)
class Recording:
    """What there is of one session, in order of time."""

    pieces: tuple[Piece, ...]
    missing: tuple[tuple[int, int], ...]
    """Samples [start, end) that are in none, in order."""


class Recordings:
    """Folders below `folder`, one a session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sizes(self) -> dict[str, int]:
        """Bytes by session. Blocking."""
        if not self.folder.is_dir():
            return {}
        return {
            folder.name: sum(file.stat().st_size for file in folder.glob("*.flac"))
            for folder in self.folder.iterdir()
        }

    async def delete(self, session: str) -> None:
        """Remove all audio of a session."""
        await asyncio.to_thread(shutil.rmtree, self.folder / session, ignore_errors=True)

    def find(self, session: str, received: int) -> Recording | None:
        """What there is of a session that received so many samples; None where that is nothing. Blocking.
        Raises ImportError without the extra `files`."""
        av = importlib.import_module("av")
        found = (_measured(av, path) for path in sorted((self.folder / session).glob("*.flac")))
        pieces = tuple(piece for piece in found if piece is not None)
        if not pieces:
            return None
        missing, at = [], 0
        for piece in pieces:
            if piece.start > at:
                missing.append((at, piece.start))
            at = max(at, piece.end)
        if received > at:
            missing.append((at, received))
        return Recording(pieces, tuple(missing))


def _measured(av: Any, path: Path) -> Piece | None:
    """None for a file that breaks off before its first sample. One that breaks off later, or is still being
    written, does not say how long it is: its packets are counted."""
    start = int(path.stem)
    end, tracks = start, 0
    try:
        with av.open(str(path)) as container:
            stream = container.streams.audio[0]
            tracks = stream.channels
            for packet in container.demux(stream):
                end += packet.duration or 0
    except av.FFmpegError:
        pass
    return Piece(path, start, end, tracks) if end > start else None


def export(recording: Recording) -> Iterator[bytes]:
    """All of it as one FLAC file, some bytes at a time; what is missing is silence. Blocking."""
    av = importlib.import_module("av")
    sink = _Sink()
    tracks = max(piece.tracks for piece in recording.pieces)
    with av.open(sink, "w", format="flac") as container:
        stream = container.add_stream("flac", rate=SAMPLE_RATE, layout=LAYOUTS[tracks - 1])
        for samples in _whole(av, recording, tracks):
            frame = av.AudioFrame.from_ndarray(
                samples.reshape(1, -1), format="s16", layout=LAYOUTS[tracks - 1]
            )
            frame.sample_rate = SAMPLE_RATE
            container.mux(stream.encode(frame))
            yield sink.taken()
        container.mux(stream.encode(None))
    yield sink.taken()


def _whole(av: Any, recording: Recording, tracks: int) -> Iterator[Samples]:
    """All samples in order, each once."""
    at = 0
    for piece in recording.pieces:
        yield from _nothing(piece.start - at, tracks)
        at = max(at, piece.start)
        for start, samples in _decoded(av, piece):
            new = samples[max(0, at - start) : max(0, piece.end - start)]
            if len(new):
                yield new
                at += len(new)
    yield from _nothing(max((end for _, end in recording.missing), default=0) - at, tracks)


def _decoded(av: Any, piece: Piece) -> Iterator[tuple[int, Samples]]:
    at = piece.start
    try:
        with av.open(str(piece.path)) as container:
            for frame in container.decode(audio=0):
                samples = np.ascontiguousarray(frame.to_ndarray().reshape(-1, piece.tracks))
                yield at, samples
                at += len(samples)
    except av.FFmpegError:
        return  # it breaks off in a frame


def _nothing(samples: int, tracks: int) -> Iterator[Samples]:
    for size in (min(SILENCE, samples - done) for done in range(0, max(0, samples), SILENCE)):
        yield np.zeros((size, tracks), np.int16)


class _Sink:
    """A file that can only be written, as a pipe."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        """What was written since the last time."""
        data = b"".join(self._parts)
        self._parts.clear()
        return data


def spans_ms(spans: Sequence[tuple[int, int]], most: int) -> str:
    """Samples as `start-end, ...` in milliseconds, outwards; `more` behind the first `most`."""
    per_ms = SAMPLE_RATE // 1000
    told = [f"{start // per_ms}-{-(-end // per_ms)}" for start, end in spans[:most]]
    return ", ".join([*told, "more"] if len(spans) > most else told)
