"""Composition root: from settings to running services. The only module that names engines."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from engine.borders import Bordered
from engine.contract import (
    SAMPLE_RATE,
    Capabilities,
    EngineError,
    Hypothesis,
    Priority,
    RecognitionTask,
    Recognizer,
    SpeakerEncoder,
    SpeechDetector,
    Vector,
)
from engine.dispatcher import Dispatcher, DispatchSettings, Served
from streaming.access import privacy
from streaming.access.sites import Sites
from streaming.kept.voices import VoiceStore
from streaming.observe.metrics import Metrics
from streaming.observe.pulse import Pulse
from streaming.observe.tracing import UNTRACED, Tracing, tracing_for
from streaming.sessions.admission import Admission, memory_used
from streaming.sessions.keeping import keeping, tending
from streaming.sessions.ports import unrecorded
from streaming.sessions.registry import Sessions
from streaming.sessions.services import Services, no_voices
from streaming.sessions.sharing import authority_of, joined, quotas_of

from .background import background
from .errors import SettingsError
from .heap import give_back, one_heap, trimmer
from .settings import EngineSettings, Settings, voices_folder

logger = logging.getLogger("seamscribe")

DEFAULT_MODEL = "base"


def _open_local(settings: EngineSettings) -> tuple[Recognizer, SpeechDetector]:
    # By name, because these bring libraries that `--engine fake` must not need.
    open_recognizer = _named("engine.local.recognizer:open_recognizer")
    open_detector = _named("engine.detector:open_detector")
    threads = settings.threads or os.cpu_count() or 1
    return open_recognizer(settings.model or DEFAULT_MODEL, threads), open_detector()


def _open_fake(settings: EngineSettings) -> tuple[Recognizer, SpeechDetector]:
    fake = importlib.import_module("engine.fake")
    if settings.model not in fake.SCRIPTS:
        names = ", ".join(name or "nothing" for name in fake.SCRIPTS)
        raise SettingsError(f"engine.model: the fake engine has no script {settings.model!r}: use {names}")
    return fake.FakeRecognizer(fake.SCRIPTS[settings.model]), fake.FakeDetector()


def _open_sglang(settings: EngineSettings) -> tuple[Recognizer, SpeechDetector]:
    open_recognizer = _named("engine.sglang.opening:open_recognizer")
    open_detector = _named("engine.detector:open_detector")
    model = settings.model or DEFAULT_MODEL
    recognizer = open_recognizer(
        model, settings.servers, recordings=settings.recording_servers, concurrency=settings.concurrency
    )
    return recognizer, open_detector()


ENGINES: dict[str, Callable[[EngineSettings], tuple[Recognizer, SpeechDetector]]] = {
    "local": _open_local,
    "sglang": _open_sglang,
    "fake": _open_fake,
}


def open_encoder(settings: Settings) -> SpeakerEncoder:
    """What tells voices apart; raises `EngineError` where its networks are not there, and ImportError where
    its library is not installed."""
    configured = _named("engine.speakers.reader:EncoderSettings")
    opened: SpeakerEncoder = _named("engine.speakers.encoder:open_encoder")(
        configured(threads=settings.encoder.threads)
    )
    return opened


def _encoder(settings: Settings) -> SpeakerEncoder | None:
    if settings.engine.kind == "fake":
        return None
    try:
        return open_encoder(settings)
    except (EngineError, ImportError) as error:
        logger.warning("voices are not told apart: %(error)s", {"error": error})
        return None


def _named(path: str) -> Callable[..., Any]:
    module, _, name = path.partition(":")
    loaded: Callable[..., Any] = vars(importlib.import_module(module))[name]
    return loaded


class _Narrowed:
    """A recognizer that takes shorter windows than it could."""

    def __init__(self, inner: Recognizer, max_window_s: float) -> None:
        self.inner = inner
        own = inner.capabilities
        self._capabilities = replace(own, max_window_s=min(own.max_window_s, max_window_s))

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        return await self.inner.recognize(task)

    async def close(self) -> None:
        await self.inner.close()


def narrowed(recognizer: Recognizer, max_window_s: float) -> Recognizer:
    """The same engine, given at most `max_window_s` at once."""
    return _Narrowed(recognizer, max_window_s)


def _open_engine(settings: EngineSettings) -> tuple[Recognizer, SpeechDetector]:
    if settings.kind not in ENGINES:
        raise SettingsError(f"engine.kind: {settings.kind!r} is unknown: use one of {', '.join(ENGINES)}")
    inner, detector = ENGINES[settings.kind](settings)
    recognizer: Recognizer = Bordered(inner)
    if settings.max_window_s is not None:
        recognizer = narrowed(recognizer, settings.max_window_s)
    return recognizer, detector


def observer(metrics: Metrics, tracing: Tracing = UNTRACED) -> Callable[[Served], None]:
    """Counts how every decode went."""

    def observe(served: Served) -> None:
        tracing.served(served)
        finish = served.cause if served.hypothesis is None else served.hypothesis.finish.value
        metrics.decodes.add(priority=served.task.priority.name.lower(), finish=finish or "none")
        batch = served.task.priority is Priority.BATCH  # their waiting is as it should be
        (metrics.recording_queue_time if batch else metrics.queue_time).observe(served.queue_s)
        if not batch:
            metrics.live_engine_s += served.engine_s
        metrics.engine_time.observe(served.engine_s)
        if served.hypothesis is not None:
            audio_s = (served.task.end - served.task.start) / SAMPLE_RATE
            metrics.decoded_audio.add(audio_s)
            if batch:
                metrics.recording_audio.add(audio_s)
            if audio_s:
                (metrics.recording_rtf if batch else metrics.rtf).observe(served.engine_s / audio_s)

    return observe


def pulse_of(adapter: Recognizer) -> Pulse:
    """Whether an adapter's engine lives, where it can tell."""
    ask = _offered(adapter, "healthy")
    return Pulse() if ask is None else Pulse(ask)


