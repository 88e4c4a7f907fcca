"""Attendee's realtime audio: a meeting bot that sends the mix or each participant apart. Pure.

Its times are when a piece was sent, and it sends what a silent participant says or not, as the platform
has it. Participants have ids here; their names come to its webhooks only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .bots import MIX, Bot, Piece, id_of, rate_of, samples, seconds
from .dialect import Dialect, Handshake, Heard, Ignored, Way

PATH = "/attendee"


class Attendee(Bot):
    """One bot."""

    slack_s = 0.2

    def read(self, message: dict[str, Any]) -> Iterable[Heard | Piece]:
        """`realtime_audio.mixed` and `.per_participant`."""
        trigger = message.get("trigger")
        self.call(str(message.get("bot_id") or ""))
        if trigger not in ("realtime_audio.mixed", "realtime_audio.per_participant"):
            return [Ignored((f"trigger {str(trigger)[:40]}",))]
        data, at = message["data"], seconds(message["data"].get("timestamp_ms"))
        who = MIX if trigger == "realtime_audio.mixed" else id_of(data["participant_uuid"])
        at_s = None if at is None else at / 1000
        return [Piece(who, at_s, samples(data["chunk"]), rate_of(data.get("sample_rate", self.rate)))]


def _open(handshake: Handshake) -> Dialect:
    return Attendee(handshake)


WAY = Way("attendee", PATH, _open, key_queries=("token",))
