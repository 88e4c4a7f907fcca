"""What is kept, over HTTP: the list, transcripts of sessions of earlier processes, deletion."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from clients.aio import connect
from clients.captions import Captions
from engine.contract import Audio
from streaming.app import running
from streaming.errors import SettingsError
from streaming.kept.store import Store
from streaming.settings import EngineSettings, JournalSettings, LimitSettings, Settings
from streaming.wire.messages import Ack, Start
from streaming.wire.render import BY_ENDING, FORMATS
from tests.support.server import listening
from tests.support.sound import expected, s16, speech

av: Any = import_module("av")

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
        before = {f: (await client.get(f"/v1/sessions/{id}/transcript.{f}")).text for f in BY_ENDING}
    assert all(expected("xxx..xx.")[1] in text for f, text in before.items() if f != "rttm")
    async with process(tmp_path) as client:
        for format, text in before.items():
            reply = await client.get(f"/v1/sessions/{id}/transcript.{format}")
            assert (reply.status_code, reply.text) == (200, text)
            assert reply.headers["content-type"] == FORMATS[BY_ENDING[format]].media
        assert (await client.get("/v1/sessions/other/transcript.txt")).status_code == 404


async def test_the_list_goes_page_by_page_and_tells_who_lives(tmp_path: Path) -> None:
    async with process(tmp_path) as client:
        ids = [await spoken(client, "x.") for _ in range(3)]
        async with connect(str(client.base_url), Start(label="call 7")) as stream:
            ids.append(stream.ready.session)
            page = (await client.get("/v1/sessions", params={"limit": 3})).json()
            assert [s["session"] for s in page["sessions"]] == ids[:0:-1]
            assert [s["state"] for s in page["sessions"]] == ["live", "ended", "ended"]
            assert [s["label"] for s in page["sessions"]] == ["call 7", "", ""]
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
            assert "?end=true" in reply.text


async def test_one_that_lives_is_ended_and_deleted_where_that_is_asked_for(tmp_path: Path) -> None:
    """Its client gets the receipt, and why."""
    async with process(tmp_path) as client, connect(str(client.base_url)) as stream:
        id, captions = stream.ready.session, Captions()
        await stream.send(s16(speech("." * 30 + "xxxx.xxx")))
        async for message in stream:
            captions.receive(message)
            if captions.committed:
                break
        reply = await client.delete(f"/v1/sessions/{id}", params={"end": "true"})
        assert reply.status_code == 204
        async for message in stream:
            captions.receive(message)
        assert captions.faults == []
        assert captions.receipt is not None
        assert captions.error is not None
        assert captions.error.code == "deleted"
        assert (await client.get(f"/v1/sessions/{id}/transcript.txt")).status_code == 404
        assert (await client.get("/v1/sessions")).json()["sessions"] == []
        for trace in (id, expected("." * 30 + "xxxx.xxx")[0]):
            assert trace.encode() not in files(tmp_path)


async def test_nothing_is_written_of_a_session_that_was_deleted_while_it_came_back(tmp_path: Path) -> None:
    """Both at once, from an earlier process: it goes on and lives, or it is gone, never half of it."""
    async with process(tmp_path) as client, connect(str(client.base_url)) as stream:
        ready = stream.ready
        await stream.send(s16(speech("xxxx.xxx")))
        await asyncio.sleep(0.3)
        store = Store(tmp_path / "journal.sqlite3")
        copy = store.load(ready.session)
        store.close()
    assert copy is not None
    async with running(settings(tmp_path)) as services:
        assert services.history is not None
        reading = asyncio.Event()
        load = services.history._ask

        async def slow(function: Any, *arguments: Any) -> Any:
            reading.set()
            await asyncio.sleep(0.2)
            return copy if function.__name__ == "load" else await load(function, *arguments)

        services.history._ask = slow
        async with (
            listening(services) as server,
            httpx.AsyncClient(base_url=server.http(""), trust_env=False) as client,
        ):
            back = asyncio.create_task(services.history.revive(ready.session, ready.token, 0, services))
            await reading.wait()
            reply = await client.delete(f"/v1/sessions/{ready.session}")
            await back
            assert reply.status_code == 409, "it came back first, and lives"
            assert services.sessions.find(ready.session) is not None


def recordings(folder: Path) -> list[str]:
    return [str(file.relative_to(folder)) for file in folder.rglob("*.flac")]


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


@asynccontextmanager
async def listened(folder: Path, *, audio: bool = True) -> AsyncIterator[httpx.AsyncClient]:
    """A server that keeps audio, or did."""
    wanted = Settings(
        engine=EngineSettings(kind="fake"), journal=JournalSettings(path=str(folder), audio=audio)
    )
    async with (
        running(wanted) as services,
        listening(services) as server,
        httpx.AsyncClient(base_url=server.http(""), trust_env=False) as client,
    ):
        yield client


@pytest.mark.parametrize("later", [True, False])
async def test_audio_is_kept_where_it_is_wanted_and_deleted_with_its_session(
    tmp_path: Path, *, later: bool
) -> None:
    """`later`: by a process that keeps none itself."""
    async with listened(tmp_path) as client:
        id = await spoken(client, "xx..")
        other = await spoken(client, "x.")
        if not later:
            assert (await client.delete(f"/v1/sessions/{id}")).status_code == 204
    if later:
        async with listened(tmp_path, audio=False) as client:
            assert (await client.delete(f"/v1/sessions/{id}")).status_code == 204
    assert recordings(tmp_path) == [f"audio/{other}/000000000000.flac"]


async def test_what_was_kept_can_be_heard_and_what_is_missing_is_said(tmp_path: Path) -> None:
    async with listened(tmp_path) as client:
        id = await spoken(client, "xx.x.")
        path = f"/v1/sessions/{id}/audio.flac"
        reply = await client.get(path)
        assert (reply.status_code, reply.headers["content-type"]) == (200, "audio/flac")
        assert reply.headers["seamscribe-missing-ms"] == ""
        assert np.abs(heard(reply.content) - speech("xx.x.")).max() < 1e-3
        head = await client.head(path)
        assert (head.content, head.headers["seamscribe-missing-ms"]) == (b"", "")
        assert (await client.get("/v1/sessions/other/audio.flac")).status_code == 404
    (file,) = (tmp_path / "audio" / id).iterdir()
    file.rename(file.with_name("000000016000.flac"))  # a second was lost, and the same came after all
    async with listened(tmp_path, audio=False) as client:
        reply = await client.get(path)
        assert reply.headers["seamscribe-missing-ms"] == "0-1000"
        file.with_name("000000016000.flac").unlink()
        gone = await client.get(path)
        assert gone.status_code == 404
        assert "journal.audio" in gone.text


async def test_a_live_session_can_be_heard_so_far(tmp_path: Path) -> None:
    async with listened(tmp_path) as client, connect(str(client.base_url)) as stream:
        await stream.send(s16(speech("xx.xxx..xx.")))
        async for message in stream:
            if isinstance(message, Ack) and message.sample >= 80_000:
                break
        reply = await client.get(f"/v1/sessions/{stream.ready.session}/audio.flac")
        assert reply.headers["seamscribe-missing-ms"] == ""
        sound = heard(reply.content)
        assert len(sound) >= 64_000
        assert np.abs(sound - speech("xx.xxx..xx.")[: len(sound)]).max() < 1e-3


def heard(data: bytes) -> Audio:
    with av.open(io.BytesIO(data)) as container:
        samples = np.concatenate([frame.to_ndarray().ravel() for frame in container.decode(audio=0)])
    sound: Audio = samples.astype(np.float32) / np.float32(32767)
    return sound


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
