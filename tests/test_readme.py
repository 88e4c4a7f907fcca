"""The README's two commands, run as written in a copy of the tree with nothing installed.

Minutes of installing and a minute of speech, so they run only where SEAMSCRIBE_README asks for them:
`demo`, `tests` or `all`. Inside a command under test it is `none`: the tests command runs these tests.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from streaming.cli import COMMANDS
from streaming.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
WANTED = os.environ.get("SEAMSCRIBE_README", "none")
LEFT_OUT = (".git", ".venv*", "*.egg-info", "build", "__pycache__", ".*_cache", ".hypothesis", ".coverage*")

pytestmark = [pytest.mark.readme, pytest.mark.timeout(3600)]


def commands() -> list[str]:
    """The first two shell blocks of the README, each one command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [block.strip() for block in re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL)[:2]]


def run(command: str, folder: Path) -> str:
    copy = folder / "seamscribe"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
    # Nothing of the environment that runs this test may help: no active venv, no path to its packages.
    env = {k: v for k, v in os.environ.items() if k not in {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}}
    env["SEAMSCRIBE_README"] = "none"
    log = folder / "log.txt"
    with log.open("wb") as output:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=copy,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    said = log.read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, said[-4000:]
    return said


def test_the_first_screen_holds_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    demo, tests = commands()
    assert "seamscribe demo" in demo
    assert tests.splitlines() == [".ci/run"]
    # Both stand where a reader sees them without scrolling.
    assert text.index(tests, text.index(demo)) < text.index("\n## ")


@pytest.mark.skipif(
    WANTED not in {"demo", "all"}, reason="installs everything: SEAMSCRIBE_README=demo or all"
)
def test_the_first_command_runs_the_demo(tmp_path: Path) -> None:
    said = run(commands()[0], tmp_path)
    assert "best of times" in re.sub(r"\s+", " ", said).lower()
    assert "receipt" in said.lower()


@pytest.mark.skipif(
    WANTED not in {"tests", "all"}, reason="installs everything: SEAMSCRIBE_README=tests or all"
)
def test_the_second_command_passes_the_tests(tmp_path: Path) -> None:
    assert " passed" in run(commands()[1], tmp_path)


def test_every_server_setting_is_explained() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Settings")[2].partition("\n## ")[0]
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    missing = [
        f"{name}.{field.name}"
        for name in ("server", "engine", "limits")
        for field in msgspec.structs.fields(sections[name])
        if f"`{field.name}`" not in text
    ]
    assert not missing


def test_every_command_is_listed() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"`seamscribe {name}" not in text] == []
