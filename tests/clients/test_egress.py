"""Captions sent on: to servers that hold Zoom's and OBS's rules."""

from __future__ import annotations

import asyncio
import hashlib
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import pytest
from websockets.asyncio.server import ServerConnection, serve

from clients import egress
from clients.aio import connect
from clients.dialing import ClientError, Unreachable
from clients.egress import WAITING, Feed, Place, main, relay
from clients.reading import read
from clients.senders import NotSent, Obs, Zoom
from streaming.wire.messages import AudioFormat, Segment, Start, Track
from tests.support.foreign import segment
from tests.support.keys import READ, SPEAK, locked
from tests.support.server import Running, server
from tests.support.sound import expected, s16, speech

PASSWORD = "let me in"


class ZoomServer:
    """A meeting's caption address."""

    def __init__(self, last: int = 0, refusals: tuple[int, ...] = ()) -> None:
        self.last = last
        self.refusals = list(refusals)
        self.tries: list[tuple[int, str]] = []
        self.shown: list[str] = []
        self.paths: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/closedcaption?id=secret&ns=x"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split()
        path, _, query = target.partition("?")
        self.paths.append(path)
        said = dict(parse_qsl(query))
        assert said["id"] == "secret"
        status, body = 200, str(self.last)
        if method == "POST":
            size = next(
                int(x.split(":")[1]) for x in head.split("\r\n") if x.lower().startswith("content-length")
            )
            text = (await reader.readexactly(size)).decode()
            assert "content-type: text/plain" in head.lower()
            number = int(said["seq"])
            self.tries.append((number, said["lang"]))
            if self.refusals:
                status = self.refusals.pop(0)
            elif number == self.last + 1:
                self.last = number
                self.shown.append(text)
        else:
            assert path == "/closedcaption/seq"
        writer.write(
            f"HTTP/1.1 {status} X\r\nLocation: /else?id=secret\r\nContent-Length: {len(body)}\r\n"
            f"Connection: close\r\n\r\n{body}".encode()
        )
        await writer.drain()
        writer.close()


@asynccontextmanager
async def zoom(last: int = 0, refusals: tuple[int, ...] = ()) -> AsyncIterator[ZoomServer]:
    meeting = ZoomServer(last, refusals)
    listener = await asyncio.start_server(meeting.answer, "127.0.0.1", 0)
    meeting.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield meeting


@asynccontextmanager
async def obs(streams: bool = True) -> AsyncIterator[tuple[str, list[str]]]:
    """obs-websocket 5 with a password: its address, and the captions of its stream."""
    shown: list[str] = []

    def digest(text: str) -> str:
        return b64encode(hashlib.sha256(text.encode()).digest()).decode()

    async def met(socket: ServerConnection) -> None:
        asked = {"challenge": "c1", "salt": "s1"}
        hello = {"obsWebSocketVersion": "5.5.0", "rpcVersion": 1, "authentication": asked}
        await socket.send(json.dumps({"op": 0, "d": hello}))
        identify = json.loads(await socket.recv())
        assert (identify["op"], identify["d"]["rpcVersion"]) == (1, 1)
        if identify["d"].get("authentication") != digest(digest(PASSWORD + "s1") + "c1"):
            await socket.close(4009, "Authentication failed.")
            return
        await socket.send(json.dumps({"op": 2, "d": {"negotiatedRpcVersion": 1}}))
        async for frame in socket:
            request: dict[str, Any] = json.loads(frame)["d"]
            assert request["requestType"] == "SendStreamCaption"
            status = {"result": streams, "code": 100 if streams else 501}
            if streams:
                shown.append(request["requestData"]["captionText"])
            answer = {
                "requestType": request["requestType"],
                "requestId": request["requestId"],
                "requestStatus": status,
            }
            await socket.send(json.dumps({"op": 7, "d": answer}))

    async with serve(met, "127.0.0.1", 0) as listener:
        yield f"ws://127.0.0.1:{listener.sockets[0].getsockname()[1]}", shown


@asynccontextmanager
async def said(running: Running, slots: str = "xx..") -> AsyncIterator[Place]:
    """A session in which somebody called Ann speaks, and which ends with the block."""
    start = Start(audio=AudioFormat(channels=1), tracks=(Track("Ann"),))
    async with connect(running.http(""), start) as stream:
        place = Place(running.http(""), stream.ready.session, stream.ready.read_token, None)
        await stream.send(s16(speech(slots)))
        yield place
        await stream.end()
        async for _ in stream:
            pass


def test_each_word_is_sent_once_with_who_says_it() -> None:
    feed = Feed()
    assert feed.receive(segment(1, ["a"], partial=" b"))
    assert feed.receive(segment(1, ["a", "b"]))
    assert not feed.receive(segment(1, ["a", "b"], final=True))
    assert feed.take() == ">> a b"
    assert feed.receive(segment(2, ["c"], first=2))
    assert (feed.take(), feed.take()) == ("c", "")


def test_what_waits_too_long_is_dropped_from_its_beginning() -> None:
    feed = Feed()
    words = [f"word{n:03}" for n in range(100)]
    feed.receive(segment(1, words))
    text = feed.take()
    assert len(text) <= WAITING
    assert text.split() == words[-len(text.split()) :]
    assert feed.dropped > 0


