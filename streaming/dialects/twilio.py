"""Twilio Media Streams: a telephone call, each direction a track. Pure.

Its numbers are texts. The address takes no query there, so the key comes as a parameter of the stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streaming.wire.errors import ProtocolError
from streaming.wire.language import language_of
from streaming.wire.messages import (
    Alive,
    Audio,
    AudioFormat,
    Encoding,
    End,
    Presence,
    ServerMessage,
    Start,
    Track,
)
from streaming.wire.names import plain

from .bots import MALFORMED, MISSHAPEN, message_of, samples, seconds
from .dialect import Dialect, Frame, Handshake, Heard, Ignored, Translator, Way
from .lanes import MULAW, Lanes

PATH = "/twilio"
RATE = 8000
NAMES = {"inbound": "Caller", "outbound": "Callee"}
"""Of the tracks, where the stream's parameters `inbound` and `outbound` give no names: who called, and who
is heard by them."""

_SILENT = frozenset({"connected", "mark", "dtmf"})


class Twilio(Translator):
    """One call."""

    def __init__(self) -> None:
        self._lanes: Lanes | None = None
        self._tracks: dict[str, str] = {}
        self._late = 0

    def hear(self, frame: Frame) -> Iterable[Heard]:
        """One event. Before `start` there is no session; what cannot be read of a call is silence."""
        if (message := message_of(frame)) is None:
            yield MALFORMED
            return
        try:
            yield from self._read(message)
        except MISSHAPEN:
            yield MALFORMED

    def tick(self, quiet_s: float) -> Iterable[Heard]:
        """A call that is held sends nothing."""
        if self._lanes is not None:
            yield Alive()
            yield from map(Audio, self._lanes.wait(quiet_s))

    def gone(self) -> Iterable[Heard]:
        """What waited for the other track."""
        return () if self._lanes is None else map(Audio, self._lanes.finish())

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        """Nothing: a stream that only listens takes no messages."""
        return ()

    def _read(self, message: dict[str, Any]) -> Iterable[Heard]:
        match message.get("event"):
            case "start" if self._lanes is None:
                yield self._start(message["start"])
                yield from self._presences(present=True)
            case "media" if self._lanes is not None:
                yield from self._media(message["media"], self._lanes)
            case "stop" if self._lanes is not None:
                yield from map(Audio, self._lanes.finish())
                yield from self._presences(present=False)
                yield End()
            case str(event) if event in _SILENT:
                yield from ()
            case other:
                yield Ignored((f"event {str(other)[:40]}",))

    def _start(self, start: dict[str, Any]) -> Start:
        form = start.get("mediaFormat") or {}
        if form.get("encoding", "audio/x-mulaw") != "audio/x-mulaw":
            raise ProtocolError(
                "unsupported_encoding", "start.mediaFormat.encoding: use audio/x-mulaw", field="encoding"
            )
        said = {name: str(value) for name, value in (start.get("customParameters") or {}).items()}
        tracks = [name for name in NAMES if name in start["tracks"]] or ["inbound"]
        self._tracks = {name: (plain(said.get(name, "")) or NAMES[name])[:64].strip() for name in tracks}
        self._lanes = Lanes(len(self._tracks), RATE, MULAW)
        return Start(
            audio=AudioFormat(Encoding.MULAW, RATE, len(self._tracks)),
            language=language_of(said.get("language")),
            tracks=tuple(map(Track, self._tracks.values())),
            label=str(start.get("callSid") or "")[:128],
            token=said.get("token") or None,
        )

    def _presences(self, *, present: bool) -> Iterable[Presence]:
        """The two of a call come and go with it."""
        for speaker, (track, name) in enumerate(self._tracks.items(), 1):
            yield Presence(track, present, name, speaker)

    def _media(self, media: dict[str, Any], lanes: Lanes) -> Iterable[Heard]:
        tracks = list(self._tracks)
        track = media.get("track", tracks[0])
        if track not in tracks:
            yield Ignored(("track",))
            return
        at = seconds(media.get("timestamp"))
        at_s = None if at is None else at / 1000
        yield from map(Audio, lanes.put(track, tracks.index(track), at_s, samples(media["payload"])))
        if lanes.late > self._late:
            self._late = lanes.late
            yield Ignored(("late audio",))


def _open(handshake: Handshake) -> Dialect:
    return Twilio()


WAY = Way("twilio", PATH, _open, key_later=True)
