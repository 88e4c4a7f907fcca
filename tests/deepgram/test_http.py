"""Recordings over Deepgram's route: real HTTP on loopback, a scripted engine."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

from engine.contract import EngineError, Hypothesis, RecognitionTask, Word
from engine.fake import FakeEncoder, FakeRecognizer, FakeScript, say, words_of
from streaming.access.keys import Scope
from tests.streaming.test_hotwords import Listening
from tests.support.keys import KEYS, READ, SPEAK, bearer, key, locked
from tests.support.recordings import recorded
from tests.support.server import Running, server
from tests.support.sound import expected, s16, speech
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

SLOTS = "xx..xxx...x."
PATH = "/v1/listen"


def wav(slots: str = SLOTS, kind: str = "wav") -> bytes:
    return recorded(kind, (speech(slots) * 32767).astype(np.int16))


def two(one: str, other: str) -> bytes:
    """Two channels."""
    samples = np.stack([speech(one), speech(other)], axis=1)
    return recorded("wav", (samples * 32767).astype(np.int16))


def channels_of(count: int) -> bytes:
    """A second of silence on so many channels."""
    data = bytearray(recorded("wav", np.zeros((16_000, 2), np.int16)))
    struct.pack_into("<H", data, 22, count)
    return bytes(data)


async def ask(
    running: Running, data: bytes | None = None, query: str = "", headers: dict[str, str] | None = None
) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as client:
        url = running.http(f"{PATH}?model=nova-3&{query}")
        return await client.post(url, content=wav() if data is None else data, headers=headers)


def alternatives(answer: httpx.Response) -> list[Any]:
    return [one["alternatives"][0] for one in answer.json()["results"]["channels"]]


@pytest.mark.parametrize("kind", ["wav", "flac", "mp3", "webm", "mp4"])
async def test_a_file_gives_its_text(kind: str) -> None:
    async with server() as running:
        answer = await ask(running, data := wav(kind=kind))
    assert answer.status_code == 200, answer.text
    (said,) = alternatives(answer)
    assert said["transcript"] == " ".join(expected(SLOTS))
    assert [word["word"] for word in said["words"]] == expected(SLOTS)
    assert all(0 <= word["start"] <= word["end"] for word in said["words"])
    about = answer.json()["metadata"]
    assert 5.9 < about["duration"] < 6.3
    assert about["channels"] == 1
    assert about["sha256"] == hashlib.sha256(data).hexdigest()
    assert about["models"] == list(about["model_info"])
    assert answer.headers["dg-request-id"] == about["request_id"]


async def test_bare_samples_are_what_the_query_says() -> None:
    async with server() as running:
        answer = await ask(running, s16(speech(SLOTS)), "encoding=linear16&sample_rate=16000")
    (said,) = alternatives(answer)
    assert said["transcript"] == " ".join(expected(SLOTS))
    assert answer.json()["metadata"]["duration"] == 6.0


@pytest.mark.parametrize(
    ("data", "query"),
    [
        (two("xx......", "....xx.."), "multichannel=true"),
        (
            s16(np.stack([speech("xx......"), speech("....xx..")], axis=1).ravel()),
            "multichannel=true&encoding=linear16&sample_rate=16000&channels=2",
        ),
    ],
)
async def test_channels_are_people(data: bytes, query: str) -> None:
    async with server() as running:
        answer = await ask(running, data, f"{query}&utterances=true")
    assert answer.status_code == 200, answer.text
    assert [said["transcript"] for said in alternatives(answer)] == ["zero one", "four five"]
    assert answer.json()["metadata"]["channels"] == 2
    told = answer.json()["results"]["utterances"]
    assert [(one["channel"], one["transcript"]) for one in told] == [(0, "zero one"), (1, "four five")]


async def test_channels_are_one_where_nobody_asks_for_them_or_there_is_one() -> None:
    async with server() as running:
        mixed = await ask(running, two("xx......", "....xx.."))
        alone = await ask(running, wav("xx......"), "multichannel=true")
    assert [said["transcript"] for said in alternatives(mixed)] == ["zero one four five"]
    assert [said["transcript"] for said in alternatives(alone)] == ["zero one"]


async def test_who_spoke_in_words_utterances_and_paragraphs() -> None:
    voices = np.concatenate([say(48_000, 0), say(8_000), say(48_000, 1)])
    data = recorded("wav", (voices * 32767).astype(np.int16))
    async with server(services={"encoder": FakeEncoder()}) as running:
        answer = await ask(running, data, "diarize=true&utterances=true&paragraphs=true")
    assert answer.status_code == 200, answer.text
    (said,) = alternatives(answer)
    words = [word.text for word in words_of(voices)]
    assert [word["word"] for word in said["words"]] == words
    whose = [word["speaker"] for word in said["words"]]
    assert set(whose) == {0, 1}
    assert whose == sorted(whose)
    told = answer.json()["results"]["utterances"]
    assert [one["speaker"] for one in told] == [0, 1]
    assert " ".join(one["transcript"] for one in told) == " ".join(words)
    parts = said["paragraphs"]["paragraphs"]
    assert [part["speaker"] for part in parts] == [0, 1]
    assert sum(part["num_words"] for part in parts) == len(words)
    assert said["paragraphs"]["transcript"].startswith(f"\nSpeaker 0: {words[0]} ")
    assert f"\n\nSpeaker 1: {parts[1]['sentences'][0]['text']}" in said["paragraphs"]["transcript"]


async def test_sentences_and_marks() -> None:
    def says(task: RecognitionTask) -> Hypothesis:
        texts = ["Who", "is", "there?", "Nobody.", "I", "am"]
        at = task.start
        return Hypothesis(
            tuple(Word(text, at + 8000 * n, at + 8000 * n + 6000) for n, text in enumerate(texts))
        )

    async with server(FakeScript(says=says)) as running:
        plain = await ask(running, wav("xxxxxx.."))
        smart = await ask(running, wav("xxxxxx.."), "smart_format=true")
    (bare,), (said,) = alternatives(plain), alternatives(smart)
    assert bare["transcript"] == "who is there nobody i am"
    assert "paragraphs" not in bare
    assert said["transcript"] == "Who is there? Nobody. I am"
    (part,) = said["paragraphs"]["paragraphs"]
    assert [one["text"] for one in part["sentences"]] == ["Who is there?", "Nobody.", "I am"]
    assert said["paragraphs"]["transcript"] == "\nWho is there? Nobody. I am"


async def test_sentences_of_scripts_without_spaces_get_none() -> None:
    def says(task: RecognitionTask) -> Hypothesis:
        spans = [(task.start + 8000 * n, task.start + 8000 * n + 6000) for n in range(3)]
        texts = ("你", "好。", "再见。")
        return Hypothesis(tuple(Word(t, *span, space=False) for t, span in zip(texts, spans, strict=True)))

    async with server(FakeScript(says=says)) as running:
        answer = await ask(running, wav("xxx..."), "paragraphs=true")
    (said,) = alternatives(answer)
    assert said["transcript"] == "你好。再见。"
    assert said["paragraphs"]["transcript"] == "\n你好。再见。"


@pytest.mark.parametrize(
    ("split", "count"), [("", 3), ("&utt_split=0.3", 3), ("&utt_split=1.6", 2), ("&utt_split=5", 1)]
)
async def test_utterances_end_in_silence(split: str, count: int) -> None:
    async with server() as running:
        answer = await ask(running, query=f"utterances=true{split}")
    told = answer.json()["results"]["utterances"]
    assert len(told) == count
    assert " ".join(one["transcript"] for one in told) == " ".join(expected(SLOTS))
    assert len({one["id"] for one in told}) == count
    assert all(one["start"] == one["words"][0]["start"] for one in told)


async def test_a_language_is_detected_only_where_nobody_told_it() -> None:
    def heard(answer: httpx.Response) -> Any:
        return answer.json()["results"]["channels"][0].get("detected_language")

    async with server(FakeScript(language="fr")) as running:
        nobody = await ask(running, wav("xxxx" * 6 + "..."))
        told = await ask(running, wav("xxxx" * 6 + "..."), "language=de-AT&detect_language=true")
    assert heard(nobody) == "fr"
    assert heard(told) is None


async def test_the_engine_is_told_which_languages_to_expect() -> None:
    engine = Listening()
    async with server(recognizer=engine) as running:
        answer = await ask(running, query="detect_language=en&detect_language=es-419")
        wrong = await ask(running, query="detect_language=English")
    assert (answer.status_code, engine.likely) == (200, {("en", "es")})
    assert (wrong.status_code, "detect_language: English" in wrong.text) == (400, True)


async def test_silence_is_an_answer_too() -> None:
    async with server() as running:
        answer = await ask(running, wav("...."), "utterances=true&paragraphs=true&diarize=false")
    (said,) = alternatives(answer)
    assert (said["transcript"], said["confidence"], said["words"]) == ("", 0.0, [])
    assert said["paragraphs"] == {"transcript": "", "paragraphs": []}
    assert answer.json()["results"]["utterances"] == []


@pytest.mark.parametrize(
    ("data", "query", "headers", "field"),
    [
        (b"<html>" * 10, "", {}, "encoding"),
        (b"", "", {}, "encoding"),
        (b'{"url": "http://169.254.169.254/"}', "", {"content-type": "application/json"}, "url"),
        (b"{}", "", {"content-type": "Application/JSON; charset=utf-8"}, "url"),
        (None, "callback=http://10.0.0.1/", {}, "callback"),
        (None, "redact=pci", {}, "redact"),
        (None, "language=klingonish", {}, "language"),
        (None, "encoding=g729", {}, "encoding"),
        (None, "utt_split=ever", {}, "utt_split"),
        (None, "multichannel=perhaps", {}, "multichannel"),
        (None, "diarize=true", {}, "speakers"),
        (channels_of(9), "multichannel=true", {}, "channels"),
    ],
)
async def test_what_cannot_be_done_is_said_by_its_field(
    data: bytes | None, query: str, headers: dict[str, str], field: str
) -> None:
    async with server() as running:
        answer = await ask(running, data, query, headers)
        assert running.services.sessions.active == 0
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"err_code", "err_msg", "request_id"}
    assert field in answer.json()["err_msg"].partition(":")[0]
    assert answer.headers["dg-error"]


async def test_too_many_channels_are_told_by_their_number() -> None:
    async with server() as running:
        answer = await ask(running, channels_of(9), "multichannel=true")
    assert "the recording has 9 channels, but 8 are the most" in answer.json()["err_msg"]


async def test_what_a_query_quotes_begins_no_line_of_a_header() -> None:
    async with server() as running:
        answer = await ask(running, query="language=%0d%0aX-Evil:%201")
    assert answer.status_code == 400
    assert "x-evil" not in answer.headers
    assert answer.headers["dg-error"].startswith("Bad Request: language: ")


async def test_what_nobody_knows_is_counted() -> None:
    async with server() as running:
        answer = await ask(running, query="summarize=v2&topics=true&detect_language=true")
        assert running.services.metrics.ignored.value(protocol="deepgram") == 2
    assert answer.status_code == 200


async def test_other_methods_and_keys() -> None:
    async with server(services=locked(KEYS), max_file_bytes=100_000) as running:
        nobody = await ask(running)
        reader = await ask(running, headers=bearer(READ))
        large = await ask(running, wav("x" * 60), headers={"Authorization": f"Token {SPEAK}"})
        async with httpx.AsyncClient(headers=bearer(SPEAK)) as client:
            got = await client.get(running.http(PATH))
    codes = [answer.status_code for answer in (nobody, reader, large, got)]
    assert codes == [401, 403, 413, 405]
    assert all(answer.json()["err_msg"] for answer in (nobody, reader, large, got))


async def test_both_protocols_share_the_places() -> None:
    stuck = FakeRecognizer(FakeScript(delay_s=3600.0))
    async with server(recognizer=stuck, max_files=1) as running:
        first = asyncio.create_task(ask(running))
        await until(lambda: running.services.sessions.active)
        second = await ask(running)
        async with httpx.AsyncClient() as client:
            files = {"file": ("a.wav", wav())}
            third = await client.post(running.http("/v1/audio/transcriptions"), files=files)
        # The client leaves: its session ends.
        first.cancel()
        await until(lambda: not running.services.sessions.active)
    assert second.status_code == third.status_code == 429
    assert int(second.headers["retry-after"]) >= 1


async def test_an_upload_takes_a_place_of_its_key_from_its_first_byte() -> None:
    keys = {"small": key(SPEAK, Scope.SPEAK, max_sessions=1)}
    more = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield wav()[:100]
        await more.wait()
        yield wav()[100:]

    async with server(services=locked(keys)) as running, httpx.AsyncClient(timeout=30) as client:
        slow = asyncio.create_task(client.post(running.http(PATH), content=body(), headers=bearer(SPEAK)))
        await until(lambda: running.services.quotas.sessions("small"))
        second = await ask(running, headers=bearer(SPEAK))
        more.set()
        first = await slow
        assert running.services.quotas.sessions("small") == 0
    assert (first.status_code, second.status_code) == (200, 429)


async def test_what_failed_is_named_and_nothing_is_answered() -> None:
    class Broken(FakeRecognizer):
        async def recognize(self, task: RecognitionTask) -> Any:
            if task.start <= 32_000 < task.end:
                raise EngineError("broken", "no", retryable=False)
            return await super().recognize(task)

    async with server(recognizer=Broken()) as running:
        answer = await ask(running)
    assert answer.status_code == 500
    assert "(broken)" in answer.json()["err_msg"]
