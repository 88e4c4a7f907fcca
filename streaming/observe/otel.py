"""Traces by OpenTelemetry (the extra `otel`): a span of each session, in it one of each chunk that was to be
decoded, with its wait for the engine and its time there.

Spans wait in a bounded queue for a thread of the SDK's that sends them; what finds it full is dropped. No
attribute holds text, audio, or more of a session's id than the log does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from engine.contract import SAMPLE_RATE, Capabilities
from engine.dispatcher import Served
from streaming.version import version
from streaming.wire.errors import CloseCode
from streaming.wire.messages import Receipt

from .hygiene import short
from .tracing import TracingSettings

CLOSE_S = 5.0
"""How long the last spans may take to be sent."""

NOT_FAULTS = frozenset({"replaced", "cancelled"})
"""Causes of decodes that end without a reply because nobody wants it any more."""


def open_tracing(settings: TracingSettings, capabilities: Capabilities) -> OtelTracing:
    """Traces sent to `settings.url`."""
    exporter = OTLPSpanExporter(endpoint=settings.url, timeout=CLOSE_S)
    return OtelTracing(BatchSpanProcessor(exporter), settings.sample, capabilities)


class OtelTracing:
    """Belongs to one event loop. As `tracing.Tracing`."""

    def __init__(self, processor: SpanProcessor, sample: float, capabilities: Capabilities) -> None:
        """`processor` gets what is sampled."""
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(sample)),
            resource=Resource.create({"service.name": "seamscribe", "service.version": version()}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("seamscribe")
        self._engine = {"seamscribe.engine": capabilities.engine, "seamscribe.model": capabilities.model}
        self._live: dict[str, OtelTrace] = {}

    def begin(self, session: str, traceparent: str | None) -> OtelTrace:
        carrier = {} if traceparent is None else {"traceparent": traceparent}
        span = self._tracer.start_span(
            "session",
            TraceContextTextMapPropagator().extract(carrier),
            SpanKind.SERVER,
            {**self._engine, "seamscribe.session": short(session)},
        )
        trace = self._live[session] = OtelTrace(self, session, span)
        return trace

    def served(self, served: Served) -> None:
        if (trace := self._live.get(served.task.session)) is not None:
            trace.chunk(served)

    def span(self, name: str, parent: Span, start_ns: int, attributes: Mapping[str, str | int]) -> Span:
        """A span inside another, begun at that time."""
        within = set_span_in_context(parent)
        return self._tracer.start_span(
            name, within, attributes={**self._engine, **attributes}, start_time=start_ns
        )

    def forget(self, session: str) -> None:
        """The session has ended."""
        self._live.pop(session, None)

    async def close(self) -> None:
        # In a thread, for it waits for the collector.
        await asyncio.to_thread(self._provider.force_flush, round(CLOSE_S * 1000))
        await asyncio.to_thread(self._provider.shutdown)


class OtelTrace:
    """One session's. The newest chunk stays open until it is known what of it was committed."""

    def __init__(self, tracing: OtelTracing, session: str, span: Span) -> None:
        self._tracing = tracing
        self._session = session
        self._span = span
        self._chunk: Span | None = None

    def chunk(self, served: Served) -> None:
        """One of its decodes is over."""
        self._close_chunk()
        if not self._span.is_recording():
            return
        task, ended = served.task, time.time_ns()
        started = ended - round(served.engine_s * 1e9)
        queued = started - round(served.queue_s * 1e9)
        attributes: dict[str, str | int] = {
            "seamscribe.kind": task.priority.name.lower(),
            "seamscribe.audio_ms": len(task.audio) * 1000 // SAMPLE_RATE,
            "seamscribe.attempt": task.attempt,
        }
        chunk = self._tracing.span("chunk", self._span, queued, attributes)
        self._tracing.span("queued", chunk, queued, attributes).end(started)
        if served.engine_s:
            self._tracing.span("decoded", chunk, started, attributes).end(ended)
        if served.hypothesis is not None:
            chunk.set_attribute("seamscribe.finish", served.hypothesis.finish.value)
            chunk.set_attribute("seamscribe.words", len(served.hypothesis.words))
        elif served.cause is not None:
            chunk.set_attribute("seamscribe.finish", served.cause)
            if served.cause not in NOT_FAULTS:
                chunk.set_status(StatusCode.ERROR, served.cause)
        self._chunk = chunk

    def committed(self, words: int) -> None:
        if self._chunk is not None:
            self._chunk.add_event("committed", {"seamscribe.words": words})

    def end(self, reason: str, code: int, receipt: Receipt | None) -> None:
        self._close_chunk()
        self._span.set_attributes({"seamscribe.reason": reason, "seamscribe.close": code})
        if receipt is not None:
            self._span.set_attribute("seamscribe.audio_ms", receipt.duration_ms)
            self._span.set_attribute("seamscribe.words", receipt.words)
            self._span.set_attribute("seamscribe.gap_ms", receipt.gap_ms)
        if code == CloseCode.FAULT:
            self._span.set_status(StatusCode.ERROR, reason)
        self._span.end()
        self._tracing.forget(self._session)

    def _close_chunk(self) -> None:
        if self._chunk is not None:
            self._chunk.end()
            self._chunk = None
