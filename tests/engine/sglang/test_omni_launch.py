"""`seamscribe engine FOLDER` for a model of SGLang-Omni: its environment, its configuration, its start."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from engine.sglang import launcher
from engine.sglang.flags import Machine
from engine.sglang.omni import versions
from engine.sglang.omni.versions import PINS, Stage

OLD, NEW = PINS


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "find_machine", lambda: Machine(memory_gib=24.0, flash_attention=False))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    config = {"architectures": ["MossTranscribeDiarizeForConditionalGeneration"], "model_type": "x"}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def environment(place: Path, installed: dict[str, str]) -> Path:
    """One with these distributions, whose server writes down how it was started."""
    site = place / "site"
    for name, version in installed.items():
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "utf-8")
    package = site / "sglang_omni"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    started = place / "started.json"
    (package / "cli.py").write_text(
        "import json, sys\n"
        "def app():\n"
        "    config = open(sys.argv[sys.argv.index('--config') + 1]).read()\n"
        f"    open({str(started)!r}, 'w').write(json.dumps([sys.argv[1:], json.loads(config)]))\n"
        "    sys.exit(3)\n",
        "utf-8",
    )
    (place / "bin").mkdir()
    python = place / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n', "utf-8")
    python.chmod(0o755)
    return place


def distributions(version: versions.Version) -> dict[str, str]:
    return {"sglang-omni": versions.shown(version), **PINS[version]}


def test_it_starts_the_server_and_tells_how_it_ended(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = environment(tmp_path / "omni", distributions(OLD))
    asked = [str(model), "--environment", str(place), "--memory-fraction", "0.55", "--port", "31999"]
    assert launcher.main([*asked, "--running", "100", "--", "--log-level", "info"]) == 3
    told = capsys.readouterr().err
    assert "114688 bytes a position" in told
    assert "ended with status 3" in told
    arguments, config = json.loads((place / "started.json").read_text("utf-8"))
    assert arguments[0] == "serve"
    assert arguments[arguments.index("--host") + 1] == "127.0.0.1"
    assert arguments[-6:] == ["--port", "31999", "--mem-fraction-static", "0.55", "--log-level", "info"]
    assert config["config_cls"] == "MossTranscribeDiarizePipelineConfig"
    assert config["model_path"] == str(model)
    stage = config["runtime_overrides"]["asr"]
    assert (stage["max_running_requests"], stage["request_build_max_pending"]) == (100, 200)
    assert stage["server_args_overrides"] == {"attention_backend": "flashinfer", "disable_radix_cache": True}
    assert (stage["prefill_coalesce_requests"], stage["prefill_coalesce_wait_ms"]) == (12, 40)


@pytest.mark.parametrize("version", PINS)
def test_what_a_model_leaves_to_the_server_is_not_in_the_file(version: versions.Version) -> None:
    assert not re.search("radix|coalesce", str(versions.config(version, "P", "/m", Stage(8))))
    made = str(versions.config(version, "P", "/m", Stage(8, prefix_cache=False, gather=5)))
    assert "'disable_radix_cache': True" in made
    assert "'prefill_coalesce_requests': 5" in made


def test_the_newer_version_takes_another_file() -> None:
    made = versions.config(NEW, "P", "/m", Stage(64, "flashinfer"))
    engine = {"max_running_requests": 64, "enable_torch_compile": False, "attention_backend": "flashinfer"}
    assert made["stages"] == {"asr": {"engine": engine, "factory": {"request_build_max_pending": 128}}}
    assert "runtime_overrides" not in made


@pytest.mark.parametrize(
    ("installed", "told"),
    [
        ({}, "sglang-omni is not installed"),
        ({"sglang-omni": "0.2.0"}, "sglang-omni 0.2.0 is not known here: 0.1.3 and 0.1.9 are"),
        (distributions(OLD) | {"sglang": "0.5.23"}, "sglang is 0.5.23: sglang-omni 0.1.3 needs 0.5.16"),
        ({"sglang-omni": "0.1.9", "sglang": "0.5.22"}, "torch is not installed: sglang-omni 0.1.9 needs"),
    ],
)
def test_it_says_what_is_missing(
    model: Path,
    tmp_path: Path,
    installed: dict[str, str],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place = environment(tmp_path / "omni", installed)
    assert launcher.main([str(model), "--environment", str(place)]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert "pip install sglang-omni==0.1.9" in shown
    assert not (place / "started.json").exists()


def test_a_folder_without_a_python_is_named(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main([str(model), "--environment", "/nowhere"]) == 2
    assert "--environment: /nowhere/bin/python does not run" in capsys.readouterr().err


def test_it_shows_file_and_command_and_starts_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = environment(tmp_path / "omni", distributions(NEW))
    assert launcher.main([str(model), "--environment", str(place), "--print"]) == 0
    config, command = capsys.readouterr().out.splitlines()
    assert json.loads(config)["stages"]["asr"]["engine"]["max_running_requests"] == 128
    assert "sglang_omni.cli" in command
    assert not (place / "started.json").exists()


def test_what_does_not_fit_is_refused(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main([str(model), "--print", "--memory-fraction", "0.2"]) == 0
    assert launcher.main([str(model), "--print", "--memory-fraction", "0.2", "--recording", "5400"]) == 2
    assert "positions are needed" in capsys.readouterr().err
