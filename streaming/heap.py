"""Freed memory goes back to the system.

Audio, features and tensors of many sizes are freed in another order than they were taken, and from several
threads; glibc keeps the holes, so a process grows for hours though nothing in it does. Mapping large blocks
one by one would cure it too, at twice the encoder's time.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

TRIM_S = 30.0


def trimmer() -> Callable[[], None] | None:
    """Gives back what can be given back, blocking, without holding up Python; None where the C library does
    not know how (it is glibc's own)."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    trim.argtypes, trim.restype = [ctypes.c_size_t], ctypes.c_int

    def run() -> None:
        trim(0)

    return run


async def give_back(trim: Callable[[], None] | None) -> None:
    """Again and again, without end."""
    while trim is not None:
        await asyncio.sleep(TRIM_S)
        await asyncio.to_thread(trim)
