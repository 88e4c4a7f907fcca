"""Which engine, and how it is used."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from .errors import SettingsError

LONGEST_S = 1e7
"""Four months: whatever is longer is a mistake, or infinite."""
Positive = Annotated[float, Meta(gt=0, le=LONGEST_S)]
Count = Annotated[int, Meta(ge=1)]


class EngineSettings(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str = "local"
    """Which engine: local, sglang or fake."""
    model: str = ""
    """Which weights: a name the engine knows or a folder; empty takes the engine's default."""
    threads: Annotated[int, Meta(ge=0)] = 0
    """CPU threads of an embedded engine; 0 takes all cores."""
    servers: tuple[str, ...] = ()
    """Addresses of SGLang servers; empty runs SGLang in this process."""
    recording_servers: tuple[str, ...] = ()
    """Addresses of those that decode recordings, and nothing else; empty: `servers` do."""
    concurrency: Annotated[int, Meta(ge=0)] = 0
    """Decodes at once; 0 takes what the engine says."""
    max_window_s: Positive | None = None
    """The model's limit of audio in one request; None takes what the engine says."""
    queue: Count = 1024
    """Tasks that may wait for the engine."""
    final_deadline_s: Positive = 60.0
    partial_deadline_s: Positive = 10.0
    recordings: Annotated[int, Meta(ge=0)] = 0
    """Decodes of recordings at once; 0: all places but one, and a sixteenth of them where a recording is one
    request."""


class EncoderSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What tells voices apart."""

    threads: Count = 1
    """CPU threads."""
    voices: str = ""
    """Folder of the enrolled voices; empty takes `seamscribe/voices` in the user's data folder."""


def check_engine(engine: EngineSettings, where: str) -> None:
    """What no field says by itself; raises `SettingsError`."""
    for name, urls in (("servers", engine.servers), ("recording_servers", engine.recording_servers)):
        for url in urls:
            try:
                parts = urlsplit(url)
                good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            except ValueError:
                good = False
            if not good:
                raise SettingsError(
                    f"engine.{name} {where}: {url!r} is no address of a server: say http://host:30000"
                )
    if engine.recording_servers and not engine.servers:
        raise SettingsError(
            f"engine.recording_servers {where}: they take recordings only: name engine.servers, too"
        )
