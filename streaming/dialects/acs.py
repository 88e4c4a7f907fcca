"""Azure Communication Services' audio streaming: a call, mixed or each participant apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streaming.wire.errors import ProtocolError

from .bots import MIX, Bot, Piece, clock, id_of, rate_of, samples
from .dialect import Dialect, Handshake, Heard, Ignored, Way

PATH = "/acs"


class Acs(Bot):
    """One call."""

    _coded = 16_000
    """Samples a second, as the metadata have it."""

    def read(self, message: dict[str, Any]) -> Iterable[Heard | Piece]:
        """`AudioMetadata` first, then `AudioData`."""
        match message.get("kind"):
            case "AudioMetadata":
                about = message["audioMetadata"]
                if str(about.get("encoding", "PCM")).upper() != "PCM" or about.get("channels", 1) != 1:
                    raise ProtocolError("unsupported_encoding", "audioMetadata: use PCM with one channel")
                self._coded = rate_of(about.get("sampleRate", self._coded))
                self.call(str(about.get("subscriptionId") or ""))
                return ()
            case "AudioData":
                data = message["audioData"]
                who = id_of(data["participantRawID"]) if data.get("participantRawID") else MIX
                return [Piece(who, clock(data.get("timestamp")), samples(data["data"]), self._coded)]
            case other:
                return [Ignored((f"kind {str(other)[:40]}",))]


def _open(handshake: Handshake) -> Dialect:
    return Acs(handshake)


WAY = Way("acs", PATH, _open, key_queries=("token",))
