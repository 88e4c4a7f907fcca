"""What a client has said and may have to say again. PURE: no clock, no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from streaming.wire.messages import (
    CLOCK_RATE,
    WIDTHS,
    Alive,
    Audio,
    AudioFormat,
    End,
    Flush,
    Hotwords,
    Name,
    Presence,
)

Told = Name | Presence | Hotwords
"""What has no answer: it has arrived when audio that was said after it has."""

Said = Audio | Flush | Told | Alive | End


@dataclass(frozen=True, slots=True)
class _Item:
    """A message and how many bytes of audio stand before it."""

    at: int
    message: Said

    @property
    def end(self) -> int:
        return self.at + (len(self.message.data) if isinstance(self.message, Audio) else 0)


class Kept:
    """The messages of one session in order. Audio stays until the server says that it need not come again,
    what was told until audio behind it need not, a flush until it is answered; what is lost with a connection
    is said again over the next."""

    def __init__(self, format: AudioFormat, most: int) -> None:
        # Of a container nothing is kept once it is said: a session of it ends with its connection.
        self._stride = WIDTHS.get(format.encoding, 0) * format.channels
        self._rate = format.sample_rate
        self._most = most
        self._said: deque[_Item] = deque()
        self._unsaid: deque[_Item] = deque()
        self._end = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether as much is kept as may be."""
        return self._bytes >= self._most

    @property
    def done(self) -> bool:
        """Whether everything was said over the present connection."""
        return not self._unsaid

    @property
    def first_sample(self) -> int:
        """The oldest sample (16 kHz clock) that can still be sent."""
        items = (*self._said, *self._unsaid)
        at = next((item.at for item in items if isinstance(item.message, Audio)), self._end)
        return -(-at * CLOCK_RATE // (self._stride * self._rate))

    def add(self, message: Said) -> None:
        """To be said after everything else."""
        item = _Item(self._end, message)
        self._unsaid.append(item)
        self._bytes += item.end - item.at
        self._end = item.end

    def next(self) -> Said | None:
        """What is to be said now; None where nothing waits."""
        if not self._unsaid:
            return None
        item = self._unsaid.popleft()
        if isinstance(item.message, Alive) or (isinstance(item.message, Audio) and not self._stride):
            self._bytes -= item.end - item.at
        else:
            self._said.append(item)
        return item.message

    def forget(self, sample: int) -> None:
        """Audio before `sample` (16 kHz clock) need not be sent again."""
        self._drop(sample, 0)

    def spare(self, sample: int) -> None:
        """Where as much is kept as may be: forget audio before `sample`, which the server has but might lose,
        until half of it is kept."""
        if self.full:
            self._drop(sample, self._most // 2)

    def _drop(self, sample: int, down_to: int) -> None:
        limit = sample * self._rate // CLOCK_RATE * self._stride
        while self._said and self._arrived(self._said[0], limit) and self._bytes > down_to:
            item = self._said.popleft()
            self._bytes -= item.end - item.at

    @staticmethod
    def _arrived(item: _Item, limit: int) -> bool:
        """Whether the server must have it, which has all audio up to so many bytes."""
        if isinstance(item.message, Audio):
            return item.end <= limit
        return isinstance(item.message, Told) and item.at < limit

    def answered(self, id: str) -> None:
        """The oldest flush of this id need not be sent again."""
        for item in self._said:
            if isinstance(item.message, Flush) and item.message.id == id:
                self._said.remove(item)
                return

    def rewind(self, sample: int) -> None:
        """A new connection: the audio goes on with the first sample at or after `sample` (16 kHz clock); what
        was told behind it, flushes and the end are said again where they stood."""
        at = -(-sample * self._rate // CLOCK_RATE) * self._stride
        items = [*self._said, *self._unsaid]
        self._said.clear()
        self._unsaid.clear()
        for item in items:
            if isinstance(item.message, Told) and self._arrived(item, at):
                continue
            if not isinstance(item.message, Audio) or item.at >= at:
                self._unsaid.append(item)
            elif item.end <= at:
                self._said.append(item)
            else:
                data = item.message.data
                self._said.append(_Item(item.at, Audio(data[: at - item.at])))
                self._unsaid.append(_Item(at, Audio(data[at - item.at :])))
