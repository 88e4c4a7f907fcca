"""OpenAI's own clients on a recording, unmodified, with real speech."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.engine.real import needs_speakers, needs_weights
from tests.support.data import DATA

from .scene import KEY, MARKS, Scene, check, needs, play, server

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
    assert by["translation"]["body"]["code"] == "unsupported_task"


@needs("openai")
@needs_weights("base")
async def test_openai_python_translates(scene: Scene, tmp_path: Path) -> None:
    """With a model that knows several languages."""
    clip = DATA / "languages" / "es-leopard.wav"
    async with server(tmp_path, model="base") as (url, log):
        said: dict[str, Any] = dict(
            await play(replace(scene, url=url, log=log, clip=clip), "openai", "openai_translation.py")
        )
        assert KEY not in log.read_text("utf-8", "replace")
    text = said["json"]["text"]
    assert {"sand", "white", "medium", "grain"} <= set(re.findall("[a-z]+", text.lower()))
    assert (said["verbose_json"]["text"], said["verbose_json"]["language"]) == (text, "english")
    assert said["text"].strip() == text
    assert said["srt"].startswith("1\n00:00:0")
    assert said["vtt"].startswith("WEBVTT")


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
