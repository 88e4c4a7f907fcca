"""A real server with real weights and a real recording, and other people's programs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.aio import Stream, connect
from clients.bench.scoring import score
from clients.captions import Captions
from streaming.access.keys import digest
from tests.engine.real import needs_data, needs_weights, recording, references
from tests.support.sound import s16

ROOT = Path(__file__).resolve().parents[2]
WAYS = ROOT / ".ways"
PROGRAMS = Path(__file__).parent / "programs"
MODEL = "tiny.en"
SPEED = 2.0
"""Faster than speech, for the sake of whoever waits for the tests."""
KEY = "smk_" + "w" * 43
PATIENCE_S = 240.0
ALLOWED = 0.01
"""Word error rate above that of the native protocol."""
_RERUN = pytest.mark.flaky(reruns=2, reruns_delay=2)
"""On a machine that falls behind for a moment a refresh hears something else, and one word of 128 is most of
a point. Who is worse three times in a row is worse."""

MARKS = [
    pytest.mark.sdk,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
    _RERUN,
    needs_data,
    needs_weights(MODEL),
]
"""Of all tests here."""

PARTS = tuple(f"utterances_en/ljspeech/LJ001-{number:04d}.flac" for number in range(1, 9))


def needs(environment: str) -> pytest.MarkDecorator:
    """Skip where these clients are not installed."""
    found = (WAYS / environment / "packages").is_file()
    return pytest.mark.skipif(not found, reason=f"not installed: tests/ways/install.sh {environment}")


@dataclass(frozen=True)
class Scene:
    """A server that listens, and what is said to it."""

    url: str
    log: Path
    clip: Path
    """s16le, 16 kHz, mono."""
    reference: str
    native: float
    """Word error rate over the native protocol."""


def clip(folder: Path) -> tuple[Path, str]:
    """Sentences with pauses between, and their text."""
    # One pause is long enough for whatever waits for the end of an utterance.
    pauses = [
        np.zeros(int(seconds * 16_000), np.float32) for seconds in (0.7, 0.7, 0.7, 5, 0.7, 0.7, 0.7, 0.7)
    ]
    audio = np.concatenate(
        [piece for part, pause in zip(PARTS, pauses, strict=True) for piece in (recording(part), pause)]
    )
    file = folder / "clip.pcm"
    file.write_bytes(s16(audio))
    return file, " ".join(references()[part] for part in PARTS)


@asynccontextmanager
async def server(folder: Path, *settings: str, model: str = MODEL) -> AsyncIterator[tuple[str, Path]]:
    """`seamscribe serve` with a key, its address and its log, everything at debug; `settings` are more lines
    of `[server]`."""
    config, log = folder / "config.toml", folder / "log.txt"
    config.write_text(
        f'[auth.keys]\nbot = {{sha256 = "{digest(KEY)}", scopes = ["speak"]}}\n'
        # Whether there is room on a machine that others use is not what is tried here.
        '[admission]\non = false\n[server]\nlog_level = "debug"\n' + "\n".join(settings)
    )
    options = ("--model", model, "--config", str(config), "--port", "0", "--no-journal")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "streaming", "serve", *options), cwd=ROOT, stdout=output, stderr=output
        )
        try:
            async with asyncio.timeout(120):
                while not (found := re.search(r"https?://[\d.]+:\d+", log.read_text("utf-8", "replace"))):
                    assert process.returncode is None, log.read_text("utf-8", "replace")
                    await asyncio.sleep(0.1)
            yield found.group(), log
        finally:
            process.terminate()
            await process.wait()


async def natively(url: str, audio: bytes) -> str:
    """What our own client hears."""
    captions = Captions()

    async def speak(stream: Stream) -> None:
        for at in range(0, len(audio), 3200):
            await stream.send(audio[at : at + 3200])
            await asyncio.sleep(0.1 / SPEED)
        await stream.end()

    async with connect(url, key=KEY) as stream, asyncio.TaskGroup() as tasks:
        tasks.create_task(speak(stream))
        async for message in stream:
            captions.receive(message)
    return captions.committed


async def play(
    scene: Scene, environment: str, program: str, **variables: str
) -> list[tuple[str, dict[str, Any]]]:
    """What a program prints of its stream: kind and content of each message."""
    node = shutil.which("node") if program.endswith(".mjs") else None
    runs = node or str(WAYS / environment / "bin" / "python")
    env = {**os.environ, "WAYS": str(WAYS), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **variables}
    env.pop("PYTHONPATH", None)
    process = await asyncio.create_subprocess_exec(
        *(runs, str(PROGRAMS / program), scene.url, KEY, str(scene.clip), str(SPEED)),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            out, complaints = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaints.decode("utf-8", "replace")[-4000:]
    return [(kind, content) for kind, content in map(json.loads, out.splitlines())]


def rate(reference: str, texts: Sequence[str]) -> float:
    """Word error rate of texts one after the other."""
    return score(reference, " ".join(texts), "en").rate


def check(scene: Scene, *texts: str) -> None:
    """As many words as over the native protocol; keys stay with who sent them, and nothing went wrong."""
    found = rate(scene.reference, texts)
    assert found <= scene.native + ALLOWED, (found, scene.native, texts)
    log = scene.log.read_text("utf-8", "replace")
    assert KEY not in log
    assert not re.search(r"\bek_|Traceback|ERROR", log)
