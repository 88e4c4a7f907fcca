"""The native protocol from a client's side: typed messages of one session, over as many connections as it
takes.

    async with connect(url, Start(language="en")) as stream:
        await stream.send(samples)
        await stream.end()
        async for message in stream:
            ...

Where each channel is somebody, `Start` says who, and `send` takes the channels interleaved:

    Start(audio=AudioFormat(channels=2), tracks=(Track("Ann"), Track("Bob")))

A connection that breaks is made anew while one iterates: audio that the server has not acknowledged was kept
and is sent again, what was missed is read, and the iteration goes on: with a `Ready` that says `resumed`.

Everything is bounded: what waits to be read or sent, what is kept, and how long each step may take.

    ClientError          the stream cannot go on; `retryable` tells whether starting anew makes sense
    ├── Unreachable      nobody listens there
    ├── Refused          the server said no before `ready`, or to the session's going on
    └── Disconnected     the connection ended before the stream did, or with another code than "done"
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from streaming.wire.codec import JSON_PROTOCOL, SUBPROTOCOLS, Codec, choose
from streaming.wire.messages import (
    BEAT_S,
    Ack,
    Alive,
    Audio,
    End,
    Ended,
    Error,
    Flush,
    Flushed,
    Hotwords,
    Name,
    Presence,
    Ready,
    Resume,
    ServerMessage,
    Start,
)

from .dialing import (
    DEFAULT_URL,
    KEY,
    STREAM_PATH,
    ClientError,
    Deadlines,
    Dialer,
    Disconnected,
    Refused,
    Unreachable,
    closed,
    receive,
    stream_url,
)
from .kept import Kept, Said

KEPT_BYTES = 64 * 1024 * 1024
"""Audio that may wait for its acknowledgement: over half an hour of 16 kHz. Beyond it `send` waits, and what
the server has, but not on its disk, is kept no longer: a disk that stays full stops nobody."""

_ENVELOPE = 64  # what a codec may put around the audio of one packet
_NORMAL = "close_1000"
_BROKEN = frozenset({"close_1001", "close_1006", "close_1011", "close_1012", "close_1013", "silent"})
"""Ways to lose a connection that say nothing against the session."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 5.0


