"""The thread in which one client's recording is taken apart, in step with the event loop: it runs only while
`feed` waits, and what it made is bounded. One thread a session, for FFmpeg reads by waiting."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO

import numpy as np

from engine.contract import Audio
from streaming.errors import InternalFault
from streaming.wire.errors import ProtocolError

from .demux import Broke, Piece, check_installed, file_pieces, pieces
from .samples import Frames

AHEAD = 4
"""Pieces, of a second at most, that may wait to be taken."""

STEP_S = 30.0
"""The longest wait for a piece, or for the thread to say that it needs more."""


class _Closed(Exception):
    """Nobody wants the rest."""


class ContainerDecoder:
    """One client's recording to whole frames at 16 kHz; raises `ProtocolError` where it is none. Belongs to
    one event loop; `close` it."""

    def __init__(self, tracks: int = 1, broke: Broke = lambda why: None) -> None:
        """`broke` is called in the loop; raises `ProtocolError` where PyAV is missing."""
        check_installed()
        self._frames = Frames(tracks)
        self._tracks = tracks
        self._broke = broke
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._turn = threading.Condition()
        # All below is changed under `_turn` only.
        self._inbox: deque[bytes] = deque()
        self._outbox: deque[Piece] = deque()
        self._begun = self._ended = self._closed = False
        self._idle = True
        self._fault: Exception | None = None

    async def feed(self, data: bytes) -> AsyncIterator[tuple[Audio, ...]]:
        """Of each track the whole frames that these bytes complete, piece by piece."""
        if data:
            with self._turn:
                self._inbox.append(data)
                self._wake()
            async for frames in self._collect():
                yield frames

    async def drain(self) -> AsyncIterator[tuple[Audio, ...]]:
        """No more bytes come: the frames that the demuxer still held back."""
        with self._turn:
            self._ended = True
            self._wake()
        if self._begun:
            async for frames in self._collect():
                yield frames

    def finish(self) -> tuple[tuple[Audio, ...], tuple[Audio, ...]]:
        """As `AudioDecoder.finish`, of what was taken before."""
        self.close()
        return self._frames.finish()

    def close(self) -> None:
        """The thread ends by itself, at its next byte or piece."""
        with self._turn:
            self._closed = True
            self._inbox.clear()
            self._outbox.clear()
            self._turn.notify_all()

    def _wake(self) -> None:
        if not self._begun and self._inbox:
            self._begun = True
            threading.Thread(target=self._run, name="demux", daemon=True).start()
        self._idle = not self._begun
        self._turn.notify_all()

    async def _collect(self) -> AsyncIterator[tuple[Audio, ...]]:
        while True:
            self._news.clear()
            with self._turn:
                made, idle, fault = list(self._outbox), self._idle, self._fault
                self._outbox.clear()
                self._turn.notify_all()
            for piece in made:
                yield self._frames.feed(piece.samples, piece.rate)
            if made:
                continue
            if fault is not None:
                raise fault
            if idle:
                return
            try:
                async with asyncio.timeout(STEP_S):
                    await self._news.wait()
            except TimeoutError:
                raise InternalFault from None

    # -- in the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        fault: Exception | None = None
        try:
            for piece in pieces(self._pull, self._tracks, self._say_broke):
                self._put(piece)
        except _Closed:
            pass
        except ProtocolError as error:
            fault = error
        except Exception as error:  # noqa: BLE001 - raised again in the loop
            fault = error
        with self._turn:
            self._idle, self._fault = True, fault
        self._tell()

    def _pull(self) -> bytes:
        with self._turn:
            if not self._inbox and not self._ended:
                self._idle = True
                self._tell()
            self._turn.wait_for(lambda: self._inbox or self._ended or self._closed)
            self._idle = False
            return self._inbox.popleft() if self._inbox else b""

    def _put(self, piece: Piece) -> None:
        with self._turn:
            self._turn.wait_for(lambda: len(self._outbox) < AHEAD or self._closed)
            if self._closed:
                raise _Closed
            self._outbox.append(piece)
        self._tell()

    def _say_broke(self, why: str) -> None:
        self._call(self._broke, why)

    def _tell(self) -> None:
        self._call(self._news.set)

    def _call(self, function: Callable[..., None], *arguments: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever would hear
            self._loop.call_soon_threadsafe(function, *arguments)


def file_samples(file: BinaryIO, tracks: int = 1) -> Iterator[Audio]:
    """A whole recording at 16 kHz, piece by piece, as (n, tracks): see `file_pieces`; `file` may be gone back
    in. Blocking; raises `ProtocolError` where it is none."""
    frames = Frames(tracks)
    for piece in file_pieces(file, tracks):
        yield np.stack(frames.feed(piece.samples, piece.rate), axis=1)
    last, tail = frames.finish()
    yield np.concatenate((np.stack(last, axis=1), np.stack(tail, axis=1)))
