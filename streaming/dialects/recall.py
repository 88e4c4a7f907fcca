"""Recall.ai's realtime endpoint: a meeting bot that sends the mix or each participant apart, and tells who
comes and goes. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .bots import MIX, Bot, Piece, clock, id_of, samples, seconds
from .dialect import Dialect, Handshake, Heard, Ignored, Way

PATH = "/recall"
RATE = 16_000


class Recall(Bot):
    """One bot."""

    def read(self, message: dict[str, Any]) -> Iterable[Heard | Piece]:
        """`audio_mixed_raw.data`, `audio_separate_raw.data` and `participant_events.*`."""
        event, about = str(message.get("event")), message["data"]
        self.call(str((about.get("bot") or {}).get("id") or ""))
        if event == "audio_mixed_raw.data":
            return [_piece(MIX, about["data"])]
        if event == "audio_separate_raw.data":
            return [_piece(self._person(about["data"]["participant"]), about["data"])]
        kind = event.removeprefix("participant_events.")
        if kind != event:
            who = self._person(about["data"]["participant"])
            if kind == "join":
                self.roster.join(who)
            elif kind == "leave":
                self.roster.leave(who)
            return ()
        return [Ignored((f"event {event[:40]}",))]

    def _person(self, participant: dict[str, Any]) -> str:
        who = id_of(participant["id"])
        self.roster.meet(who, str(participant.get("name") or ""))
        return who


def _piece(who: str, data: dict[str, Any]) -> Piece:
    times = data.get("timestamp") or {}
    at_s = seconds(times.get("relative"))
    return Piece(who, clock(times.get("absolute")) if at_s is None else at_s, samples(data["buffer"]), RATE)


def _open(handshake: Handshake) -> Dialect:
    return Recall(handshake)


WAY = Way("recall", PATH, _open, key_queries=("token",))