async def warmed(adapter: Recognizer) -> None:
    """Has an adapter's engine answer a first request, where that is worth it."""
    if warm := _offered(adapter, "warm"):
        await warm()


def _offered(adapter: Recognizer, name: str) -> Callable[[], Awaitable[Any]] | None:
    """What an adapter, or one that it wraps, can do beside the contract."""
    layer: object = adapter
    while layer is not None:
        found: Callable[[], Awaitable[Any]] | None = getattr(layer, name, None)
        if found is not None:
            return found
        layer = getattr(layer, "inner", None)
    return None


def counts_of(adapter: Recognizer | SpeakerEncoder | None) -> Mapping[str, float]:
    """What an adapter counts itself; nothing where it counts nothing."""
    found: dict[str, float] = {}
    layer: object = adapter
    while layer is not None:
        found |= getattr(layer, "counters", {})
        layer = getattr(layer, "inner", None)
    return found


def _loader(
    settings: Settings, encoder: SpeakerEncoder | None
) -> Callable[[Sequence[str]], Mapping[str, Vector]]:
    """Enrolled voices by name."""
    if encoder is None:
        return no_voices
    store, traits = VoiceStore(voices_folder(settings)), encoder.traits
    return lambda names: store.load(names, traits)


@asynccontextmanager
async def running(settings: Settings, address: str = "") -> AsyncIterator[Services]:
    """Services with a loaded engine, closed at the end; `address` is where other processes reach this one.
    Raises `SettingsError`, `EngineError`, and ImportError where the engine's extra is not installed."""
    one_heap()  # before there are threads
    redact = privacy.load(settings.privacy.redact)
    # Loading reads and checks weights: seconds in which the loop must still see a signal.
    recognizer, detector = await asyncio.to_thread(_open_engine, settings.engine)
    encoder = await asyncio.to_thread(_encoder, settings)
    engine, metrics = settings.engine, Metrics()
    tracing = tracing_for(settings.tracing, recognizer.capabilities)
    deadlines = DispatchSettings(
        engine.queue, engine.final_deadline_s, engine.partial_deadline_s, recordings=engine.recordings
    )
    dispatcher = Dispatcher(recognizer, deadlines, observer(metrics, tracing))
    slots, retry_s = recognizer.capabilities.concurrency, settings.limits.retry_after_s
    door = Admission(settings.admission, retry_s, dispatcher, slots, metrics, memory_used)
    try:
        await warmed(recognizer)
        async with keeping(settings, metrics) as history, joined(history, address) as peers:
            services = Services(
                session=settings.session,
                limits=settings.limits,
                sessions=Sessions(
                    settings.server,
                    settings.limits,
                    unrecorded if history is None else history.begin,
                    door,
                    history.journal if history and peers else None,
                ),
                peers=peers,
                dispatcher=dispatcher,
                detector=detector,
                metrics=metrics,
                pulse=pulse_of(recognizer),
                tracing=tracing,
                engine_counts=lambda: {**counts_of(recognizer), **counts_of(encoder)},
                encoder=encoder,
                load_voices=_loader(settings, encoder),
                history=history,
                auth=authority_of(settings.auth, history),
                token_s=settings.auth.token_s,
                quotas=await quotas_of(settings.auth, history),
                sites=Sites(frozenset(settings.sites.hosts), frozenset(settings.sites.origins)),
                redact=redact,
            )
            async with door.watching(), tending(history, services), background(give_back(trimmer())):
                yield services
    finally:
        await dispatcher.close()
        if encoder is not None:
            await encoder.close()
        await tracing.close()


__all__ = ["DEFAULT_MODEL", "ENGINES", "EngineError", "running"]
