"""Who was heard when, as a session keeps it: it is sent to nobody, and goes into the RTTM of the transcript.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from streaming.wire.render import Turn


class KeptTurn(msgspec.Struct, frozen=True, array_like=True):
    """[start_ms, end_ms), in which one person is heard, by number; None: somebody whom nobody knows."""

    start_ms: int
    end_ms: int
    speaker: int | None


class Turns(msgspec.Struct, frozen=True, tag_field="type", tag="turns"):
    """Some seconds of a session. What is settled does not change; later ones follow."""

    seq: int
    turns: tuple[KeptTurn, ...]


def joined(kept: Iterable[Turns], names: dict[int, str]) -> list[Turn]:
    """All turns, by start. Those of one person that touch or overlap are one: they were told on either side
    of a border, or before a crash and again after it."""
    newest: dict[int | None, Turn] = {}
    turns: list[Turn] = []
    for turn in sorted((turn for some in kept for turn in some.turns), key=lambda turn: turn.start_ms):
        last = newest.get(turn.speaker)
        if last is not None and turn.start_ms <= last.end_ms:
            newest[turn.speaker] = replace(last, end_ms=max(last.end_ms, turn.end_ms))
            continue
        if last is not None:
            turns.append(last)
        name = None if turn.speaker is None else names.get(turn.speaker) or None
        newest[turn.speaker] = Turn(turn.start_ms, turn.end_ms, turn.speaker, name)
    return sorted([*turns, *newest.values()], key=lambda turn: (turn.start_ms, turn.end_ms))
