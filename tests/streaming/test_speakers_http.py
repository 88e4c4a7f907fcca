"""Naming a speaker over HTTP: the session's client hears of it, its transcript shows it, and bad requests are
told what is wrong with them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import numpy as np
import pytest

from clients.aio import connect
from clients.captions import Captions
from streaming.kept.transcripts import export
from streaming.sessions.registry import Entry
from streaming.wire.messages import AudioFormat, Segment, Start, Track, Word
from tests.support.server import Running, server
from tests.support.sound import s16, speech

pytestmark = pytest.mark.e2e


def spoken(running: Running) -> Entry:
    """A session in which speaker 1 said something."""
    entry = running.services.sessions.open()
    entry.put(Segment(0, 1, 1, 0, 0, 400, 1, "Hello", (Word("Hello", 0, 400),), "", True))
    return entry


async def test_a_name_is_told_shown_and_taken_away_again() -> None:
    async with server() as running, httpx.AsyncClient(trust_env=False) as http:
        entry = spoken(running)
        url = running.http(f"/v1/sessions/{entry.id}")
        put = await http.put(f"{url}/speakers/1", json={"name": " Zoe\u0308 "})
        assert (put.status_code, put.json()) == (200, {"speaker": 1, "name": "Zoë"})
        assert (await http.get(f"{url}/transcript.txt")).text == "Zoë: Hello\n"
        assert "SPEAKER" in (await http.get(f"{url}/transcript.rttm")).text
        body = (await http.get(f"{url}/transcript.json")).json()
        assert (body["segments"][0]["speaker"], body["segments"][0]["name"]) == (1, "Zoë")
        deleted = await http.delete(f"{url}/speakers/1")
        assert (deleted.status_code, deleted.content) == (204, b"")
        assert (await http.get(f"{url}/transcript.txt")).text == "Speaker 1: Hello\n"
        running.services.sessions.close(entry)
        assert (await http.put(f"{url}/speakers/1", json={"name": "Ada"})).status_code == 200
        assert (await http.get(f"{url}/transcript.stm")).text.split()[2] == "Ada"


async def test_a_living_session_is_told_and_may_know_more_speakers_than_were_shown() -> None:
    told: list[tuple[int, str]] = []

    def rename(speaker: int, name: str) -> None:
        if speaker > 2:
            raise KeyError(speaker)
        told.append((speaker, name))

    async with server() as running, httpx.AsyncClient(trust_env=False) as http:
        entry = spoken(running)
        entry.renamer = rename
        url = running.http(f"/v1/sessions/{entry.id}/speakers")
        assert (await http.put(f"{url}/2", json={"name": "Ada"})).status_code == 200
        assert (await http.delete(f"{url}/1")).status_code == 204
        assert (await http.put(f"{url}/3", json={"name": "Ada"})).status_code == 404
        assert told == [(2, "Ada"), (1, "")]
        running.services.sessions.close(entry)
        assert (await http.put(f"{url}/2", json={"name": "Ada"})).status_code == 404  # nobody's in the record


async def test_the_sessions_client_hears_of_a_name_in_the_middle_of_its_stream() -> None:
    async with server() as running, httpx.AsyncClient(trust_env=False) as http:
        two = AudioFormat(channels=2)
        async with connect(running.http(""), Start(audio=two, tracks=(Track("Ada"), Track()))) as stream:
            captions = Captions()
            captions.receive(stream.ready)
            url = running.http(f"/v1/sessions/{stream.ready.session}/speakers")
            assert (await http.put(f"{url}/3", json={"name": "Cyd"})).status_code == 404
            assert (await http.put(f"{url}/2", json={"name": "Bea"})).status_code == 200
            left, right = speech("xx...."), speech("...xx.")
            await stream.send(s16(np.stack([left, right], axis=1).ravel()))
            await stream.end()
            async for message in stream:
                captions.receive(message)
        assert captions.faults == []
        assert [(t.speaker, t.name, t.text) for t in captions.turns(99)] == [
            (1, "Ada", "zero one"),
            (2, "Bea", "three four"),
        ]
        shown = await http.get(running.http(f"/v1/sessions/{stream.ready.session}/transcript.txt"))
        assert shown.text == "Ada: zero one\nBea: three four\n"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b'{"name": ""}', 400, "name: is empty: use 1 to 64 characters (to take the name away, send DELETE)"),
        (b'{"name": "   "}', 400, "name: is empty"),
        (b'{"name": "%s"}' % (b"x" * 65), 400, "name: has 65 characters: use 1 to 64"),
        (b'{"name": "a\\nb"}', 400, "name: a\\nb holds characters that cannot be shown"),
        (b'{"name": "a\\u202eb"}', 400, "name: a\\u202eb holds"),
        (b'{"name": "\\ud800"}', 400, "body: "),
        (b'{"name": 3}', 400, "body: Expected `str`, got `int` - at `$.name`: send {"),
        (b'{"nam": "x"}', 400, "unknown field `nam`"),
        (b"", 400, "body: Input data was truncated: send {"),
        (b"\xff", 400, "body: "),
        (b"[" * 4000, 400, "body: "),
        (b"x" * 5000, 413, "body: is over 4096 bytes"),
    ],
)
async def test_what_cannot_be_a_name(body: bytes, status: int, said: str) -> None:
    async with server() as running, httpx.AsyncClient(trust_env=False) as http:
        entry = spoken(running)
        answer = await http.put(running.http(f"/v1/sessions/{entry.id}/speakers/1"), content=body)
        assert answer.status_code == status
        assert said in answer.text
        assert answer.text.count("\n") == 1
        assert "Speaker 1" in export(entry.log, "text", entry.id)
        running.services.sessions.close(entry)


@pytest.mark.parametrize("number", ["0", "2", "-1", "01", "1.0", "x", "٣", "9" * 5000])
async def test_nobody_has_that_number(number: str) -> None:
    async with server() as running, httpx.AsyncClient(trust_env=False) as http:
        entry = spoken(running)
        url = running.http(f"/v1/sessions/{entry.id}/speakers/{number}")
        for answer in (await http.put(url, json={"name": "Ada"}), await http.delete(url)):
            assert answer.status_code == 404
            assert "use the number that its segments carry" in answer.text
            assert len(answer.text) < 200
        running.services.sessions.close(entry)


async def test_no_session_no_method_and_a_body_that_does_not_come() -> None:
    async with server(start_timeout_s=0.2) as running, httpx.AsyncClient(trust_env=False) as http:
        url = running.http("/v1/sessions/x/speakers/1")
        assert (await http.put(url, json={"name": "Ada"})).status_code == 404
        assert (await http.get(url)).status_code == 405
        host, _, port = running.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"PUT /v1/sessions/x/speakers/1 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{"
        )
        answer: Any = await asyncio.wait_for(reader.read(), 5)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"body: was not whole within 0.2 s" in answer
        writer.close()
