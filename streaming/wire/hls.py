"""Captions as an HLS playlist of WebVTT segments (RFC 8216): once listed they never change. Pure."""

from __future__ import annotations

from .cues import Cue
from .growing import GrowingCues
from .render import VTT, vtt_cue

SEGMENT_MS = 6_000
HELD_MS = 6_000
"""A segment is listed so long after its end: words are committed by then, and make whole cues. What comes
later all the same begins with the next one."""


class Segments:
    """One session's: give it every message, then how far it is."""

    def __init__(self) -> None:
        self._growing = GrowingCues()
        self._cues: list[Cue] = []
        self._ended_ms: int | None = None
        self.listed = 0
        """How many segments there are."""

    def receive(self, message: object) -> None:
        """As `GrowingCues`."""
        self._growing.receive(message)

    def advance(self, now_ms: int, *, over: bool) -> None:
        """So much was heard; with `over` nothing more will be."""
        self._cues += self._growing.take(float("inf") if over else now_ms)
        if over:
            self._ended_ms = max([now_ms, 1, *(cue.end_ms for cue in self._cues)])
            self.listed = -(-self._ended_ms // SEGMENT_MS)
        else:
            self.listed = max(self.listed, (now_ms - HELD_MS) // SEGMENT_MS)
            self._growing.close(self.listed * SEGMENT_MS)

    def playlist(self, query: str) -> str:
        """What is listed; `query` goes with each address."""
        lines = ["#EXTM3U", "#EXT-X-VERSION:3", f"#EXT-X-TARGETDURATION:{SEGMENT_MS // 1000}"]
        lines += ["#EXT-X-MEDIA-SEQUENCE:0", "#EXT-X-PLAYLIST-TYPE:EVENT"]
        for number in range(self.listed):
            end_ms = (number + 1) * SEGMENT_MS
            length_ms = min(end_ms, self._ended_ms or end_ms) - number * SEGMENT_MS
            lines += [f"#EXTINF:{length_ms / 1000:.3f},", f"captions/{number}.vtt{query}"]
        if self._ended_ms is not None:
            lines.append("#EXT-X-ENDLIST")
        return "\n".join(lines) + "\n"

    def segment(self, number: int, mpegts: int) -> str:
        """A listed one; `mpegts` is the video's time (90 kHz) at which the session's audio begins."""
        start_ms, end_ms = number * SEGMENT_MS, (number + 1) * SEGMENT_MS
        mapped = f"{VTT}X-TIMESTAMP-MAP=MPEGTS:{mpegts},LOCAL:00:00:00.000\n"
        here = (cue for cue in self._cues if cue.start_ms < end_ms and cue.end_ms > start_ms)
        return "\n".join([mapped, *map(vtt_cue, here)])
