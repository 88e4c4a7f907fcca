"""The three generic top-level names are ours alone, every package is shipped, and the base stays light."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torch", "transformers", "faster_whisper", "ctranslate2", "onnxruntime", "av", "opentelemetry")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ["streaming", "engine", "clients"])
def test_a_top_level_name_is_ours_alone(name: str) -> None:
    # A foreign distribution with the same name would win over an editable install outside the checkout.
    assert set(packages_distributions().get(name, ["seamscribe"])) == {"seamscribe"}
    file = import_module(name).__file__
    assert file is not None
    assert Path(file).resolve().is_relative_to(ROOT)


def test_every_package_is_listed() -> None:
    found = {
        ".".join(init.parent.relative_to(ROOT).parts)
        for top in ("streaming", "engine", "clients")
        for init in (ROOT / top).rglob("__init__.py")
    }
    listed = set(project()["tool"]["setuptools"]["packages"])
    # A folder of pages; were it not listed, everybody who installs this would be warned at length.
    assert listed == found | {"clients.web"}


def test_the_command_exists() -> None:
    (command,) = entry_points(group="console_scripts", name="seamscribe")
    assert callable(command.load())


def test_the_base_install_is_light() -> None:
    required = " ".join(project()["project"]["dependencies"]).lower()
    assert not [name for name in HEAVY if name.replace("_", "-") in required.split()]


def test_the_server_and_listing_the_commands_load_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "import streaming.serve\n"
        "from streaming.cli import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        f"sys.exit(', '.join(set({HEAVY!r}) & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_tracked_that_others_made() -> None:
    # An environment or a package once slipped in: 765 MB, in every clone for ever.
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("no git here")
    files = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    large = [file.name for file in files if file.is_file() and file.stat().st_size > 512 * 1024]
    assert not large, "too large to be source"
    assert not [file for file in files if {"node_modules", "site-packages"} & set(file.parts)]
