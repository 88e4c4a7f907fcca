"""A real Redis of the test's own, on a socket in a folder; without `redis-server` or its client the test is
skipped."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SERVER = shutil.which("redis-server")


@contextmanager
def redis_server(*arguments: str) -> Iterator[str]:
    """Its URL."""
    if SERVER is None:
        pytest.skip("needs redis-server (Debian: redis-server)")
    # Not pytest's folder: a socket's path has 108 bytes at most.
    with (
        tempfile.TemporaryDirectory(prefix="redis") as folder,
        running_redis(Path(folder), *arguments) as (url, _),
    ):
        yield url


@contextmanager
def running_redis(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """One over what `folder` has: its URL and the process."""
    assert SERVER is not None
    place = folder / "r.sock"
    keeping = ("--port", "0", "--unixsocket", str(place), "--dir", str(folder), "--save", "")
    process = subprocess.Popen(
        [SERVER, *keeping, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 20
        while not _listens(place):
            assert time.monotonic() < until, "Redis did not come up"
            assert process.poll() is None, "Redis ended"
            time.sleep(0.01)
        yield f"unix://{place}", process
    finally:
        process.kill()
        process.wait()


def _listens(place: Path) -> bool:
    """That the socket is there says nothing yet: it is bound a moment before it listens."""
    with socket.socket(socket.AF_UNIX) as one:
        return one.connect_ex(str(place)) == 0
