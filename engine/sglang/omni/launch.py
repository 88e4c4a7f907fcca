"""Starting an SGLang-Omni server, which lives in an environment of its own: what is there, what is missing,
the configuration file, the command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.policies.serving import ModelFacts
from engine.sglang.child import run
from engine.sglang.flags import LaunchSettings, Machine

from . import versions
from .versions import Stage

_ASK = """
import json
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in %r:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""
_NAMES = ("sglang-omni", *next(iter(versions.PINS.values())))
_RUN = "from sglang_omni.cli import app; app()"
MOST_RUNNING = 128
"""Requests decoded at once, unless the operator says fewer: each start captures graphs for so many."""


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python and what its environment holds, as distribution -> version."""

    python: str
    installed: Mapping[str, str]

    @property
    def version(self) -> versions.Version:
        return versions.parsed(self.installed.get("sglang-omni", ""))


def find_environment(folder: str | None = None) -> Environment:
    """The environment in `folder`; without one, ours if it holds SGLang-Omni, else that of the `sgl-omni` on
    the path. Raises `ValueError` for a folder without a Python that runs."""
    if folder is not None:
        return _look(str(Path(folder).expanduser() / "bin" / "python"))
    here = _look(sys.executable)
    command = None if "sglang-omni" in here.installed else shutil.which("sgl-omni")
    python = None if command is None else Path(command).resolve().parent / "python"
    return _look(str(python)) if python is not None and python.exists() else here


def _look(python: str) -> Environment:
    try:
        answer = subprocess.run(
            [python, "-c", _ASK % (_NAMES,)], capture_output=True, text=True, timeout=60, check=True
        )
        return Environment(python, json.loads(answer.stdout))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ValueError(f"--environment: {python} does not run: {error}") from error


def missing(environment: Environment) -> str | None:
    """Why it cannot serve, and the commands that make one that can; None where it can."""
    faults = versions.wrong(environment.installed)
    if not faults:
        return None
    python, newest = ".".join(map(str, versions.PYTHON)), versions.shown(versions.NEWEST)
    return (
        f"{'; '.join(faults)} (in the environment of {environment.python}). It needs one of its own:\n"
        f"  python{python} -m venv omni && omni/bin/pip install sglang-omni=={newest}\n"
        "then start it with --environment omni"
    )


def stage_of(facts: ModelFacts, settings: LaunchSettings, machine: Machine) -> Stage:
    """How its stage runs on this machine."""
    backend = "flashinfer" if machine.gpu and not machine.flash_attention else None
    running = min(settings.running, MOST_RUNNING)
    return Stage(running, backend, prefix_cache=facts.prefix_cache, gather=facts.gather)


def command(
    environment: Environment, config: Path, settings: LaunchSettings, extra: Sequence[str] = ()
) -> list[str]:
    """What starts it; it listens on this machine only, for it asks nobody who they are."""
    made = [environment.python, "-c", _RUN, "serve", "--config", str(config), "--host", "127.0.0.1"]
    made += ["--port", str(settings.port)]
    if settings.memory_fraction is not None:
        made += ["--mem-fraction-static", str(settings.memory_fraction)]
    return [*made, *extra]


def serve(
    environment: Environment,
    pipeline: str,
    folder: Path,
    stage: Stage,
    settings: LaunchSettings,
    extra: Sequence[str],
) -> int:
    """Run it in the foreground; its exit status."""
    with tempfile.TemporaryDirectory(prefix="seamscribe-omni-") as place:
        config = Path(place) / "config.json"
        config.write_text(json.dumps(described(environment, pipeline, folder, stage)), "utf-8")
        return run(command(environment, config, settings, extra), os.environ)


def described(environment: Environment, pipeline: str, folder: Path, stage: Stage) -> dict[str, object]:
    """The configuration file."""
    return versions.config(environment.version, pipeline, str(folder.absolute()), stage)