class Stream:
    """One running session. Sending and iterating may go on at the same time, one task each; who only sends
    does not see that the connection broke, nor that audio need not be kept any more."""

    def __init__(
        self, dialer: Dialer, socket: ClientConnection, codec: Codec, ready: Ready, deadlines: Deadlines
    ) -> None:
        self.ready = ready
        self.resumes = 0
        """How often the session went on over another connection."""
        self._dialer = dialer
        self._socket = socket
        self._codec = codec
        self._deadlines = deadlines
        self._kept = Kept(ready.audio, KEPT_BYTES)
        self._packet = max(1, ready.limits.max_packet_bytes - _ENVELOPE)
        self._seq = ready.seq
        self._down = False
        self._failure: ClientError | None = None
        self._bell = _Bell()
        self._busy = False
        self._over = False
        self._receipt_came = False

    async def send(self, audio: bytes) -> None:
        """Send audio in the format of `start`, cut anywhere, of any size: the server gets packets that it
        takes. Waits while the server is not reading; while there is no connection it is only kept."""
        for at in range(0, len(audio), self._packet):
            await self._say(Audio(audio[at : at + self._packet]))

    async def flush(self, id: str) -> None:
        """Ask for everything sent so far to become final; a `Flushed` with this id answers: use it once."""
        await self._say(Flush(id))

    async def alive(self) -> None:
        """Say that there is no audio for now but the client is there: its silence counts from here."""
        await self._say(Alive())

    async def name(self, speaker: int, name: str) -> None:
        """Call a speaker, by the number that segments carry, `name`, also in what was said before; empty: by
        number again. A number that nobody has ends the stream with an error."""
        await self._say(Name(speaker, name))

    async def presence(
        self, id: str, *, present: bool = True, name: str = "", speaker: int | None = None
    ) -> None:
        """Say that somebody came, or left; `id` is the source's, `speaker` the number they are heard as.
        Again: the same person, better known."""
        await self._say(Presence(id, present, name, speaker))

    async def expect(self, hotwords: Sequence[str]) -> None:
        """Words to expect from now on, in place of those of `start`."""
        await self._say(Hotwords(tuple(hotwords)))

    async def end(self) -> None:
        """Say that no more audio comes; the last segments and the receipt follow."""
        await self._say(End())

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> ServerMessage:
        """The next message; stops when the stream is complete, or after `Error`.

        A receipt alone does not say that: an `Error` may follow it, so only a normal close ends the
        stream. Raises `Disconnected` for any other end, unless the session can go on, and `Refused` where
        the server will not have it go on.
        """
        while not self._over:
            # A server that keeps sessions also says something every now and then.
            limit_s = self._deadlines.message_s
            limit_s = min(limit_s, 4 * BEAT_S) if self.ready.resume_ms else limit_s
            try:
                message = await receive(self._socket, self._codec, limit_s)
            except Disconnected as error:
                if self._receipt_came and error.code == _NORMAL:
                    self._over = True
                    break
                return await self._resume(error)
            self._note(message)
            return message
        raise StopAsyncIteration

    def _note(self, message: ServerMessage) -> None:
        self._seq = max(self._seq, message.seq)
        match message:
            case Ended():
                self._receipt_came = True
            case Error():
                self._over = True
            case Flushed(id=id):
                self._kept.answered(id)
            case Ack(sample=sample, durable=durable):
                self._kept.forget(durable)
                self._kept.spare(sample)
                self._bell.ring()

    # -- sending ---------------------------------------------------------------------------------

    async def _say(self, message: Said) -> None:
        """Keep the message, and return when it is on its way or has to wait for a connection."""
        await self._until(lambda: not self._kept.full, "acknowledged")
        self._kept.add(message)
        self._bell.ring()
        await self._until(lambda: self._down or (self._kept.done and not self._busy), "read")

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(self._deadlines.send_s):
                while self._failure is None and not holds():
                    await self._bell.rung()
        except TimeoutError:
            raise self._stalled(what) from None
        if self._failure is not None:
            raise self._failure

    def _stalled(self, what: str) -> Disconnected:
        text = f"the server {what} nothing for {self._deadlines.send_s:.0f} s"
        return Disconnected(text, code="stalled", retryable=True)

    async def carry(self) -> None:
        """Send what is to be said over whichever connection there is; `connect` runs it."""
        while self._failure is None:
            message = None if self._down else self._kept.next()
            self._busy = message is not None
            if message is None:
                self._bell.ring()
                await self._bell.rung()
                continue
            socket = self._socket
            try:
                async with asyncio.timeout(self._deadlines.send_s):
                    await socket.send(self._codec.encode_client(message))
            except ConnectionClosed as error:
                # Why it ended is for the reading side, which has yet to read what came before.
                self._down = self._down or socket is self._socket
                if not self._can_resume(closed(error)):
                    self._failure = closed(error)
            except TimeoutError:
                self._failure = self._stalled("read")
        self._bell.ring()

    # -- another connection ----------------------------------------------------------------------

    async def close(self) -> None:
        """Close the connection; `connect` does."""
        await self._socket.close()

    def _can_resume(self, error: Disconnected) -> bool:
        return error.code in _BROKEN and bool(self.ready.token) and self.ready.resume_ms > 0

    async def _resume(self, error: Disconnected) -> Ready:
        """Go on over another connection; raises `error` where that cannot be, or `Refused`."""
        self._down = True
        try:
            if not self._can_resume(error):
                raise error
            self._socket.transport.abort()
            socket, ready = await self._dial(error)
        except ClientError as failure:
            self._over, self._failure = True, failure
            self._bell.ring()
            raise
        self._socket, self._down = socket, False
        self._kept.rewind(ready.next_sample)
        self.resumes += 1
        self._bell.ring()
        return ready

    async def _dial(self, error: Disconnected) -> tuple[ClientConnection, Ready]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.ready.resume_ms / 1000
        for pause in _pauses():
            await asyncio.sleep(pause)
            resume = Resume(self.ready.session, self.ready.token, self._seq, self._kept.first_sample)
            try:
                async with asyncio.timeout_at(deadline):
                    return await self._dialer.dial(resume)
            except TimeoutError:
                raise error from None
            except ClientError as problem:
                if not (problem.retryable or problem.code == "restarting"):
                    raise
        raise AssertionError("the pauses have no end")


class _Bell:
    """Wakes all who wait, each time it is rung."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def rung(self) -> None:
        await self._event.wait()


def _pauses() -> Iterator[float]:
    """Before each try; apart, so that a thousand clients of one server do not come back at once."""
    longest = _FIRST_PAUSE_S
    while True:
        yield random.uniform(longest / 2, longest)
        longest = min(_LONGEST_PAUSE_S, 2 * longest)


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    start: Start | None = None,
    *,
    protocol: str = JSON_PROTOCOL,
    deadlines: Deadlines | None = None,
    key: str | None = None,
) -> AsyncIterator[Stream]:
    """Open a stream at a server's base URL or at its stream's own; raises `ClientError`.

    `key` is an API key; None takes the environment's SEAMSCRIBE_KEY, if there is one. `protocol` is one of
    the two subprotocols. The socket is closed when the block ends, whatever happened; a session that has not
    ended by then is left for good.
    """
    codec, deadlines = choose([protocol]), deadlines or Deadlines()
    if codec is None:
        raise ValueError(f"protocol: {protocol!r} is not spoken here: use {' or '.join(SUBPROTOCOLS)}")
    try:
        dialer = Dialer(url, codec, deadlines, os.environ.get(KEY) if key is None else key)
    except ValueError as error:
        raise Unreachable(str(error), code="url", retryable=False) from None
    socket, ready = await dialer.dial(start or Start())
    stream = Stream(dialer, socket, codec, ready, deadlines)
    carrying = asyncio.create_task(stream.carry())
    try:
        yield stream
    finally:
        carrying.cancel()
        await stream.close()
        await asyncio.wait([carrying])


__all__ = [
    "DEFAULT_URL",
    "STREAM_PATH",
    "ClientError",
    "Deadlines",
    "Disconnected",
    "Refused",
    "Stream",
    "Unreachable",
    "connect",
    "stream_url",
]
