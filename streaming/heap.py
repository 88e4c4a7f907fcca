"""Memory that is free is used again, or goes back to the system.

Audio, features and tensors of many sizes are freed in another order than they were taken. glibc gives each
thread a heap of its own, and what one has free serves no other: 427 MiB were held after four minutes of
speech, and rising, of which 115 were in use. With one heap for all it is 330-350 from two minutes on, and
decoding takes no longer. Mapping large blocks one by one would do it too, at twice the encoder's time.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

TRIM_S = 30.0

_M_ARENA_MAX = -8
"""glibc's number for the most heaps that a process may have."""


def one_heap() -> bool:
    """From now on threads that begin share the first heap; False where the C library does not know how (it
    is glibc's own)."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    return bool(mallopt(_M_ARENA_MAX, 1))


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
