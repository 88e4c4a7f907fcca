"""The doctor names what is missing and the command that brings it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from engine.doctor import examine, main

ROOT = Path(__file__).resolve().parents[2]


def test_a_model_that_is_not_here_is_missing_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "/nowhere/at/all"]) == 1
    out = capsys.readouterr().out
    assert "MISSING weights /nowhere/at/all: no model" in out
    assert "The embedded engine cannot run" in out


def test_a_folder_counts_as_weights(tmp_path: Path) -> None:
    for name in ("model.bin", "tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes(b"x")
    weights = [finding for finding in examine(str(tmp_path)) if finding.subject == f"weights {tmp_path}"]
    assert [finding.good for finding in weights] == [True]


def test_what_is_only_nice_to_have_does_not_fail(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for package in ("onnxruntime", "ctranslate2", "faster_whisper"):
        pytest.importorskip(package)
    for name in ("model.bin", "tokenizer.json", "config.json"):
        (tmp_path / name).write_bytes(b"x")
    assert main(["--model", str(tmp_path)]) == 0
    assert f"would run the embedded engine: {tmp_path}" in capsys.readouterr().out


def test_all_that_the_engines_extra_brings_is_looked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    brought = {re.split(r"[<>=]", part)[0] for part in project["optional-dependencies"]["engine"]}
    needed = {finding.subject for finding in examine("/nowhere/at/all") if finding.needed}
    assert brought <= needed


def test_every_needed_part_that_can_be_missing_has_a_remedy() -> None:
    for finding in examine("/nowhere/at/all"):
        if finding.subject not in ("voice activity detection", "weights /nowhere/at/all"):
            assert finding.remedy or finding.good


@pytest.mark.parametrize(("fraction", "status"), [("0.55", 0), ("0.3", 1)])
def test_it_says_what_fits_into_a_gpu(fraction: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--model", "moss_td", "--memory", "24", "--fraction", fraction, "--recording", "3000"]
    assert main(asked) == status
    shown = capsys.readouterr().out
    assert "114688 bytes a position" in shown
    assert ("It does not fit" in shown) == ("T2" in shown) == bool(status)
