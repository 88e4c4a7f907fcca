"""A server as a child process in the foreground: what ends us ends it."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from types import FrameType

LEAVE_S = 30.0
"""A server that was told to stop may take so long; then it is killed."""

LOOK_S = 0.1


def run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Its exit status; 0 where it ended because SIGTERM or SIGINT came here, which it is told as SIGTERM, and
    at the second one as SIGKILL: left alone it would keep its port and the GPU's memory. It stays in our
    process group, so that whoever ends that ends both. For the main thread."""
    told: list[float] = []

    def stop(number: int, frame: FrameType | None) -> None:
        told.append(time.monotonic())

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with subprocess.Popen(command, env=dict(environment)) as process:
            try:
                return 0 if _ended(process, told) else process.returncode
            finally:
                process.kill()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ended(process: subprocess.Popen[bytes], told: Sequence[float]) -> bool:
    """Return once it has, whether it was told to: whenever `told` has another time."""
    asked = False
    while process.poll() is None:
        if told and not asked:
            process.terminate()
            asked = True
        elif len(told) > 1 or (told and time.monotonic() - told[0] > LEAVE_S):
            process.kill()
        time.sleep(LOOK_S)
    return asked
