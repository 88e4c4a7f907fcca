"""A small HTTP/1.1 client on asyncio streams: one POST or GET, an answer read as it comes.

SGLang's answers are plain (a length, or chunks), and a request every few milliseconds with a quarter
megabyte of audio leaves no time for a general client. Connections are kept and used again.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

JSON = "application/json"

_LINE = 65_536
"""Longest header line or event in bytes that is read at once."""
_BODY = 64 << 20
"""Longest answer taken, beside the length of what was asked."""


class HttpError(Exception):
    """The exchange broke. `sent` tells whether the server may have begun to work on the request."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass(slots=True, eq=False)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        self.writer.close()


@dataclass(frozen=True, slots=True)
class _Head:
    status: int
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def reusable(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"


class Endpoint:
    """One server: its address, its idle connections (at most `keep`), its credentials."""

    def __init__(self, url: str, *, key: str | None = None, keep: int = 256, connect_s: float = 5.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an http or https address")
        self.url = url.rstrip("/")
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._base = parts.path.rstrip("/")
        self._authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        self._idle: deque[_Connection] = deque(maxlen=keep)
        self._connect_s = connect_s

    async def exchange(
        self, method: str, path: str, body: bytes = b"", media: str = JSON
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """Send one request; yields (status, piece of the body) as pieces arrive, at least one.

        Closing the generator early closes the connection, which SGLang takes as a disconnect. Raises
        `HttpError`. No deadline of its own: the caller has one.
        """
        connection, head = await self._begin(method, path, body, media)
        whole = False
        try:
            async for piece in _body(connection.reader, head, _BODY + len(body)):
                yield head.status, piece
            whole = head.reusable
        except (OSError, EOFError, ValueError) as error:
            raise HttpError(f"the answer broke off: {error!r}", sent=True) from error
        finally:
            if whole:
                if len(self._idle) == self._idle.maxlen:
                    self._idle.popleft().close()
                self._idle.append(connection)
            else:
                connection.close()

    async def fetch(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """The same as one answer."""
        answers = [answer async for answer in self.exchange(method, path, body)]
        return answers[0][0], b"".join(piece for _, piece in answers)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _begin(self, method: str, path: str, body: bytes, media: str) -> tuple[_Connection, _Head]:
        """Send on a kept connection if one works, else on a new one."""
        head = (
            f"{method} {self._base}{path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Content-Type: {media}\r\nContent-Length: {len(body)}\r\n{self._authorization}\r\n"
        ).encode("ascii")
        while self._idle:
            # A kept connection may have been closed at the other end meanwhile: then nothing was taken.
            connection = self._idle.pop()
            if connection.reader.at_eof():
                connection.close()
                continue
            try:
                return connection, await self._send(connection, head, body)
            except HttpError as error:
                connection.close()
                if not isinstance(error.__cause__, EOFError | OSError):
                    raise  # that was an answer
        connection = await self._connect()
        try:
            return connection, await self._send(connection, head, body)
        except BaseException:
            connection.close()
            raise

    async def _connect(self) -> _Connection:
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, limit=_LINE
                )
        except TimeoutError:
            raise HttpError(f"no connection within {self._connect_s:g} s", sent=False) from None
        except OSError as error:
            raise HttpError(f"no connection: {error}", sent=False) from error
        return _Connection(reader, writer)

    @staticmethod
    async def _send(connection: _Connection, head: bytes, body: bytes) -> _Head:
        try:
            connection.writer.write(head)
            if body:
                connection.writer.write(body)
            await connection.writer.drain()
            return await _read_head(connection.reader)
        except asyncio.CancelledError:
            connection.close()
            raise
        except (OSError, EOFError, ValueError) as error:
            raise HttpError(f"no answer: {error!r}", sent=True) from error


async def _read_head(reader: asyncio.StreamReader) -> _Head:
    status_line = (await reader.readuntil(b"\r\n")).split(None, 2)
    if len(status_line) < 2 or not status_line[0].startswith(b"HTTP/1."):
        raise ValueError("not an HTTP answer")
    headers: dict[str, str] = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return _Head(int(status_line[1]), headers)


async def _body(reader: asyncio.StreamReader, head: _Head, most: int) -> AsyncGenerator[bytes, None]:
    """Pieces of the body, `most` bytes in all; an empty body is one empty piece."""
    if "chunked" in head.headers.get("transfer-encoding", ""):
        total = 0
        while (size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)) > 0:
            total += size
            if total > most:
                raise ValueError("the answer is too long")
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        if not total:
            yield b""
    else:
        size = int(head.headers.get("content-length", "0"))
        if not 0 <= size <= most:
            raise ValueError("the answer is too long")
        yield await reader.readexactly(size)
