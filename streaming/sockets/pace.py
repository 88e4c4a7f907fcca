"""What one connection sends is looked at a little at a time, so that other connections get their turn.

The kernel hands over a quarter of a megabyte at once. Of messages, chunks of a body or pings of a byte each
that is forty thousand, and looking at them takes two seconds, in which nobody else is served.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

SLICE = 1 << 11
"""Bytes looked at in one go."""

TURN_S = 0.005
"""After so long others get their turn, before the next slice."""


class Pace(asyncio.Transport):
    """A transport for a protocol that gives all it receives to `take`, and gets it back through what it gave
    to `adopt`: in order, in slices, and none while it has reading paused. What waits is one read of the
    kernel's at most."""

    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._parse: Callable[[bytes], None] = _nobody
        self._held = memoryview(b"")
        self._first = self._looking = self._due = False
        self._paused = self._stopped = False
        """Whether the protocol wants nothing more, and whether the socket is not read."""
        self._last: Callable[[], None] | None = None

    def adopt(self, parse: Callable[[bytes], None]) -> None:
        """From now on slices are for `parse`. Who takes over gives to `take` first what its forerunner had
        read."""
        self._parse, self._first = parse, True

    def take(self, data: bytes) -> None:
        """What came."""
        if not self._held and not self._paused and len(data) <= SLICE:
            self._parse(data)  # as nearly all does
            return
        if self._held:
            data = data + bytes(self._held) if self._first else bytes(self._held) + data
        self._held = memoryview(data)
        self._first = False
        if not (self._due or self._looking):
            self._look()

    def drained(self, then: Callable[[], None]) -> None:
        """The connection is lost: call `then` once all that came before was looked at, or nobody wants it."""
        self._last = then
        if not self._held:
            self.drop()

    def drop(self) -> None:
        """Nobody wants what is held."""
        self._held = memoryview(b"")
        last, self._last = self._last, None
        if last is not None:
            self._parse = _nobody  # else the protocol and this would hold each other
            last()

    def _look(self) -> None:
        self._due = False
        until = self.clock() + TURN_S
        self._looking = True
        try:
            while self._held and not self._paused:
                piece, self._held = self._held[:SLICE], self._held[SLICE:]
                self._parse(bytes(piece))
                if self.clock() >= until:
                    break
        except BaseException:
            self.abort()
            raise
        finally:
            self._looking = False
        if self._held:
            self._stop()
            self._go_on()
        else:
            self._go_on()
            self.drop()

    def _go_on(self) -> None:
        if self._paused or self._due or self._looking:
            return
        if self._held:
            self._due = True
            asyncio.get_running_loop().call_soon(self._look)
        elif self._stopped:
            self._stopped = False
            self._transport.resume_reading()

    def _stop(self) -> None:
        if not self._stopped:
            self._stopped = True
            self._transport.pause_reading()

    # -- as a transport --------------------------------------------------------------------------

    def pause_reading(self) -> None:
        self._paused = True
        self._stop()

    def resume_reading(self) -> None:
        self._paused = False
        self._go_on()

    def close(self) -> None:
        self._transport.close()
        self.drop()

    def abort(self) -> None:
        self._transport.abort()
        self.drop()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self._transport.write(data)

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self._transport.writelines(list_of_data)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)


def _nobody(data: bytes) -> None:
    """Before a protocol has connected."""
