"""The native protocol from a client's side: typed messages over one websocket.

    async with connect(url, Start(language="en")) as stream:
        await stream.send(samples)
        await stream.end()
        async for message in stream:
            ...

Where each channel is somebody, `Start` says who, and `send` takes the channels interleaved:

    Start(audio=AudioFormat(channels=2), tracks=(Track("Ann"), Track("Bob")))

Everything is bounded: what waits to be read or sent, and how long each step may take.

    ClientError          the stream cannot go on; `retryable` tells whether trying again makes sense
    ├── Unreachable      nobody listens there
    ├── Refused          the server said no before `ready`
    └── Disconnected     the connection ended before the stream did, or with another code than "done"
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from websockets import Subprotocol
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    WebSocketException,
)

from streaming.wire.codec import JSON_PROTOCOL, Codec, choose
from streaming.wire.errors import CloseCode, ProtocolError
from streaming.wire.messages import Audio, End, Ended, Error, Flush, Ready, ServerMessage, Start

STREAM_PATH = "/v1/stream"
DEFAULT_URL = "http://127.0.0.1:8765"

_MAX_MESSAGE = 16 * 1024 * 1024  # the receipt of a day has many spans
_WAITING_MESSAGES = 256
_ENVELOPE = 64  # what a codec may put around the audio of one packet
_NORMAL = 1000
_RETRY = frozenset({CloseCode.LIMIT, CloseCode.FAULT, CloseCode.RESTART, CloseCode.OVERLOAD, 1001, 1006})


class ClientError(Exception):
    """The stream cannot go on."""

    def __init__(self, message: str, *, code: str, retryable: bool) -> None:
        super().__init__(message)
        self.code = code
        """The server's error code, or a short word of ours."""
        self.retryable = retryable


class Unreachable(ClientError):
    """No server answers at this address."""


class Refused(ClientError):
    """The server answered, but gave no stream."""


class Disconnected(ClientError):
    """The connection ended or fell silent before the stream was known to be complete."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that one step may take. Sending waits while the server pauses reading, so it is generous."""

    open_s: float = 10.0
    ready_s: float = 30.0
    send_s: float = 120.0
    message_s: float = 120.0
    close_s: float = 5.0
    ping_s: float = 20.0
    """Pings keep the way open through proxies. They have no deadline: while the server pauses reading, a
    ping waits behind the audio sent before it, and `message_s` and `send_s` find a dead server."""


class Stream:
    """One running session. Sending and iterating may go on at the same time, one task each."""

    def __init__(self, socket: ClientConnection, codec: Codec, ready: Ready, deadlines: Deadlines) -> None:
        self.ready = ready
        self._socket = socket
        self._codec = codec
        self._deadlines = deadlines
        self._over = False
        self._receipt_came = False

    async def send(self, audio: bytes) -> None:
        """Send audio in the format of `start`, cut anywhere, of any size: the server gets packets that it
        takes. Waits while the server is not reading."""
        size = max(1, self.ready.limits.max_packet_bytes - _ENVELOPE)
        for at in range(0, len(audio), size):
            await self._send(Audio(audio[at : at + size]))

    async def flush(self, id: str) -> None:
        """Ask for everything sent so far to become final; a `Flushed` with this id answers."""
        await self._send(Flush(id))

    async def end(self) -> None:
        """Say that no more audio comes; the last segments and the receipt follow."""
        await self._send(End())

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> ServerMessage:
        """The next message; stops when the stream is complete, or after `Error`.

        A receipt alone does not say that: an `Error` may follow it, so only a normal close ends the
        stream. Raises `Disconnected` for any other end.
        """
        if self._over:
            raise StopAsyncIteration
        try:
            message = await _receive(self._socket, self._codec, self._deadlines.message_s)
        except Disconnected as error:
            self._over = True
            if self._receipt_came and error.code == f"close_{_NORMAL}":
                raise StopAsyncIteration from None
            raise
        self._receipt_came = self._receipt_came or isinstance(message, Ended)
        self._over = isinstance(message, Error)
        return message

    async def _send(self, message: Audio | Flush | End) -> None:
        try:
            async with asyncio.timeout(self._deadlines.send_s):
                await self._socket.send(self._codec.encode_client(message))
        except ConnectionClosed as error:
            raise _closed(error) from error
        except TimeoutError as error:
            raise Disconnected(
                f"the server read nothing for {self._deadlines.send_s:.0f} s", code="stalled", retryable=True
            ) from error


