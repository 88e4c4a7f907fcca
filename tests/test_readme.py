"""The README and its pages: the two commands run as written in a copy of the tree with nothing installed, the
example runs against a server, what they list is all there is, and no link leads nowhere.

The commands are minutes of installing and a minute of speech, so they run only where SEAMSCRIBE_README asks
for them: `demo`, `tests` or `all`. Inside a command under test it is `none`: the tests command runs these
tests.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from clients.bench import cli as bench
from streaming.cli import COMMANDS, main
from streaming.settings import Settings
from streaming.wire import codec
from streaming.wire.errors import CloseCode
from streaming.wire.messages import (
    AudioFormat,
    ClientMessage,
    Limits,
    Options,
    Receipt,
    ServerMessage,
    Span,
    Track,
    Word,
)
from tests.support.server import server

ROOT = Path(__file__).resolve().parent.parent
PROTOCOL = "clients/docs/protocol.md"
COMMAND_PAGE = "clients/docs/commands.md"
SETTING = re.compile(r"^\| `(\w+)` \|(?: `(.*?)`)? \| ", re.MULTILINE)
WANTED = os.environ.get("SEAMSCRIBE_README", "none")
LEFT_OUT = (
    ".git",
    ".venv*",
    ".ways",
    "*.egg-info",
    "build",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    ".coverage*",
)

pytestmark = [pytest.mark.readme, pytest.mark.timeout(3600)]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands() -> list[str]:
    """The first two shell blocks of the README, each one command."""
    text = page("README.md")
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
    text = page("README.md")
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
    assert "originally from chicago" in re.sub(r"\s+", " ", said).lower()
    assert "Speaker 1: " in said
    assert "receipt" in said.lower()


@pytest.mark.skipif(
    WANTED not in {"tests", "all"}, reason="installs everything: SEAMSCRIBE_README=tests or all"
)
def test_the_second_command_passes_the_tests(tmp_path: Path) -> None:
    assert " passed" in run(commands()[1], tmp_path)


def test_every_folder_of_the_service_is_listed() -> None:
    listed = page("README.md").partition("## How it works")[2].partition("\n## ")[0]
    folders = {place.parent.name for place in (ROOT / "streaming").glob("*/__init__.py")}
    assert [name for name in folders if f"`{name}`" not in listed.replace("streaming/", "")] == []


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {}
    for section in page("configs/SETTINGS.md").split("\n## ")[1:]:
        name, _, rows = section.partition("\n")
        listed[name] = {
            key: tomllib.loads(f"x = {default}")["x"] if default else None
            for key, default in SETTING.findall(rows)
        }
    assert listed == msgspec.json.decode(msgspec.json.encode(Settings()))


def test_every_command_is_listed() -> None:
    for name in ("README.md", COMMAND_PAGE):
        assert [command for command in COMMANDS if f"`seamscribe {command}" not in page(name)] == []


def test_every_kind_of_bench_is_listed() -> None:
    (listed,) = re.findall(r"`seamscribe bench ([^ ]+) --audio", page(COMMAND_PAGE))
    (offered,) = (a.choices for a in bench.parser()._actions if isinstance(a.choices, dict))
    assert sorted(listed.split("\\|")) == sorted(offered)


# `engine` has a page of its own, and `bench` a help for each kind.
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"engine", "bench"}))
def test_every_option_is_listed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    options, listed = (
        set(re.findall(r"--[a-z][a-z-]*", text)) for text in (capsys.readouterr().out, page(COMMAND_PAGE))
    )
    assert options - {"--help"} <= listed


@pytest.mark.e2e
async def test_the_example_runs_as_written() -> None:
    text = page("README.md")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert "127.0.0.1:8765" in example
    pipe = asyncio.subprocess.PIPE
    async with server() as running:
        code = example.replace("127.0.0.1:8765", running.address)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-c", code, cwd=ROOT, stdout=pipe, stderr=pipe
        )
        out, said = await child.communicate()
    assert (child.returncode, said) == (0, b"")
    assert b"samples=48000" in out
    assert out.split()[-1] == b"complete"


def fields_of(shape: type[msgspec.Struct]) -> list[str]:
    """The names of its fields; those that a message may lack end with a question mark."""
    lean = shape.__struct_config__.omit_defaults

    def may_lack(field: msgspec.structs.FieldInfo) -> bool:
        return field.default is msgspec.UNSET or (lean and not field.required)

    return [field.name + "?" * may_lack(field) for field in msgspec.structs.fields(shape)]


def test_every_message_of_the_server_is_listed_with_its_fields() -> None:
    text = page(PROTOCOL)
    rows = dict(re.findall(r"^\| `(\w+) \{(.*?)\}` \|", text, re.MULTILINE))
    shapes = {str(shape.__struct_config__.tag): shape for shape in get_args(ServerMessage)}
    assert {tag: sorted(row.split(", ")) for tag, row in rows.items()} == {
        tag: sorted(set(fields_of(shape)) - {"seq"}) for tag, shape in shapes.items()
    }


def test_all_that_a_client_may_say_is_stated() -> None:
    protocol = page(PROTOCOL)
    said = [*get_args(ClientMessage), AudioFormat, Options, Track]
    names = {field.name for shape in said for field in msgspec.structs.fields(shape)}
    tags = {str(shape.__struct_config__.tag) for shape in get_args(ClientMessage)}
    in_binary_frames = {"audio", "data"}
    assert [
        name for name in (names | tags) - in_binary_frames if not re.search(rf"\b{name}\b", protocol)
    ] == []


def test_the_protocols_shapes_and_codes_are_stated() -> None:
    protocol = " ".join(page(PROTOCOL).split())
    for shape in (Word, Receipt, Span, Limits):
        assert f"{{{', '.join(fields_of(shape))}}}" in protocol
    stated = set(re.findall(r"\b[14]\d{3}\b", protocol.partition("Close codes: ")[2]))
    assert stated == {str(int(code)) for code in CloseCode} | {"1002", "1007"}


def codes_of(path: Path) -> Iterator[tuple[str, int]]:
    """Each code of an error that a module makes, with the code that its stream is closed with."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        maker, code = ast.unparse(node.func), node.args[0]
        close = next((ast.unparse(word.value) for word in node.keywords if word.arg == "close"), None)
        if not isinstance(code, ast.Constant) or not isinstance(code.value, str):
            continue
        if maker == "ProtocolError" or (maker == "super().__init__" and close is not None):
            name = (close or "CloseCode.BAD_REQUEST").removeprefix("CloseCode.")
            yield code.value, int(CloseCode[name])


