"""How a session begins, whoever brings it: a client, a recording, an earlier process. Afterwards it is at
work, or nothing of it is left."""

from __future__ import annotations

from msgspec.structs import replace

from streaming.access.privacy import kept
from streaming.access.quota import Lease
from streaming.kept.restore import Place
from streaming.wire.language import language_of, languages_of
from streaming.wire.messages import Start

from .live import Live
from .registry import Entry
from .services import Services, ready_for


def begin(
    start: Start,
    services: Services,
    lease: Lease,
    *,
    token: str | None = None,
    guest: str | None = None,
    traceparent: str | None = None,
) -> tuple[Entry, Live]:
    """A new session, with the place that `lease` is among those of its key; `token` and `guest` as
    `Sessions.open` takes them, `traceparent` is the client's own trace. Raises `WireError`."""
    likely = languages_of(start.languages)
    start = replace(start, language=language_of(start.language), languages=likely)
    try:
        entry = services.sessions.open(token, kept(start, services.redact), guest, recording=services.batch)
    except BaseException:
        lease.close()
        raise
    entry.recorder.owner(lease.key)
    return entry, set_going(entry, start, services, lease, traceparent=traceparent)


def set_going(
    entry: Entry,
    start: Start,
    services: Services,
    lease: Lease,
    *,
    place: Place | None = None,
    traceparent: str | None = None,
) -> Live:
    """Have a session of `Sessions` do its work, from `place` on if an earlier process began it. Raises
    `WireError`."""
    entry.lease = lease
    try:
        live = Live(start, entry, services, place)
    except BaseException:
        services.sessions.discard(entry)
        raise
    entry.ready = ready_for(entry.id, start, services)
    entry.trace = services.tracing.begin(entry.id, traceparent)
    services.sessions.host(entry, live)
    return live
