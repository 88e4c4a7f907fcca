"""Where captions can be sent: Zoom's closed captions, and a stream that OBS sends out."""

from __future__ import annotations

import asyncio
import hashlib
import json
import urllib.error
import urllib.request
from base64 import b64encode
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from .asking import opener
from .dialing import Direct

DEADLINE_S = 10.0
"""Of one request; and so long one caption is tried, for it is old then."""

PAUSES_S = (0.25, 0.5, 1.0, 2.0)


class NotSent(Exception):
    """This caption is lost; the next may go. The message says why, and no secret."""


class Sender(Protocol):
    """One place for captions."""

    async def send(self, text: str) -> None:
        """Show `text` next; raises `NotSent`."""
        ...

    async def close(self) -> None: ...


class Zoom:
    """A meeting's closed captions, by the address that its host copies ("caption API token"). A caption has
    the number after the one before, a repeated one keeps its own, and the first goes on from what the
    meeting has."""

    def __init__(self, url: str, lang: str = "en-US") -> None:
        """Raises ValueError for what is no such address."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not parts.query:
            raise ValueError("zoom takes the caption address of a meeting: https://HOST/closedcaption?id=...")
        self._url = url
        self._last_url = urlunsplit(parts._replace(path=parts.path.rstrip("/") + "/seq"))
        self._lang = lang
        self._seq: int | None = None
        self._opener = opener(url)

    async def send(self, text: str) -> None:
        if self._seq is None:
            try:
                self._seq = int(await self._ask(self._last_url, None))
            except ValueError:
                self._seq = 0
        self._seq += 1
        await self._ask(f"{self._url}&seq={self._seq}&lang={self._lang}", f"{text}\n".encode())

    async def close(self) -> None:
        """Nothing stays open."""

    async def _ask(self, url: str, body: bytes | None) -> str:
        """The answer, after as many tries as the deadline allows."""
        why = ""
        try:
            async with asyncio.timeout(DEADLINE_S):
                for pause in (*PAUSES_S, *[PAUSES_S[-1]] * 10):
                    try:
                        return await asyncio.to_thread(self._once, url, body)
                    except urllib.error.HTTPError as error:
                        why = f"HTTP {error.code}"
                        if error.code not in (400, 403, 405, 408) and error.code < 500:
                            break
                    except (OSError, ValueError) as error:
                        why = type(error).__name__
                    await asyncio.sleep(pause)
        except TimeoutError:
            why = why or "no answer"
        raise NotSent(f"Zoom: {why}")

    def _once(self, url: str, body: bytes | None) -> str:
        headers = {"Content-Type": "text/plain"} if body is not None else {}
        request = urllib.request.Request(url, body, headers)
        with self._opener.open(request, timeout=DEADLINE_S) as answer:
            return str(answer.read(4096).decode("utf-8", "replace"))


class Obs:
    """Captions inside the stream that OBS sends (CEA-608), over obs-websocket 5. Connects by itself, and
    again where the line broke."""

    def __init__(self, url: str, password: str = "") -> None:
        """Raises ValueError for what is no such address."""
        if urlsplit(url).scheme not in ("ws", "wss"):
            raise ValueError("obs takes the address of its websocket server: ws://127.0.0.1:4455")
        self._url = url
        self._password = password
        self._socket: ClientConnection | None = None
        self._asked = 0

    async def send(self, text: str) -> None:
        try:
            async with asyncio.timeout(DEADLINE_S):
                if self._socket is None:
                    self._socket = await self._connected()
                await self._request(self._socket, text)
        except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, ValueError, KeyError) as error:
            await self.close()
            closed = isinstance(error, ConnectionClosed) and error.rcvd
            wrong = closed and error.rcvd is not None and error.rcvd.code == 4009  # type: ignore[union-attr]
            raise NotSent("OBS: the password is wrong" if wrong else f"OBS: {type(error).__name__}") from None

    async def close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()

    async def _connected(self) -> ClientConnection:
        socket = await Direct(self._url, proxy=None, open_timeout=DEADLINE_S, close_timeout=1.0)
        try:
            hello = json.loads(await socket.recv())["d"]
            identify: dict[str, Any] = {"rpcVersion": 1, "eventSubscriptions": 0}
            if (wanted := hello.get("authentication")) is not None:
                secret = _digest(self._password + wanted["salt"])
                identify["authentication"] = _digest(secret + wanted["challenge"])
            await socket.send(json.dumps({"op": 1, "d": identify}))
            while json.loads(await socket.recv())["op"] != 2:
                pass
        except BaseException:
            await socket.close()
            raise
        return socket

    async def _request(self, socket: ClientConnection, text: str) -> None:
        self._asked += 1
        asked = {"requestType": "SendStreamCaption", "requestId": str(self._asked)}
        await socket.send(json.dumps({"op": 6, "d": {**asked, "requestData": {"captionText": text}}}))
        while True:
            answer = json.loads(await socket.recv())
            if answer["op"] == 7 and answer["d"]["requestId"] == asked["requestId"]:
                break
        status = answer["d"]["requestStatus"]
        if not status["result"]:
            live = "it does not stream" if status["code"] == 501 else f"code {status['code']}"
            raise NotSent(f"OBS: {live}")


def _digest(text: str) -> str:
    return b64encode(hashlib.sha256(text.encode()).digest()).decode()