def test_every_error_of_a_stream_is_listed_with_its_close_code() -> None:
    rows = re.findall(r"^\| (\d{4}) \| [^|]* \| (.*) \|$", page(PROTOCOL), re.MULTILINE)
    listed = {code: int(close) for close, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    others = {"dialects", "openai", "deepgram", "files"}  # they have errors of their own
    made = dict.fromkeys(codec._CODES.values(), int(CloseCode.BAD_REQUEST))
    for path in sorted((ROOT / "streaming").rglob("*.py")):
        if path.parent.name not in others:
            made |= dict(codes_of(path))
    assert listed == made


def anchors(text: str) -> set[str]:
    """What links may name in a page, as GitHub makes it of headings."""
    found = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.M)
    plain = (re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading) for heading in found)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def test_no_link_leads_nowhere() -> None:
    folders = ("clients", "configs", "demo", "engine", "streaming", "tests")
    broken = []
    for source in (
        ROOT / "README.md",
        *(path for folder in folders for path in (ROOT / folder).rglob("*.md")),
    ):
        for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", source.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            place = source.parent / path if path else source
            if not place.exists() or (anchor and anchor not in anchors(place.read_text(encoding="utf-8"))):
                broken.append(f"{source.relative_to(ROOT)}: {link}")
    assert not broken
