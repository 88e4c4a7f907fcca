"""Connections of the native protocol from a client's side: opened, read from, and why they ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
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

from streaming.wire.codec import Codec
from streaming.wire.errors import CloseCode, ProtocolError
from streaming.wire.messages import Error, Ready, Resume, ServerMessage, Start

STREAM_PATH = "/v1/stream"
DEFAULT_URL = "http://127.0.0.1:8765"
KEY = "SEAMSCRIBE_KEY"
"""The variable of the environment that holds the API key, for all commands that are clients."""

_MAX_MESSAGE = 16 * 1024 * 1024  # the receipt of a day has many spans
_WAITING_MESSAGES = 256
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


class Direct(open_socket):
    """Follows no redirect: a key is for the server that it was given for."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Dialer:
    """Opens connections to one server; `url` is its base or its stream's own, `key` an API key. Raises
    ValueError."""

    def __init__(self, url: str, codec: Codec, deadlines: Deadlines, key: str | None = None) -> None:
        self._url = stream_url(url)
        self._headers = {"Authorization": f"Bearer {key}"} if key else None
        self._codec = codec
        self._deadlines = deadlines

    async def dial(self, first: Start | Resume) -> tuple[ClientConnection, Ready]:
        """A connection and the server's answer to the first message; raises `ClientError`."""
        # Under load a server refuses who does not say that it only comes back.
        socket = await self._open(self._url if isinstance(first, Start) else coming_back(self._url))
        try:
            return socket, await self._introduce(socket, first)
        except BaseException:
            await socket.close()
            raise

    async def _introduce(self, socket: ClientConnection, first: Start | Resume) -> Ready:
        # A server that refuses at once may have closed already; its reason is still there to be read.
        with suppress(ConnectionClosed):
            await socket.send(self._codec.encode_client(first))
        match await receive(socket, self._codec, self._deadlines.ready_s):
            case Ready() as ready:
                return ready
            case Error() as error:
                raise Refused(error.message, code=error.code, retryable=bool(error.retry_after_ms))
            case _:
                raise Refused(f"{self._url} spoke before it was ready", code="protocol", retryable=False)

    async def _open(self, url: str) -> ClientConnection:
        try:
            return await Direct(
                url,
                subprotocols=[Subprotocol(self._codec.name)],
                additional_headers=self._headers,
                compression=None,  # audio does not shrink, and captions are small
                open_timeout=self._deadlines.open_s,
                close_timeout=self._deadlines.close_s,
                max_size=_MAX_MESSAGE,
                max_queue=_WAITING_MESSAGES,
                ping_interval=self._deadlines.ping_s,
                ping_timeout=None,
                proxy=None if on_loopback(url) else True,
            )
        except InvalidStatus as error:
            status = error.response.status_code
            raise Refused(
                f"{url} answered with HTTP {status}{remedy_of(status)}",
                code=f"http_{status}",
                retryable=status in {429, 502, 503, 504},
            ) from error
        except (InvalidURI, ValueError) as error:
            raise Unreachable(
                f"{url} is no address of a server: {error}", code="url", retryable=False
            ) from error
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"no server answers at {url}", code="unreachable", retryable=True) from error
        except (InvalidHandshake, WebSocketException) as error:
            # Where the connection broke in the middle of it, there may be a server all the same.
            broken = isinstance(error.__cause__, EOFError | ConnectionError)
            raise Refused(
                f"{url} is no Seamscribe server: {error}", code="handshake", retryable=broken
            ) from (error)


def on_loopback(url: str) -> bool:
    """Whether it is on this machine, which a proxy of the environment cannot reach."""
    return (urlsplit(url).hostname or "") in {"localhost", "127.0.0.1", "::1"}


def remedy_of(status: int) -> str:
    """What may be done where a request is answered so."""
    return f": it wants an API key, put one into {KEY}" if status == 401 else ""


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


def coming_back(url: str) -> str:
    """The address for a client that resumes a session."""
    return url + ("&" if urlsplit(url).query else "?") + "resume=1"


async def receive(socket: ClientConnection, codec: Codec, limit_s: float) -> ServerMessage:
    """The next message; raises `Disconnected`."""
    try:
        async with asyncio.timeout(limit_s):
            data = await socket.recv()
    except ConnectionClosed as error:
        raise closed(error) from error
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


def closed(error: ConnectionClosed) -> Disconnected:
    """How the connection ended."""
    frame = error.rcvd
    code, reason = (frame.code, frame.reason) if frame else (1006, "without a word")
    return Disconnected(
        f"the connection ended before the stream did (close code {code}: {reason or 'no reason given'})",
        code=f"close_{code}",
        retryable=code in _RETRY,
    )
