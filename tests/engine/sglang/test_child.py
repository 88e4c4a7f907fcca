"""A server of ours in the foreground: real processes and signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

pytestmark = pytest.mark.e2e

RUNNER = """
import os, sys
from engine.sglang import child
child.LEAVE_S = 0.3
sys.exit(child.run([sys.executable, "-c", sys.argv[1]], os.environ))
"""

SERVER = """
import os, signal, sys, time
{0}
print(os.getpid(), flush=True)
{1}
"""

STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"


@contextmanager
def running(before: str = "", then: str = "time.sleep(600)") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """What runs the server, and the server's process."""
    code = SERVER.format(before, then)
    process = subprocess.Popen([sys.executable, "-c", RUNNER, code], stdout=subprocess.PIPE)
    server = 0
    try:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        yield process, server
    finally:
        process.kill()
        process.communicate()
        with suppress(psutil.NoSuchProcess):
            psutil.Process(server).kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("before", ["", STUBBORN], ids=["willing", "stubborn"])
def test_what_ends_us_ends_the_server(number: signal.Signals, before: str) -> None:
    with running(before) as (process, server):
        process.send_signal(number)
        assert process.wait(60) == 0
        assert not psutil.pid_exists(server)


def test_a_server_that_fails_is_told_by_its_status() -> None:
    with running(then="sys.exit(3)") as (process, _):
        assert process.wait(60) == 3
