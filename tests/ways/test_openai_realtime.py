"""OpenAI's Realtime clients and the frameworks that use them, unmodified, with real speech."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.engine.real import needs_speakers

from .scene import MARKS, Scene, check, needs, play, rate, server

pytestmark = MARKS

TEXT = "conversation.item.input_audio_transcription"

Events = list[dict[str, Any]]


def check_events(scene: Scene, events: Events) -> Counter[str]:
    """Deltas that add up, items in order, and no `error`."""
    kinds = Counter(event["type"] for event in events)
    assert kinds["error"] == kinds[f"{TEXT}.failed"] == 0
    assert events[0]["type"] == "session.created"
    deltas: dict[str, str] = {}
    for event in of(events, f"{TEXT}.delta"):
        deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
    completed = of(events, f"{TEXT}.completed")
    for event in completed:
        assert event["transcript"] == deltas.get(event["item_id"], "")
        assert event["usage"]["type"] == "duration"
    committed = [event["item_id"] for event in of(events, "input_audio_buffer.committed")]
    assert [event["item_id"] for event in completed] == committed
    check(scene, *(event["transcript"] for event in completed))
    return kinds


def of(events: Iterable[dict[str, Any]], type: str) -> Events:
    return [event for event in events if event["type"] == type]


@needs("openai")
@needs_speakers
async def test_openai_python(scene: Scene) -> None:
    said = await play(scene, "openai", "openai_realtime.py")
    commit, voice = ([event for kind, event in said if kind == name] for name in ("commit", "voice"))
    kinds = check_events(scene, commit)
    assert kinds[f"{TEXT}.completed"] == 1
    assert kinds["input_audio_buffer.speech_started"] == 0
    assert kinds[f"{TEXT}.delta"] > 5, "told while it is spoken"
    kinds = check_events(scene, voice)
    assert kinds[f"{TEXT}.completed"] > 5
    assert kinds["input_audio_buffer.speech_started"] == kinds["input_audio_buffer.speech_stopped"] > 5
    # One person reads; the speaker of the last turn may not be known when the client leaves.
    speakers = Counter(event["speaker"] for event in of(voice, f"{TEXT}.segment"))
    assert speakers["A"] > 5
    assert set(speakers) <= {"A", "?"}
    (opened,) = [event for kind, event in said if kind == "secret"]
    assert opened["type"] == "session.created"


@needs("livekit")
async def test_livekit_by_voice_is_sent_no_error_whatever_it_sets(scene: Scene) -> None:
    """An `error` of any kind ends its stream, and so fails its program."""
    said = await play(scene, "livekit", "livekit_openai.py")
    for name in ("defaults", "all"):
        mine = [(kind.rpartition(".")[2], event) for kind, event in said if kind.startswith(f"{name} ")]
        texts = [event["text"] for kind, event in mine if kind == "FINAL_TRANSCRIPT"]
        if name == "defaults":
            check(scene, *texts)
        else:
            # A prompt and keywords change what the model hears, natively too: here it is heard at all.
            assert rate(scene.reference, texts) < 0.1, texts
        kinds = Counter(kind for kind, _ in mine)
        assert kinds["START_OF_SPEECH"] == kinds["END_OF_SPEECH"] > 5
        assert kinds["INTERIM_TRANSCRIPT"] > 5


@needs("pipecat")
async def test_pipecat_by_commit(scene: Scene) -> None:
    said = await play(scene, "pipecat", "pipecat_openai.py")
    kinds = Counter(kind for kind, _ in said)
    assert kinds["ErrorFrame"] == 0
    assert kinds["InterimTranscriptionFrame"] > 5
    check(scene, *(frame["text"] for kind, frame in said if kind == "TranscriptionFrame"))


@needs("node-openai")
async def test_openai_js_over_tls(scene: Scene, tmp_path: Path) -> None:
    """It speaks nothing else; the certificate is of an authority that is made here and thrown away."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    ca, cert, key = await certificates(tmp_path)
    async with server(tmp_path, f'tls_cert = "{cert}"', f'tls_key = "{key}"') as (url, log):
        assert url.startswith("https://")
        secure = replace(scene, url=url, log=log)
        said = await play(secure, "node-openai", "openai_realtime.mjs", NODE_EXTRA_CA_CERTS=str(ca))
        assert [event["type"] for kind, event in said if kind == "secret"] == ["session.created"]
        assert "error" not in {kind for kind, _ in said}
        kinds = check_events(secure, [event for kind, event in said if kind == "event"])
        assert kinds[f"{TEXT}.completed"] > 5


async def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """An authority, and a certificate for this machine with its key."""
    ca, ca_key, request, cert, key = (
        folder / name for name in ("ca.pem", "ca.key", "cert.csr", "cert.pem", "cert.key")
    )
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    await openssl(
        "req", "-x509", *new, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=thrown away"
    )
    await openssl("req", *new, "-keyout", key, "-out", request, "-subj", "/CN=localhost")
    names = folder / "names"
    names.write_text("subjectAltName = IP:127.0.0.1, DNS:localhost\n")
    issue = ("-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-extfile", names)
    await openssl("x509", "-req", "-in", request, *issue, "-out", cert, "-days", "2")
    return ca, cert, key


async def openssl(*arguments: str | Path) -> None:
    process = await asyncio.create_subprocess_exec(
        "openssl", *map(str, arguments), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode("utf-8", "replace")
