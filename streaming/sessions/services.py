"""What the sessions of a process share, and what each makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engine.contract import Capabilities, SpeakerEncoder, SpeechDetector, Vector
from engine.dispatcher import Dispatcher
from streaming.access.auth import Authority
from streaming.access.privacy import Redact
from streaming.access.quota import Quotas
from streaming.access.sites import Sites
from streaming.audio.intake import INLINE
from streaming.core.listening import ListeningSettings
from streaming.core.meeting import Meeting
from streaming.core.settings import SessionSettings
from streaming.core.spans import to_samples, to_seconds
from streaming.core.speakers import Linker, LinkerSettings
from streaming.kept.remembering import decode
from streaming.kept.restore import Place
from streaming.observe.metrics import Metrics
from streaming.observe.pulse import Pulse
from streaming.observe.tracing import UNTRACED, Tracing
from streaming.settings import LimitSettings
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import VERSION, Encoding, Limits, Ready, Start

from .ports import Peers
from .registry import Sessions

PIECES = 16
"""Of one recording at once, at the most,"""
PLACES = 8
"""and one for so many tasks that the engine runs at once."""

if TYPE_CHECKING:
    from .history import History


def no_voices(names: Sequence[str]) -> Mapping[str, Vector]:
    """Nobody is enrolled."""
    if names:
        message = f"voices: {names[0]!r} is not enrolled: leave it out"
        raise ProtocolError("unknown_voice", message, field="voices")
    return {}


@dataclass(frozen=True, slots=True)
class Services:
    """What every session of the process shares."""

    session: SessionSettings
    limits: LimitSettings
    sessions: Sessions
    dispatcher: Dispatcher
    detector: SpeechDetector
    metrics: Metrics
    own_port: int | None = None
    """Where this process alone answers, of several on one port; 0: nowhere. None: it is the only one."""
    engine_counts: Callable[[], Mapping[str, float]] = dict
    """What the engine counts itself, by name."""
    pulse: Pulse = field(default_factory=Pulse)
    tracing: Tracing = UNTRACED
    inline: int = INLINE
    """Up to this many samples are judged in the event loop, larger pieces in a thread."""
    encoder: SpeakerEncoder | None = None
    """Tells voices apart; None where its weights are not there or nobody wants it."""
    listening: ListeningSettings | None = None
    load_voices: Callable[[Sequence[str]], Mapping[str, Vector]] = no_voices
    """Enrolled voices by name; raises `ProtocolError` for a name that nobody has."""
    history: History | None = None
    """Sessions of earlier processes; None where nothing outlives a process."""
    peers: Peers | None = None
    """Other processes that sessions may be at; None: there are none."""
    auth: Authority = field(default_factory=Authority)
    token_s: float = 60.0
    """How long a token waits to be used, at most."""
    quotas: Quotas = field(default_factory=Quotas)
    sites: Sites = field(default_factory=Sites)
    batch: bool = False
    """Whether decodes give way to those of all others, and nobody waits for single words: recordings."""
    translate: bool = False
    """Whether English is written, whatever is spoken; with `batch` only."""
    redact: Redact | None = None
    """Strikes out of the words what nobody shall hear; None: nothing."""


def settings_for(start: Start, base: SessionSettings) -> SessionSettings:
    """The server's session settings with what the client asked for."""
    options = start.options
    pause = base.pause_s if options.pause_s is None else options.pause_s
    return replace(
        base,
        max_delay_s=base.max_delay_s if options.max_delay_s is None else options.max_delay_s,
        pause_s=pause,
        # Padding of neighbouring segments must fit into the pause between them, counted in whole samples.
        pad_s=min(base.pad_s, to_seconds(to_samples(pause) // 2)),
        soft_pause_s=min(base.soft_pause_s, pause / 2),
    )


def meeting_for(
    id: str, start: Start, settings: SessionSettings, services: Services, place: Place | None
) -> Meeting:
    """What a session hears; one that an earlier process began goes on at `place`. Raises `ProtocolError`."""
    capabilities = services.dispatcher.capabilities
    if services.translate and not capabilities.translates:
        raise ProtocolError(
            "unsupported_task",
            f"model: {capabilities.model} does not translate: ask for a transcription, or have a model served"
            " that knows several languages",
            field="model",
        )
    if start.language and capabilities.languages and start.language not in capabilities.languages:
        raise ProtocolError(
            "unsupported_language",
            f"language: {start.language} is not known to this engine: leave it out or use one of "
            + ", ".join(capabilities.languages),
            field="language",
        )
    whole = capabilities.recording_s if services.batch else None
    # A recording in one request, where it fits: who speaks is told best by a model that hears all of it.
    wanted = whole or capabilities.window_s or settings.window_s
    settings = replace(settings, window_s=max(settings.window_s, wanted))
    return Meeting(
        id,
        settings,
        capabilities,
        language=start.language,
        likely=start.languages,
        context=start.context,
        hotwords=start.hotwords,
        tracks=tuple(track.name for track in start.tracks),
        linker=linker_for(start, settings, services, place),
        listening=services.listening,
        continues=() if place is None else place.continues,
        numbered=0 if place is None else place.numbered,
        activity_pause_s=start.options.activity_pause_s,
        at_once=0 if not services.batch else 1 if whole else pieces_of(capabilities),
    )


def pieces_of(capabilities: Capabilities) -> int:
    """How many pieces of one recording are decoded at once. Each costs words at its beginning, and 4 MB, so
    only an engine with many places, of which live sessions leave some, divides recordings at all."""
    return max(1, min(capabilities.concurrency // PLACES, PIECES))


def linker_for(
    start: Start, settings: SessionSettings, services: Services, place: Place | None = None
) -> Linker | None:
    """What tells the voices apart, if they are to be; raises `ProtocolError` where they cannot be."""
    wanted = settings.speakers if start.options.speakers is None else start.options.speakers
    if start.tracks or not (wanted or start.voices):
        return None
    if services.encoder is None:
        if start.options.speakers is None and not start.voices:
            return None
        raise ProtocolError(
            "no_speakers",
            "options.speakers: this server cannot tell voices apart: leave it and voices out, or have the"
            " server set up with `seamscribe weights speakers`",
            field="options.speakers" if start.options.speakers else "voices",
        )
    traits = services.encoder.traits
    linker = Linker(LinkerSettings(same=traits.same, revise_s=settings.revise_s))
    for name, vector in services.load_voices(start.voices).items():
        linker.know(name, vector)
    if place is not None:
        linker.restore(decode(place.voices, traits), place.shown)
    return linker


def resumable(start: Start) -> bool:
    """Whether its client may come back after a lost connection: not where no sample can be named in what it
    sends."""
    return start.audio.encoding is not Encoding.CONTAINER


def ready_for(id: str, start: Start, services: Services) -> Ready:
    """What the client of a session is told at first, but for the tokens."""
    capabilities, limits = services.dispatcher.capabilities, services.limits
    settings = settings_for(start, services.session)
    return Ready(
        seq=0,
        session=id,
        version=VERSION,
        engine=capabilities.engine,
        model=capabilities.model,
        audio=start.audio,
        limits=Limits(
            max_packet_bytes=limits.max_packet_bytes,
            max_ahead_ms=round(limits.max_backlog_s * 1000),
            max_session_ms=round(limits.max_session_s * 1000),
            idle_timeout_ms=round(limits.idle_timeout_s * 1000),
        ),
        max_delay_ms=round(settings.max_delay_s * 1000),
        pause_ms=round(settings.pause_s * 1000),
        language=start.language,
        resume_ms=round(limits.resume_s * 1000) if resumable(start) else 0,
    )
