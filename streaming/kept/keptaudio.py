"""The audio of sessions, kept as FLAC where an operator wants it. One thread encodes for all.

A file holds what came in one run, all tracks as its channels; after a crash or a hole another one begins.
`recordings` reads them.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import queue
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine.contract import SAMPLE_RATE, Audio
from streaming.observe.metrics import Metrics

from .recordings import LAYOUTS, Recording, Recordings

logger = logging.getLogger("seamscribe")

WAITING = 512
"""Pieces that may wait for the thread, a second each at most; more are dropped, counted, and a hole."""

WRITE_S = 10.0
"""So long one who wants to hear what is kept waits for what is not written yet."""


@dataclass(slots=True)
class _File:
    """One run being written."""

    container: Any
    stream: Any
    end: int


class AudioKeeper(Recordings):
    """Keeps new ones. Raises ImportError without the extra `files`."""

    def __init__(self, folder: Path, metrics: Metrics) -> None:
        super().__init__(folder)
        self._av = importlib.import_module("av")
        self._metrics = metrics
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._files: dict[str, _File] = {}
        self._failing = False
        self._thread = threading.Thread(target=self._work, name="audio", daemon=True)
        self._thread.start()

    def write(self, session: str, start: int, tracks: tuple[Audio, ...]) -> None:
        """Keep a piece that begins at sample `start`, of each track as many samples. Never blocks."""
        if self._jobs.qsize() < WAITING:
            self._jobs.put(lambda: self._write(session, start, tracks))
        else:
            self._metrics.kept_audio.add(len(tracks[0]) / SAMPLE_RATE, outcome="dropped")

    def finish(self, session: str) -> None:
        """No more of this session comes. Never blocks."""
        self._jobs.put(lambda: self._close(session))

    def find(self, session: str, received: int) -> Recording | None:
        """As `Recordings`, with what waits to be written."""
        written = threading.Event()
        self._jobs.put(written.set)
        written.wait(WRITE_S)
        return super().find(session, received)

    async def delete(self, session: str) -> None:
        """Remove all audio of a session."""

        done = threading.Event()

        def delete() -> None:
            try:
                self._close(session)
            finally:
                shutil.rmtree(self.folder / session, ignore_errors=True)
                done.set()

        self._jobs.put(delete)
        await asyncio.to_thread(done.wait)

    async def close(self) -> None:
        """Finish all files and stop."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    # -- the thread's side -----------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._try(job)
        for session in list(self._files):
            self._try(lambda session=session: self._close(session))  # type: ignore[misc]

    def _try(self, job: Callable[[], None]) -> None:
        try:
            job()
        except (OSError, ValueError, self._av.FFmpegError) as error:
            if not self._failing:
                logger.warning("audio is not kept: %(error)s", {"error": error})
            self._failing = True
        else:
            self._failing = False

    def _write(self, session: str, start: int, tracks: tuple[Audio, ...]) -> None:
        outcome = "failed"
        try:
            self._encode(session, start, tracks)
            outcome = "kept"
        finally:
            # From this thread alone, and in places that are there from the start.
            self._metrics.kept_audio.add(len(tracks[0]) / SAMPLE_RATE, outcome=outcome)

    def _encode(self, session: str, start: int, tracks: tuple[Audio, ...]) -> None:
        file = self._files.get(session)
        if file is None or file.end != start:
            self._close(session)
            file = self._files[session] = self._open(session, start, len(tracks))
        samples = np.clip(np.stack(tracks, axis=1).ravel() * 32767.0, -32768, 32767).round().astype(np.int16)
        frame = self._av.AudioFrame.from_ndarray(
            samples[np.newaxis], format="s16", layout=LAYOUTS[len(tracks) - 1]
        )
        frame.sample_rate = SAMPLE_RATE
        file.end = start + len(tracks[0])
        file.container.mux(file.stream.encode(frame))

    def _open(self, session: str, start: int, tracks: int) -> _File:
        folder = self.folder / session
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        container = self._av.open(
            str(folder / f"{start:012}.flac"), "w", format="flac", options={"flush_packets": "1"}
        )
        stream = container.add_stream("flac", rate=SAMPLE_RATE, layout=LAYOUTS[tracks - 1])
        return _File(container, stream, start)

    def _close(self, session: str) -> None:
        if (file := self._files.pop(session, None)) is not None:
            file.container.mux(file.stream.encode(None))
            file.container.close()
