"""The container files name what there is. They are not built here: that takes an engine that CI has not."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from streaming.cli import COMMANDS
from streaming.settings import load

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / "configs").glob("*.Containerfile"))


def instructions(file: Path) -> list[tuple[str, str]]:
    """In order, continued lines joined."""
    text = re.sub(r"^#.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(" ", 1)[0], line.split(" ", 1)[1]) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_it_names_exists(file: Path) -> None:
    said = instructions(file)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    copied = {source for kind, rest in said if kind == "COPY" for source in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in copied)
    packages = {"streaming", "engine", "clients"}
    assert copied >= packages | {"pyproject.toml", project["readme"], *project["license-files"]}
    extras = {
        e for _, rest in said for found in re.findall(r"'\.\[([^\]]*)\]'", rest) for e in found.split(",")
    }
    assert extras
    assert extras <= project["optional-dependencies"].keys()
    runs = [rest.split()[1] for kind, rest in said if kind == "RUN" and rest.startswith("seamscribe ")]
    (command,) = (json.loads(rest) for kind, rest in said if kind == "CMD")
    assert {*runs, command[0]} <= COMMANDS.keys()
    (health,) = (rest for kind, rest in said if kind == "HEALTHCHECK")
    compile(json.loads(health[health.index("[") :])[2], file.name, "exec")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_its_settings_are_settings(file: Path) -> None:
    pairs = [pair for kind, rest in instructions(file) if kind == "ENV" for pair in shlex.split(rest)]
    settings = load(environment=dict(pair.split("=", 1) for pair in pairs))
    assert settings.server.host == "0.0.0.0"
    assert settings.journal.path.startswith("/data/")
    assert settings.engine.kind == ("sglang" if file.stem == "gpu" else "local")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_server_runs_as_nobody_in_particular(file: Path) -> None:
    kinds = [kind for kind, _ in instructions(file)]
    assert kinds.index("USER") < kinds.index("ENTRYPOINT")
    assert "root" not in next(rest for kind, rest in instructions(file) if kind == "USER")


def test_there_is_one_without_and_one_with_a_gpu() -> None:
    assert [file.stem for file in FILES] == ["cpu", "gpu"]
