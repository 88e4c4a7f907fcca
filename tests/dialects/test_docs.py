"""The snippets of the pages of clients/docs that need no other library run as written."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from streaming.dialects import acs, attendee, recall, twilio
from tests.support.server import server

DOCS = Path(__file__).resolve().parents[2] / "clients" / "docs"
BOTS = (twilio.WAY, recall.WAY, attendee.WAY, acs.WAY)


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
