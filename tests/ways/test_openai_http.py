"""OpenAI's own clients on a recording, unmodified, with real speech."""

from __future__ import annotations

from typing import Any

from tests.engine.real import needs_speakers

from .scene import MARKS, Scene, check, needs, play

pytestmark = [*MARKS, needs_speakers]


@needs("openai")
async def test_openai_python(scene: Scene) -> None:
    said = await play(scene, "openai", "openai_http.py")
    by: dict[str, Any] = dict(said)
    assert len(by["models"]) == 1
    check(scene, by["json"]["text"])
    check(scene, by["text"])
    assert by["srt"].startswith("1\n00:00:0")
    assert by["vtt"].startswith("WEBVTT")
    assert " ".join(word["word"] for word in by["verbose"]["words"]) == by["verbose"]["text"]
    assert by["verbose"]["language"] == "english"
    assert {s["speaker"] for s in by["diarized"]["segments"]} <= {"A", "?"}
    deltas = "".join(m["delta"] for kind, m in said if kind == "transcript.text.delta")
    assert deltas == by["transcript.text.done"]["text"]
    check(scene, deltas)
    assert [kind for kind, _ in said if kind == "diarized.transcript.text.segment"]
    found = {kind: (by[kind]["class"], by[kind]["status"]) for kind in ("translation", "no audio", "no key")}
    assert found == {
        "translation": ("BadRequestError", 400),
        "no audio": ("BadRequestError", 400),
        "no key": ("AuthenticationError", 401),
    }
    assert by["no audio"]["body"]["param"] == "file"


@needs("node-openai")
async def test_openai_js(scene: Scene) -> None:
    said = await play(scene, "node-openai", "openai_http.mjs")
    by: dict[str, Any] = dict(said)
    check(scene, by["json"]["text"])
    assert by["verbose"]["words"]
    assert by["diarized"]["segments"]
    deltas = "".join(m["delta"] for kind, m in said if kind == "transcript.text.delta")
    assert deltas == by["transcript.text.done"]["text"]
    assert by["no audio"] == {"class": "BadRequestError", "status": 400, "param": "file"}
