"""The snippets of the pages of clients/docs that need no other library run as written."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.support.server import server

DOCS = Path(__file__).resolve().parents[2] / "clients" / "docs"


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
