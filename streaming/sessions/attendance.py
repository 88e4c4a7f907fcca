"""Who is there: what a client says of people who come and go, as the session tells it."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from streaming.kept.transcripts import ms
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import PARTICIPANTS, Participant, Presence

from .registry import Entry


def attend(entry: Entry, news: Presence, received: int) -> None:
    """Tell it where it is news; raises `ProtocolError` for more people than are kept. `received`: samples
    (16 kHz) that came before."""
    known = entry.log.participants.get(news.id)
    if known is None and len(entry.log.participants) >= PARTICIPANTS:
        raise ProtocolError(
            "too_many_participants",
            f"id: {PARTICIPANTS} people were told of already: say nothing of others, or open another session",
            field="id",
        )
    moved = known is None or known.present != news.present
    told = Participant(
        0,
        news.id,
        news.present,
        ms(received) if known is None or moved else known.at_ms,
        news.name or UNSET,
        news.speaker or UNSET,
    )
    if known is None or told != replace(known, seq=0):
        entry.put(told)
