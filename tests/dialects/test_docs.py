"""The snippets of clients/docs run as written: with the clients they are for, where those are installed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streaming.dialects import acs, attendee, recall, twilio
from tests.support.server import server
from tests.support.sound import expected, s16, speech, wav
from tests.ways.scene import WAYS

DOCS = Path(__file__).resolve().parents[2] / "clients" / "docs"
BOTS = (twilio.WAY, recall.WAY, attendee.WAY, acs.WAY)


SAID = "xxx.....xx......"
PROGRAMS = {
    "deepgram7": ("deepgram.md", "python", 0),
    "deepgram7 recording": ("deepgram.md", "python", 1),
    "node-deepgram": ("deepgram.md", "js", 0),
    "openai": ("openai.md", "python", 0),
    "openai realtime": ("openai.md", "python", 1),
    "node-openai": ("openai.md", "js", 0),
    "curl": ("openai.md", "sh", 0),
    "livekit": ("livekit.md", "python", 0),
    "pipecat": ("pipecat.md", "python", 0),
}
"""Whose snippet, in which page and language, and which of those."""


def snippet(page: str, language: str, index: int = 0) -> str:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    assert "127.0.0.1:8765" in found[index]
    return found[index]


def recordings(folder: Path) -> None:
    """What the snippets read; the name of a recording says nothing of how it is made."""
    for name in ("meeting.wav", "meeting.m4a"):
        (folder / name).write_bytes(wav(s16(speech(SAID))))
    (folder / "meeting.pcm").write_bytes(s16(speech(SAID, 24_000)))


def command(name: str, folder: Path, program: str) -> list[str]:
    """How the snippet is run; skips where its client is not there."""
    environment = WAYS / name.partition(" ")[0]
    if name == "curl":
        return ["bash", "-c", program]
    if not (environment / "packages").is_file():
        pytest.skip(f"not installed: tests/ways/install.sh {environment.name}")
    if name.startswith("node-"):
        (folder / "node_modules").symlink_to(environment / "node_modules")
        (folder / "program.mjs").write_text(program, "utf-8")
        return ["node", "program.mjs"]
    (folder / "program.py").write_text(program, "utf-8")
    return [str(environment / "bin/python"), "program.py"]


@pytest.mark.e2e
@pytest.mark.parametrize("name", PROGRAMS)
async def test_snippets_of_other_peoples_clients(name: str, tmp_path: Path) -> None:
    recordings(tmp_path)
    words = set(expected(SAID))
    async with server() as running:
        program = snippet(*PROGRAMS[name]).replace("127.0.0.1:8765", running.address)
        child = await asyncio.create_subprocess_exec(
            *command(name, tmp_path, program),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert child.stdout is not None
        assert child.stderr is not None
        said, complaints = "", asyncio.create_task(child.stderr.read())
        try:
            async with asyncio.timeout(60):
                while not words <= set(re.findall(r"[a-z-]+", said.lower())):
                    line = await child.stdout.readline()
                    assert line, f"{said!r} is not all: {(await complaints).decode()[-2000:]}"
                    said += line.decode()
        finally:
            # Some go on for as long as there is audio to come.
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()


@pytest.mark.e2e
async def test_snippets_of_kyutai_and_vosk() -> None:
    snippets = re.findall(r"```python\n(.*?)```", (DOCS / "kyutai-vosk.md").read_text("utf-8"), re.DOTALL)
    assert len(snippets) == 2
    async with server() as running:
        for snippet in snippets:
            assert "127.0.0.1:8765" in snippet
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-W", "error", "-c", snippet.replace("127.0.0.1:8765", running.address)),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(60):
                out, said = await child.communicate()
            assert (child.returncode, said) == (0, b"")
            answers = out.splitlines()
        assert answers == [b'{"partial":""}'] * 5 + [b'{"text":""}']


def test_the_page_of_bots_names_the_addresses_there_are() -> None:
    text = (DOCS / "bots.md").read_text("utf-8")
    assert set(re.findall(r"wss://HOST(/[a-z]+)", text)) == {way.path for way in BOTS}
    for way in BOTS:
        assert all(f"wss://HOST{way.path}?{name}=KEY" in text for name in way.key_queries)
    for snippet in re.findall(r"```json\n(.*?)```", text, re.DOTALL):
        json.loads(snippet)
    (call,) = re.findall(r"```xml\n(.*?)```", text, re.DOTALL)
    given = {one.get("name", "") for one in ElementTree.fromstring(call).iter("Parameter")}
    assert given == {"token", "inbound", "language"}


def test_the_tests_that_the_page_of_conformance_names_are_there() -> None:
    text = (DOCS / "conformance.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 10
    for file, test in named:
        source = (DOCS.parents[1] / file).read_text("utf-8")
        assert not test or f"def {test}(" in source, f"{file} has no {test}"
    assert [row for row in range(1, 9) if f"\n| {row} | " not in text] == []