@asynccontextmanager
async def connect(
    url: str = DEFAULT_URL,
    start: Start | None = None,
    *,
    protocol: str = JSON_PROTOCOL,
    deadlines: Deadlines | None = None,
) -> AsyncIterator[Stream]:
    """Open a stream at a server's base URL or at its stream's own; raises `ClientError`.

    `protocol` is one of the two subprotocols. The socket is closed when the block ends, whatever happened.
    """
    codec, deadlines = choose([protocol]), deadlines or Deadlines()
    if codec is None:
        raise ValueError(f"unknown subprotocol {protocol!r}")
    try:
        address = stream_url(url)
    except ValueError as error:
        raise Unreachable(str(error), code="url", retryable=False) from None
    socket = await _open(address, protocol, deadlines)
    try:
        # A server that refuses at once may have closed already; its reason is still there to be read.
        with suppress(ConnectionClosed):
            await socket.send(codec.encode_client(start or Start()))
        first = await _receive(socket, codec, deadlines.ready_s)
        match first:
            case Ready():
                yield Stream(socket, codec, first, deadlines)
            case Error():
                raise Refused(first.message, code=first.code, retryable=bool(first.retry_after_ms))
            case _:
                raise Refused(f"{url} spoke before it was ready", code="protocol", retryable=False)
    finally:
        await socket.close()


def stream_url(url: str) -> str:
    """The websocket address behind a base URL (http, https, ws, wss; a path of its own is kept); raises
    ValueError, with the remedy."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}", scheme="ws")
        scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
        usable = scheme in {"ws", "wss"} and parts.hostname and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        usable = False
    if not usable:
        raise ValueError(f"{url!r} is no address of a server: use http://HOST:PORT (or https, ws, wss)")
    path = parts.path if parts.path.strip("/") else STREAM_PATH
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


async def _open(url: str, protocol: str, deadlines: Deadlines) -> ClientConnection:
    loopback = (urlsplit(url).hostname or "") in {"localhost", "127.0.0.1", "::1"}
    try:
        return await open_socket(
            url,
            subprotocols=[Subprotocol(protocol)],
            compression=None,  # audio does not shrink, and captions are small
            open_timeout=deadlines.open_s,
            close_timeout=deadlines.close_s,
            max_size=_MAX_MESSAGE,
            max_queue=_WAITING_MESSAGES,
            ping_interval=deadlines.ping_s,
            ping_timeout=None,
            proxy=None if loopback else True,  # a proxy of the environment cannot reach our loopback
        )
    except InvalidStatus as error:
        status = error.response.status_code
        raise Refused(
            f"{url} answered with HTTP {status}", code=f"http_{status}", retryable=status in {429, 503}
        ) from error
    except (InvalidURI, ValueError) as error:
        raise Unreachable(f"{url} is no address of a server: {error}", code="url", retryable=False) from error
    except (InvalidHandshake, WebSocketException) as error:
        raise Refused(f"{url} is no Seamscribe server: {error}", code="handshake", retryable=False) from error
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"no server answers at {url}", code="unreachable", retryable=True) from error


async def _receive(socket: ClientConnection, codec: Codec, limit_s: float) -> ServerMessage:
    try:
        async with asyncio.timeout(limit_s):
            data = await socket.recv()
    except ConnectionClosed as error:
        raise _closed(error) from error
    except TimeoutError as error:
        raise Disconnected(
            f"the server said nothing for {limit_s:.0f} s", code="silent", retryable=True
        ) from error
    try:
        return codec.decode_server(data)
    except ProtocolError as error:
        raise Disconnected(
            f"the server broke the protocol: {error}", code="protocol", retryable=False
        ) from error


def _closed(error: ConnectionClosed) -> Disconnected:
    frame = error.rcvd
    code, reason = (frame.code, frame.reason) if frame else (1006, "without a word")
    return Disconnected(
        f"the connection ended before the stream did (close code {code}: {reason or 'no reason given'})",
        code=f"close_{code}",
        retryable=code in _RETRY,
    )
