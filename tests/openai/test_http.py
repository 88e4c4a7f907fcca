"""Recordings over OpenAI's routes: real HTTP on loopback, a scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest

from engine.contract import Capabilities, EngineError, Hypothesis, Priority, RecognitionTask
from engine.dispatcher import Dispatcher, DispatchSettings
from engine.fake import FakeEncoder, FakeRecognizer, FakeScript
from streaming.access.keys import Scope
from streaming.app import observer
from streaming.dialects.openai_shapes import letters
from streaming.files import job
from streaming.observe.metrics import Metrics
from streaming.observe.tracing import Trace, Untraced
from streaming.openai.form import RESPONSES
from streaming.openai.routes import _Events
from streaming.sessions.admission import Admission
from streaming.sessions.registry import Sessions
from streaming.settings import AdmissionSettings, LimitSettings, ServerSettings
from tests.streaming.test_hotwords import Listening
from tests.support.keys import KEYS, READ, SPEAK, bearer, key, locked
from tests.support.recordings import recorded
from tests.support.server import Running, listening, server
from tests.support.services import services_of
from tests.support.sound import expected, speech
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

SLOTS = "xx..xxx...x."
PATH = "/v1/audio/transcriptions"


def wav(slots: str = SLOTS, kind: str = "wav") -> bytes:
    return recorded(kind, (speech(slots) * 32767).astype(np.int16))


async def ask(running: Running, data: Any = None, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as client:
        form = {"model": "any", **fields}
        file = {"file": ("a.wav", wav() if data is None else data)}
        return await client.post(running.http(PATH), data=form, files=file)


def text(slots: str = SLOTS) -> str:
    return " ".join(expected(slots))


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "webm", "mp4"])
async def test_a_file_gives_its_text(kind: str) -> None:
    async with server() as running:
        answer = await ask(running, wav(kind=kind))
    assert answer.status_code == 200, answer.text
    assert answer.json()["text"] == text()
    assert answer.json()["usage"]["type"] == "duration"
    assert 6 <= answer.json()["usage"]["seconds"] <= 7


async def test_all_formats() -> None:
    async with server() as running:
        found = {
            name: await ask(running, response_format=name)
            for name in ("text", "srt", "vtt", "verbose_json", "diarized_json")
        }
        words = await ask(
            running,
            None,
            **{"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]},
        )
        plain = await ask(running, response_format="verbose_json", timestamp_granularities="word")
    assert found["text"].text == text() + "\n"
    assert found["srt"].text.startswith("1\n00:00:00,")
    assert found["vtt"].text.startswith("WEBVTT\n")
    verbose = found["verbose_json"].json()
    assert (verbose["task"], verbose["duration"]) == ("transcribe", 6.0)
    assert " ".join(s["text"].strip() for s in verbose["segments"]) == text()
    assert "words" not in verbose
    assert [w["word"] for w in words.json()["words"]] == expected(SLOTS)
    assert all(w["start"] <= w["end"] for w in words.json()["words"])
    assert "segments" in words.json()
    assert "segments" not in plain.json()


async def test_speakers_that_cannot_be_told_apart_are_a_clear_error() -> None:
    async with server() as running:
        answer = await ask(running, response_format="diarized_json")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "no_speakers"


async def test_events_add_up_to_the_text() -> None:
    async with server() as running:
        answer = await ask(running, stream="true")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.split("\n\n") if line]
    assert {e["type"] for e in events[:-1]} == {"transcript.text.delta"}
    assert events[-1]["type"] == "transcript.text.done"
    assert "".join(e["delta"] for e in events[:-1]) == events[-1]["text"] == text()


async def translated(running: Running, **fields: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as client:
        url, file = running.http("/v1/audio/translations"), {"file": ("a.wav", wav())}
        return await client.post(url, data={"model": "any", **fields}, files=file)


async def test_who_takes_no_events_is_cut_off_and_frees_its_place() -> None:
    async def events() -> AsyncIterator[bytes]:
        while True:
            yield b"data: {}\n\n"

    freed = asyncio.Event()

    async def stuck(message: object) -> None:
        await asyncio.Event().wait()

    async def receive() -> dict[str, str]:
        await asyncio.Event().wait()
        return {}

    stack = AsyncExitStack()
    stack.callback(freed.set)
    answer = _Events(events(), stack, 0.05)
    for version in ("2.3", "2.4"):
        async with asyncio.timeout(30):
            await answer({"type": "http", "asgi": {"spec_version": version}}, receive, stuck)
    assert freed.is_set()


async def test_the_engine_is_told_which_languages_to_expect() -> None:
    engine = Listening()
    async with server(recognizer=engine) as running:
        answer = await ask(running, languages="en-US, cmn")
    assert (answer.status_code, engine.likely) == (200, {("en", "zh")})


async def test_a_translation_is_english_in_all_formats() -> None:
    script = FakeScript(translates=True, language="fr")
    async with server(script, services={"encoder": FakeEncoder()}) as running:
        found = {name: await translated(running, response_format=name) for name in RESPONSES}
        events = await translated(running, stream="true")
        plain = await ask(running)
    assert all(answer.status_code == 200 for answer in found.values())
    assert found["json"].json()["text"] == text().upper()
    assert found["text"].text == text().upper() + "\n"
    assert text().upper().split()[0] in found["srt"].text
    assert text().upper().split()[0] in found["vtt"].text
    verbose = found["verbose_json"].json()
    assert (verbose["task"], verbose["language"]) == ("translate", "english")
    assert verbose["text"] == text().upper()
    assert found["diarized_json"].json()["task"] == "translate"
    assert f'"text":"{text().upper()}"' in events.text
    assert plain.json()["text"] == text()


async def test_who_cannot_translate_says_so() -> None:
    async with server() as running:
        answer = await translated(running)
        assert running.services.sessions.active == 0
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported_task", "model")


@pytest.mark.parametrize(
    ("data", "fields", "param"),
    [
        (b"<html>" * 10, {}, "file"),
        (b"", {}, "file"),
        (None, {"response_format": "xml"}, "response_format"),
        (None, {"language": "klingonish"}, "language"),
        (None, {"languages": "en,klingonish"}, "languages"),
        (None, {"timestamp_granularities": "letter"}, "timestamp_granularities"),
    ],
)
async def test_what_cannot_be_done_is_said_by_its_field(
    data: bytes | None, fields: dict[str, str], param: str
) -> None:
    async with server() as running:
        answer = await ask(running, data, **fields)
        assert running.services.sessions.active == 0
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["param"] == param


async def test_the_other_refusals_are_json_too() -> None:
    async with server() as running, httpx.AsyncClient() as client:
        got = await client.get(running.http(PATH))
        bare = await client.post(running.http(PATH), content=b"x")
        got_too = await client.get(running.http("/v1/audio/translations"))
        nobody = await client.get(running.http("/v1/models/nobody"))
        models = (await client.get(running.http("/v1/models"))).json()
        known = await client.get(running.http("/v1/models/" + models["data"][0]["id"]))
    assert [a.status_code for a in (got, bare, got_too, nobody)] == [405, 400, 405, 404]
    assert all(a.json()["error"]["message"] for a in (got, bare, got_too, nobody))
    assert known.json() == models["data"][0]


async def test_keys_and_limits() -> None:
    async with server(services=locked(KEYS), max_file_bytes=100_000) as running:
        assert (await ask(running)).status_code == 401
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {SPEAK}"}) as client:
            large = await client.post(running.http(PATH), files={"file": ("a.wav", wav("x" * 60))})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")


async def test_one_recording_too_many_is_told_when_to_come_back() -> None:
    stuck = FakeRecognizer(FakeScript(delay_s=3600.0))
    async with server(recognizer=stuck, max_files=1) as running:
        first = asyncio.create_task(ask(running))
        await until(lambda: running.services.sessions.active)
        second = await ask(running)
        # The client leaves: its session ends.
        first.cancel()
        await until(lambda: not running.services.sessions.active)
    assert second.status_code == 429
    assert int(second.headers["retry-after"]) >= 1
    assert second.json()["error"]["type"] == "rate_limit_error"


async def test_an_upload_takes_a_place_of_its_key_from_its_first_byte() -> None:
    keys = {"small": key(SPEAK, Scope.SPEAK, max_sessions=1), "other": key(READ, Scope.SPEAK)}
    boundary, more = "xyz", asyncio.Event()
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'.encode()

    async def body() -> AsyncIterator[bytes]:
        yield head
        await more.wait()
        yield wav() + f"\r\n--{boundary}--\r\n".encode()

    async with server(services=locked(keys)) as running, httpx.AsyncClient(timeout=30) as client:
        url, form = running.http(PATH), {"content-type": f"multipart/form-data; boundary={boundary}"}
        slow = asyncio.create_task(client.post(url, content=body(), headers=bearer(SPEAK) | form))
        quotas = running.services.quotas
        await until(lambda: quotas.sessions("small"))
        second = await client.post(url, files={"file": ("a.wav", wav())}, headers=bearer(SPEAK))
        other = await client.post(url, files={"file": ("a.wav", wav())}, headers=bearer(READ))
        more.set()
        first = await slow
        assert quotas.sessions("small") == 0
    assert (second.status_code, second.json()["error"]["code"]) == (429, "key_limit")
    assert other.status_code == first.status_code == 200


async def test_a_broken_form_is_an_error_as_all_are() -> None:
    async with server() as running, httpx.AsyncClient() as client:
        form = {"content-type": "multipart/form-data; boundary=xyz"}
        answer = await client.post(running.http(PATH), content=b"--xyz\r\nno header", headers=form)
        refused = running.services.metrics.refused.value(reason="bad_form")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_form")
    assert refused == 1


async def test_what_failed_is_named_and_nothing_is_answered() -> None:
    class Broken(FakeRecognizer):
        async def recognize(self, task: RecognitionTask) -> Any:
            if task.start <= 32_000 < task.end:
                raise EngineError("broken", "no", retryable=False)
            return await super().recognize(task)

    async with server(recognizer=Broken()) as running:
        answer = await ask(running)
        events = await ask(running, stream="true")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "incomplete"
    assert "(broken)" in answer.json()["error"]["message"]
    assert '"incomplete"' in events.text
    assert "transcript.text.done" not in events.text


async def test_a_recording_gives_way_to_what_is_live() -> None:
    seen: list[Priority] = []

    class Watched(FakeRecognizer):
        async def recognize(self, task: RecognitionTask) -> Any:
            seen.append(task.priority)
            return await super().recognize(task)

    async with server(recognizer=Watched()) as running:
        await ask(running)
        load, metrics = running.services.dispatcher.load, running.services.metrics
    assert set(seen) == {Priority.BATCH}
    assert load.utilisation == 0.0
    assert metrics.commit_delay.count == metrics.first_partial.count == metrics.final_delay.count == 0
    # What they heard and wrote is counted like everybody's.
    assert metrics.received.value() > 0
    assert metrics.words.value() > 0


async def test_recordings_keep_nobody_out() -> None:
    """One after the other, with the door of a small machine: what they cost is not what live sessions do."""
    metrics, engine = Metrics(), FakeRecognizer(FakeScript(delay_s=0.02, per_audio_s=0.002, concurrency=2))
    dispatcher = Dispatcher(engine, DispatchSettings(), observer(metrics))
    door = Admission(AdmissionSettings(), 5.0, dispatcher, 2, metrics, lambda: 1 << 20)
    sessions = Sessions(ServerSettings(), limits := LimitSettings(), door=door)
    shared = services_of(engine, limits, dispatcher=dispatcher, metrics=metrics, sessions=sessions)
    async with listening(shared) as running:
        for _ in range(8):
            answer = await ask(running, wav(SLOTS * 4))
            assert answer.status_code == 200, answer.text
            door.look()
    assert metrics.engine_time.sum > 0
    assert metrics.demand.value() == 0
    assert door.refusal() is None


@pytest.mark.parametrize(("places", "beside"), [(4, 1), (32, 3)])
async def test_an_engine_with_many_places_decodes_pieces_beside_each_other(places: int, beside: int) -> None:
    slots = "x.xxx...x.xx...." * 26  # three minutes and a half

    class Counting(FakeRecognizer):
        now = most = 0

        async def recognize(self, task: RecognitionTask) -> Any:
            self.now += 1
            self.most = max(self.most, self.now)
            await until(lambda: self.most >= beside)
            found = await super().recognize(task)
            self.now -= 1
            return found

    async with server(recognizer=(engine := Counting(FakeScript(concurrency=places)))) as running:
        answer = await ask(running, wav(slots))
    assert answer.json()["text"] == text(slots)
    assert (engine.most == 1) == (beside == 1)


async def test_a_recording_is_a_session_like_any_other() -> None:
    begun: list[tuple[str, str | None]] = []

    class Watching(Untraced):
        def begin(self, session: str, traceparent: str | None) -> Trace:
            begun.append((session, traceparent))
            return self

    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with server(services={"tracing": Watching()}) as running, httpx.AsyncClient() as client:
        files, headers = {"file": ("a.wav", wav())}, {"traceparent": parent}
        assert (await client.post(running.http(PATH), files=files, headers=headers)).status_code == 200
        ((session, told),) = begun
        entry = running.services.sessions.find(session)
    assert told == parent
    assert entry is not None
    assert entry.ready is not None
    assert entry.ready.session == session


def test_speakers_are_called_as_columns_are() -> None:
    assert [letters(n) for n in (1, 26, 27, 53, None)] == ["A", "Z", "AA", "BA", "?"]


class Whole(FakeRecognizer):
    """Takes a whole recording at once and tells how far it is, waiting on the way."""

    def __init__(self) -> None:
        super().__init__(FakeScript(max_window_s=600.0))
        self.asked: list[RecognitionTask] = []
        self.go = asyncio.Event()

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, max_window_s=600.0, recording_s=600.0, concurrency=64)

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        self.asked.append(task)
        if task.progress is not None:
            task.progress(task.start + 16_000)
            await self.go.wait()
        return await super().recognize(task)


async def test_an_engine_that_takes_a_whole_recording_gets_it_and_tells_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "PROGRESS_S", 0.01)
    slots = ("xxx." * 40)[:150]  # 75 seconds: three live windows
    engine = Whole()
    kinds: list[str] = []
    async with server(recognizer=engine) as running, httpx.AsyncClient(timeout=30) as client:
        form, file = {"model": "any", "stream": "true"}, {"file": ("a.wav", wav(slots))}
        async with client.stream("POST", running.http(PATH), data=form, files=file) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    said = json.loads(line[6:])
                    assert "type" in said, said
                    kinds.append(said["type"])
                    if said["type"] == "transcript.progress":
                        assert said["seconds"] == 1.0
                        assert 1.0 <= said["of"] <= 75.0
                        engine.go.set()
    (task,) = engine.asked
    assert len(task.audio) > 70 * 16_000
    assert kinds.count("transcript.progress") == 1, "told once while nothing changes"
    assert kinds[-1] == "transcript.text.done"
    assert said["text"] == text(slots)