async def test_a_sender_that_breaks_is_not_kept_from_who_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        async def send(self, text: str) -> None:
            raise RuntimeError("a bug")

        async def close(self) -> None: ...

    async def talk(*_: object, **__: object) -> AsyncIterator[Segment]:
        for number in range(100):
            await asyncio.sleep(0.001)
            yield segment(1, ["a"] * (number + 1))
        raise AssertionError("read on though nothing is shown any more")

    monkeypatch.setattr(egress, "read", talk)
    monkeypatch.setattr(egress, "BATCH_S", 0.0)
    with pytest.raises(RuntimeError, match="a bug"):
        await relay(Place("http://x", "s", None, None), Broken())


async def test_zoom_counts_captions_and_repeats_with_the_same_number() -> None:
    async with zoom(last=7, refusals=(503, 400)) as meeting:
        sender = Zoom(meeting.url, "de-DE")
        await sender.send("Hello")
        await sender.send("again")
        assert meeting.tries == [(8, "de-DE"), (8, "de-DE"), (8, "de-DE"), (9, "de-DE")]
        assert meeting.shown == ["Hello\n", "again\n"]


async def test_what_zoom_will_not_take_is_lost_and_the_next_goes_on() -> None:
    async with zoom(refusals=(404,)) as meeting:
        sender = Zoom(meeting.url)
        with pytest.raises(NotSent, match="HTTP 404") as lost:
            await sender.send("Hello")
        assert "secret" not in str(lost.value)
        meeting.last = 1
        await sender.send("again")
        assert meeting.shown == ["again\n"]


async def test_zooms_address_goes_to_nobody_else() -> None:
    async with zoom(refusals=(302, 307)) as meeting:
        sender = Zoom(meeting.url)
        for code in (302, 307):
            with pytest.raises(NotSent, match=f"HTTP {code}"):
                await sender.send("one")
        assert meeting.paths == ["/closedcaption/seq", "/closedcaption", "/closedcaption"]
        assert meeting.shown == []


async def test_obs_shows_captions_to_who_knows_its_password() -> None:
    async with obs() as (url, shown):
        sender = Obs(url, PASSWORD)
        await sender.send("Hello")
        await sender.send("again")
        await sender.close()
        assert shown == ["Hello", "again"]
        with pytest.raises(NotSent, match="password is wrong"):
            await Obs(url, "guess").send("x")
    async with obs(streams=False) as (url, shown):
        sender = Obs(url, PASSWORD)
        with pytest.raises(NotSent, match="does not stream"):
            await sender.send("Hello")
        await sender.close()
    with pytest.raises(NotSent, match="OBS"):
        await Obs(url, PASSWORD).send("nobody is there")


@pytest.mark.e2e
async def test_a_sessions_captions_reach_a_meeting_and_a_stream() -> None:
    async with server() as running, zoom() as meeting, obs() as (url, shown):
        async with said(running, "xx..xx..") as place:
            relays = [
                asyncio.create_task(relay(place, one)) for one in (Zoom(meeting.url), Obs(url, PASSWORD))
            ]
            await asyncio.sleep(0)
        for sent, lost in await asyncio.gather(*relays):
            assert (sent > 0, lost) == (True, 0)
        words = " ".join(expected("xx..xx.."))
        assert " ".join(text.strip() for text in meeting.shown) == f">> Ann: {words}"
        assert " ".join(shown) == f">> Ann: {words}"


@pytest.mark.e2e
async def test_who_may_not_read_is_told() -> None:
    async with server() as running, said(running) as place:
        with pytest.raises(ClientError) as refused:
            async for _ in read(place.url, place.session, token="wrong"):
                pass
        assert refused.value.code == "close_4404"


@pytest.mark.e2e
async def test_who_brings_nothing_is_told_what_is_wanted() -> None:
    async with server(services=locked()) as running:
        with pytest.raises(ClientError, match="HTTP 401: it wants an API key, put one into SEAMSCRIBE_KEY"):
            async for _ in read(running.http(""), "x", key="wrong"):
                pass


async def test_what_is_no_address_is_no_session() -> None:
    with pytest.raises(Unreachable, match="use http://HOST:PORT"):
        async for _ in read("http://h:99999", "x"):
            pass


@pytest.mark.e2e
async def test_a_key_reads_any_session() -> None:
    async with server(services=locked()) as running, zoom() as meeting:
        async with connect(running.http(""), key=SPEAK) as stream:
            place = Place(running.http(""), stream.ready.session, None, READ)
            relaying = asyncio.create_task(relay(place, Zoom(meeting.url)))
            await stream.send(s16(speech("xx..")))
            await stream.end()
            async for _ in stream:
                pass
        await relaying
        assert " ".join(text.strip() for text in meeting.shown) == ">> " + " ".join(expected("xx.."))


@pytest.mark.parametrize(
    "argv",
    [
        ["x", "--to", "zoom", "https://zoom.example/closedcaption"],
        ["x", "--to", "obs", "http://x"],
        ["x", "--to", "tv", "http://x"],
        ["x", "--to", "obs", "ws://127.0.0.1:4455", "--url", "ftp://x"],
    ],
)
def test_places_that_are_none(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(argv)
    assert "error: " in capsys.readouterr().err
