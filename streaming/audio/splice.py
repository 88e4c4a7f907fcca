"""What one client sends over several connections, joined to one run of whole samples. Pure.

After a lost connection both sides know the same position: the sample on the 16 kHz clock that the server
names. At another rate it lies between two of the client's samples, so the client begins a little earlier,
by a rule that both follow, and what came twice is dropped here, to the sample.
"""

from __future__ import annotations

from streaming.wire.messages import CLOCK_RATE


class Splice:
    """Counts the samples of one client; `stride` is the size of one of all channels in bytes, `rate` how many
    there are a second. It begins with the first at or after `clock` (16 kHz)."""

    def __init__(self, stride: int, rate: int, clock: int = 0) -> None:
        self._stride = stride
        self._rate = rate
        self._rest = b""
        self._skip = 0
        self.samples = -(-clock * rate // CLOCK_RATE)
        """Whole samples taken, at the client's rate."""

    @property
    def next_sample(self) -> int:
        """The first sample on the 16 kHz clock that is still to come."""
        return self.samples * CLOCK_RATE // self._rate

    def rejoin(self) -> None:
        """Another connection: it begins with the first of the client's samples at or after `next_sample`.
        Half a sample that the old one broke off in is dropped, for it comes again."""
        self._rest = b""
        begins = -(-self.next_sample * self._rate // CLOCK_RATE)
        self._skip = (self.samples - begins) * self._stride

    def take(self, data: bytes) -> bytes:
        """The whole samples that are new."""
        if self._skip:
            dropped = min(self._skip, len(data))
            self._skip -= dropped
            data = data[dropped:]
        if self._rest:
            data = self._rest + data
        odd = len(data) % self._stride
        self._rest = data[len(data) - odd :] if odd else b""
        self.samples += len(data) // self._stride
        return data[: len(data) - odd] if odd else data
