"""The client as a distribution of its own, and its examples, run without this tree."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from clients.aio import connect
from clients.publish import MODULES, NAME, main, publish
from streaming.wire.messages import AudioFormat, Start, Track
from tests.support.server import server
from tests.support.sound import expected, s16, speech

EXAMPLES = Path(__file__).resolve().parents[2] / "clients" / "examples"


async def example(folder: Path, name: str, *arguments: str) -> str:
    """What an example prints where nothing of ours is installed but what was published."""
    env = {**os.environ, "PYTHONPATH": str(folder)}
    # Our own tree may be installed for editing: its three names are struck out.
    strike = f"import sys, runpy; sys.modules.update(streaming=None, clients=None, engine=None)"  # noqa: F541
    code = f"{strike}; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", code, str(EXAMPLES / name), *arguments),
        env=env,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, complaints = await child.communicate()
    assert (child.returncode, complaints) == (0, b""), complaints.decode("utf-8", "replace")
    return out.decode()


@pytest.mark.e2e
async def test_the_examples_run_with_what_is_published(tmp_path: Path) -> None:
    publish(tmp_path)
    file = tmp_path / "audio.pcm"
    file.write_bytes(s16(speech("xx..x...")))
    async with server() as running:
        said = await example(tmp_path, "speak.py", running.http(""), str(file))
        assert said.split() == expected("xx..x...")
        start = Start(audio=AudioFormat(), tracks=(Track("Ann"),))
        async with connect(running.http(""), start) as stream:
            ready = stream.ready
            await stream.send(file.read_bytes())
            await stream.end()
            async for _ in stream:
                pass
        read = await example(tmp_path, "listen.py", running.http(""), ready.session, ready.read_token)
        assert read == f"Ann: {' '.join(expected('xx..x...'))}\n"


def test_what_is_published_imports_nothing_else_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 0
    package = Path(capsys.readouterr().out.strip())
    files = sorted(package.rglob("*.py"))
    assert {file.stem for file in package.glob("*.py")} == {*MODULES, "__init__"}
    for file in files:
        text = file.read_text("utf-8")
        assert not re.search(r"^\s*(?:from|import) (?:streaming|clients|engine)\b", text, re.MULTILINE), file
        compile(text, str(file), "exec")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["setuptools"]["packages"] == [NAME, f"{NAME}.wire"]
    assert main([]) == main(["--help"]) == 2, "an option is no folder"
