"""Deepgram's own clients and the frameworks that use them, unmodified, with real speech."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.engine.real import needs_speakers

from .scene import MARKS, Scene, check, needs, play

pytestmark = MARKS

Said = list[tuple[str, dict[str, Any]]]


def finals(said: Said) -> list[str]:
    return [alternative(m)["transcript"] for _, m in said if m.get("type") == "Results" and m["is_final"]]


def alternative(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = result["channel"]["alternatives"][0]
    return found


@needs("deepgram7")
@needs_speakers
async def test_deepgram_sdk_7(scene: Scene) -> None:
    said = await play(scene, "deepgram7", "deepgram7.py")
    check(scene, *finals(said))
    kinds = Counter(kind for kind, _ in said)
    assert kinds["ListenV1SpeechStarted"] > 0
    assert kinds["ListenV1UtteranceEnd"] > 0
    assert kinds["ListenV1Metadata"] == 1
    assert [m["keyterms"] for kind, m in said if kind == "ListenV1ConfigureSuccess"] == [[]]
    answers = [alternative(m)["transcript"] for _, m in said if m.get("from_finalize")]
    assert len(answers) == 2
    assert answers[1] == ""
    words = [w for _, m in said if m.get("is_final") for w in alternative(m)["words"]]
    speakers = [w["speaker"] for w in words if w.get("speaker") is not None]
    assert len(speakers) > len(words) / 2
    assert set(speakers) == {0}


@needs("deepgram4")
async def test_deepgram_sdk_4(scene: Scene) -> None:
    said = await play(scene, "deepgram4", "deepgram4.py")
    check(scene, *finals(said))
    kinds = Counter(kind for kind, _ in said)
    assert kinds["SpeechStarted"] > 0
    assert kinds["Metadata"] == 1
    assert kinds["Error"] == 0


@needs("node-deepgram")
async def test_deepgram_js(scene: Scene) -> None:
    said = await play(scene, "node-deepgram", "deepgram.mjs")
    check(scene, *finals(said))
    assert said[-1] == ("Closed", {"code": 1000})
    assert said[-2][0] == "Metadata"


@needs("livekit")
async def test_livekit(scene: Scene) -> None:
    said = await play(scene, "livekit", "livekit_deepgram.py")
    check(scene, *(event["text"] for kind, event in said if kind.endswith("FINAL_TRANSCRIPT")))
    kinds = Counter(kind.rpartition(".")[2] for kind, _ in said)
    assert kinds["START_OF_SPEECH"] > 0
    assert kinds["END_OF_SPEECH"] > 0
    assert kinds["INTERIM_TRANSCRIPT"] > 0


@needs("pipecat")
async def test_pipecat_which_closes_without_waiting(scene: Scene) -> None:
    said = await play(scene, "pipecat", "pipecat_deepgram.py")
    check(scene, *(frame["text"] for kind, frame in said if kind == "TranscriptionFrame"))
    assert any(kind == "InterimTranscriptionFrame" for kind, _ in said)


def heard_in(answer: dict[str, Any]) -> str:
    """The transcript of a recording, whose parts say the same."""
    (channel,) = answer["results"]["channels"]
    (said,) = channel["alternatives"]
    assert " ".join(word["punctuated_word"] for word in said["words"]) == said["transcript"]
    text: str = said["transcript"]
    return text


@needs("deepgram7")
@needs_speakers
async def test_deepgram_sdk_7_with_a_recording(scene: Scene) -> None:
    by = dict(await play(scene, "deepgram7", "deepgram7_recording.py"))
    check(scene, heard_in(by["smart"]))
    (channel,) = by["bare"]["results"]["channels"]
    check(scene, channel["alternatives"][0]["transcript"])
    results = by["smart"]["results"]
    assert " ".join(one["transcript"] for one in results["utterances"]) == heard_in(by["smart"])
    assert len(results["utterances"]) > 5
    (said,) = results["channels"][0]["alternatives"]
    assert {word["speaker"] for word in said["words"] if word["speaker"] is not None} == {0}
    sentences = [s["text"] for p in said["paragraphs"]["paragraphs"] for s in p["sentences"]]
    assert " ".join(sentences) == said["transcript"]
    about = by["smart"]["metadata"]
    seconds = scene.clip.stat().st_size / 32_000
    assert about["duration"] == by["bare"]["metadata"]["duration"] == pytest.approx(seconds, abs=1e-3)
    assert (by["url"]["status"], by["no audio"]["status"]) == (400, 400)
    assert by["url"]["body"]["err_msg"].startswith("url: ")


@needs("deepgram4")
async def test_deepgram_sdk_4_with_a_recording(scene: Scene) -> None:
    by = dict(await play(scene, "deepgram4", "deepgram4_recording.py"))
    check(scene, heard_in(by["smart"]))
    assert " ".join(one["transcript"] for one in by["smart"]["results"]["utterances"]) == heard_in(
        by["smart"]
    )
    assert by["smart"]["results"]["channels"][0]["alternatives"][0]["paragraphs"]["paragraphs"]
    assert by["url"]["message"].startswith("url: ")


@needs("node-deepgram")
async def test_deepgram_js_with_a_recording(scene: Scene) -> None:
    by = dict(await play(scene, "node-deepgram", "deepgram_recording.mjs"))
    check(scene, heard_in(by["smart"]))
    assert len(by["smart"]["results"]["utterances"]) > 5
    assert by["url"]["status"] == 400
