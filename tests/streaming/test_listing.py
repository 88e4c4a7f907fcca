"""What is kept, over HTTP: the list, transcripts of sessions of earlier processes, deletion."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients.aio import connect
from streaming.app import running
from streaming.errors import SettingsError
from streaming.settings import EngineSettings, JournalSettings, LimitSettings, Settings
from streaming.transcripts import FORMATS
from tests.support.server import listening
from tests.support.sound import expected, s16, speech

pytestmark = pytest.mark.e2e


def settings(folder: Path, **limits: Any) -> Settings:
    return Settings(
        engine=EngineSettings(kind="fake"),
        journal=JournalSettings(path=str(folder)),
        limits=LimitSettings(**limits),
    )


@asynccontextmanager
async def process(folder: Path, **limits: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A server over this journal, and a client of it."""
    async with (
        running(settings(folder, **limits)) as services,
        listening(services) as server,
        httpx.AsyncClient(base_url=server.http(""), trust_env=False) as client,
    ):
        yield client


async def spoken(client: httpx.AsyncClient, slots: str) -> str:
    """A session from start to end; returns its id."""
    async with connect(str(client.base_url)) as stream:
        await stream.send(s16(speech(slots)))
        await stream.end()
        async for _ in stream:
            pass
        return stream.ready.session


async def test_transcripts_outlive_the_process_in_every_format(tmp_path: Path) -> None:
    async with process(tmp_path) as client:
        id = await spoken(client, "xxx..xx.")
        before = {f: (await client.get(f"/v1/sessions/{id}/transcript.{f}")).text for f in FORMATS}
    assert all(expected("xxx..xx.")[1] in text for f, text in before.items() if f != "rttm")
    async with process(tmp_path) as client:
        for format, text in before.items():
            reply = await client.get(f"/v1/sessions/{id}/transcript.{format}")
            assert (reply.status_code, reply.text) == (200, text)
            assert reply.headers["content-type"] == FORMATS[format][1]
        assert (await client.get("/v1/sessions/other/transcript.txt")).status_code == 404


async def test_the_list_goes_page_by_page_and_tells_who_lives(tmp_path: Path) -> None:
    async with process(tmp_path) as client:
        ids = [await spoken(client, "x.") for _ in range(3)]
        async with connect(str(client.base_url)) as stream:
            ids.append(stream.ready.session)
            page = (await client.get("/v1/sessions", params={"limit": 3})).json()
            assert [s["session"] for s in page["sessions"]] == ids[:0:-1]
            assert [s["state"] for s in page["sessions"]] == ["live", "ended", "ended"]
            assert page["sessions"][0]["ended"] is None
            assert page["sessions"][1]["audio_ms"] == 1000
            assert page["sessions"][1]["started"] <= page["sessions"][1]["ended"]
            rest = (await client.get("/v1/sessions", params={"limit": 3, "before": page["next"]})).json()
            assert [s["session"] for s in rest["sessions"]] == [ids[0]]
            assert rest["next"] is None


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "limit=x", "limit=٣", "before=x", "before=1.", "before=1.a'b", "limit="]
)
async def test_a_page_that_cannot_be_is_refused(tmp_path: Path, query: str) -> None:
    async with process(tmp_path) as client:
        reply = await client.get(f"/v1/sessions?{query}")
    assert reply.status_code == 400
    assert reply.text.startswith(query.partition("=")[0])


async def test_what_is_deleted_leaves_no_trace(tmp_path: Path) -> None:
    async with process(tmp_path) as client:
        id, other = await spoken(client, "." * 30 + "xxx."), await spoken(client, "xx.")
        unmistakable = expected("." * 30 + "xxx.")[0].encode()
        assert unmistakable in files(tmp_path)
        assert (await client.delete(f"/v1/sessions/{id}")).status_code == 204
        assert unmistakable not in files(tmp_path)
        assert id.encode() not in files(tmp_path)
        for method, path in (("DELETE", ""), ("GET", "/transcript.txt")):
            assert (await client.request(method, f"/v1/sessions/{id}{path}")).status_code == 404
        assert (await client.get(f"/v1/sessions/{other}/transcript.txt")).status_code == 200
        async with connect(str(client.base_url)) as stream:
            reply = await client.delete(f"/v1/sessions/{stream.ready.session}")
            assert reply.status_code == 409


def recordings(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*.flac")]


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_audio_is_kept_where_it_is_wanted_and_deleted_with_its_session(tmp_path: Path) -> None:
    wanted = Settings(
        engine=EngineSettings(kind="fake"), journal=JournalSettings(path=str(tmp_path), audio=True)
    )
    async with (
        running(wanted) as services,
        listening(services) as server,
        httpx.AsyncClient(base_url=server.http(""), trust_env=False) as client,
    ):
        id = await spoken(client, "xx..")
        other = await spoken(client, "x.")
        assert (await client.delete(f"/v1/sessions/{id}")).status_code == 204
    assert recordings(tmp_path) == [f"audio/{other}/000000000000.flac"]


async def test_without_a_journal_there_is_no_list_but_what_just_ended_can_be_removed() -> None:
    off = Settings(engine=EngineSettings(kind="fake"), journal=JournalSettings(on=False))
    async with (
        running(off) as services,
        listening(services) as server,
        httpx.AsyncClient(base_url=server.http(""), trust_env=False) as client,
    ):
        reply = await client.get("/v1/sessions")
        assert reply.status_code == 404
        assert "journal.on" in reply.text
        id = await spoken(client, "x.")
        assert (await client.delete(f"/v1/sessions/{id}")).status_code == 204
        assert (await client.delete(f"/v1/sessions/{id}")).status_code == 404


async def test_two_servers_do_not_share_a_journal(tmp_path: Path) -> None:
    async with process(tmp_path):
        with pytest.raises(SettingsError, match=r"another server.*journal\.on"):
            async with running(settings(tmp_path)):
                pass
    async with process(tmp_path):
        pass


async def test_a_folder_that_cannot_be_is_told_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SettingsError, match=r"journal\.path.*journal\.on"):
        async with running(settings(tmp_path / "file")):
            pass
