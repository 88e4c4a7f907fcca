"""How a session hears: packets to frames with verdicts, and those to its meeting and to what keeps audio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from engine.contract import SAMPLE_RATE
from streaming.audio.intake import Frames, Intake, Voices
from streaming.core.meeting import Meeting
from streaming.errors import SessionTooLong
from streaming.wire.messages import Start

from .delays import DelayMeter
from .registry import Entry
from .services import Services


class Hearing:
    """Of one session. Used by one task at a time."""

    def __init__(
        self, start: Start, entry: Entry, services: Services, meeting: Meeting, delays: DelayMeter
    ) -> None:
        """Raises `ProtocolError` where the audio cannot be taken."""
        self._entry = entry
        self._meeting = meeting
        self._delays = delays
        self._most_s = services.limits.max_session_s
        self._keeper = None if services.history is None else services.history.audio
        self._intake = Intake(
            start.audio,
            services.detector,
            len(start.tracks) or 1,
            services.inline,
            lambda why: services.metrics.broken.add(why=why),
        )
        self._loop = asyncio.get_running_loop()
        self._rested = True
        self.inside = False
        """Whether a packet is taken in part."""

    def small(self, data: bytes) -> bool:
        """Whether the packet may be judged with `at_once`: it needs no thread and no demuxer, and others
        had their turn since the last one."""
        return self._rested and self._intake.small(data)

    def at_once(self, data: bytes) -> tuple[Frames, Voices]:
        """A small packet in one piece, for `take_in`; raises `ProtocolError`."""
        self._rested = False
        self._loop.call_soon(self._rest)
        return self._intake.at_once(data)

    def _rest(self) -> None:
        self._rested = True

    def feed(self, data: bytes) -> AsyncIterator[tuple[Frames, Voices]]:
        """A packet's pieces, each for `take_in`; raises `ProtocolError`."""
        return self._intake.feed(data)

    def drain(self) -> AsyncIterator[tuple[Frames, Voices]]:
        """No more packets come: what a demuxer held back."""
        return self._intake.drain()

    def take_in(self, frames: Frames, voices: Voices) -> None:
        """What was judged is heard."""
        self._keep(frames)
        self._meeting.receive_audio(frames, voices)
        self._delays.received(self._meeting.received, self._loop.time())

    def check(self) -> None:
        """Count what was heard; raises `WireError` where that is more than there may be."""
        if self._entry.lease is not None:
            self._entry.lease.spend(self._meeting.received)
        if self._meeting.received > self._most_s * SAMPLE_RATE:
            raise SessionTooLong(self._most_s)

    def end(self) -> None:
        """No more audio is heard: the last of it."""
        if self.inside:
            # Cut off inside a packet: what the decoder still holds belongs behind the piece not taken.
            self._meeting.receive_end(self._intake.nothing)
            return
        frames, voices, tails = self._intake.finish()
        self._keep(frames)
        if frames[0].size:
            self._meeting.receive_audio(frames, voices)
        self._keep(tails)
        self._meeting.receive_end(tails)

    def close(self) -> None:
        """The session is over, or somebody else's."""
        self._intake.close()

    def conclude(self) -> None:
        """All audio that is kept is there."""
        if self._keeper is not None:
            self._keeper.finish(self._entry.id)

    def _keep(self, tracks: Frames) -> None:
        if self._keeper is not None and tracks[0].size:
            self._keeper.write(self._entry.id, self._meeting.received, tracks)
