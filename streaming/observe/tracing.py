"""What traces are told of sessions. Here nobody listens; `otel` (the extra of that name) does."""

from __future__ import annotations

import importlib
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from engine.contract import Capabilities
from engine.dispatcher import Served
from streaming.errors import SettingsError
from streaming.wire.messages import Receipt


class TracingSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where traces go; never text or audio."""

    url: Annotated[str, Meta(pattern=r"^(https?://\S+)?$")] = ""
    """Of an OpenTelemetry collector, as http://127.0.0.1:4318/v1/traces; empty: no traces."""
    sample: Annotated[float, Meta(ge=0, le=1)] = 0.1
    """Share of the sessions that are traced, where the client's own trace does not say."""


class Trace(Protocol):
    """One session's. Returns at once, always."""

    def committed(self, words: int) -> None:
        """So many words are committed by now, of one track."""
        ...

    def end(self, reason: str, code: int, receipt: Receipt | None) -> None:
        """Nothing more will be said."""
        ...


class Tracing(Protocol):
    """All of one process."""

    def begin(self, session: str, traceparent: str | None) -> Trace:
        """A session begins, inside the client's trace if it has one (W3C Trace Context)."""
        ...

    def served(self, served: Served) -> None:
        """A decode is over."""
        ...

    async def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        ...


class Untraced:
    """Nobody listens."""

    def begin(self, session: str, traceparent: str | None) -> Trace:
        return self

    def served(self, served: Served) -> None: ...

    def committed(self, words: int) -> None: ...

    def end(self, reason: str, code: int, receipt: Receipt | None) -> None: ...

    async def close(self) -> None: ...


UNTRACED = Untraced()


def tracing_for(settings: TracingSettings, capabilities: Capabilities) -> Tracing:
    """As the settings want it; raises `SettingsError` without the extra `otel`."""
    if not settings.url:
        return UNTRACED
    try:
        otel = importlib.import_module(".otel", __package__)
    except ImportError:
        raise SettingsError(
            "tracing.url: traces need OpenTelemetry: pip install 'seamscribe[otel]', or leave it empty"
        ) from None
    opened: Tracing = otel.open_tracing(settings, capabilities)
    return opened
