"""OpenAI's own clients on a recording, unmodified, with real speech."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.real import needs_data, needs_speakers, needs_weights

from .scene import KEY, MODEL, RERUN, Scene, needs, play, rate

pytestmark = [
    pytest.mark.sdk,
    pytest.mark.timeout(600),
    RERUN,
    pytest.mark.asyncio(loop_scope="session"),
    needs_data,
    needs_weights(MODEL),
    needs_speakers,
]

ALLOWED = 0.01
"""Word error rate above that of the native protocol."""


def check(scene: Scene, text: str) -> None:
    found = rate(scene.reference, [text])
    assert found <= scene.native + ALLOWED, (found, scene.native, text)


def quiet(scene: Scene) -> None:
    """The key stays with who sent it, and nothing went wrong."""
    log = scene.log.read_text("utf-8", "replace")
    assert KEY not in log
    assert "Traceback" not in log
    assert "ERROR" not in log


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
    quiet(scene)


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
    quiet(scene)
