"""Traces: a session, its chunks, what became of them, and not a word of what was said."""

from __future__ import annotations

import asyncio
import importlib
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from engine.contract import EngineError
from engine.dispatcher import Dispatcher, DispatchSettings
from engine.fake import FakeScript
from streaming.app import observer
from streaming.errors import SettingsError
from streaming.observe.otel import OtelTracing
from streaming.observe.tracing import UNTRACED, TracingSettings, tracing_for
from streaming.settings import Settings, load
from streaming.sockets.connection import Connection
from streaming.wire.codec import JsonCodec
from tests.support.channel import MemoryChannel
from tests.support.sound import expected, speech
from tests.support.world import END, START, World, live, serving

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SLOTS = "xxxx...xx.."


def traced(
    traceparent: str | None, script: FakeScript, sample: float = 1.0
) -> tuple[list[ReadableSpan], dict[str, Any]]:
    """One session's spans, and the `ready` of its client."""
    memory, told = InMemorySpanExporter(), dict[str, Any]()

    async def body(world: World) -> None:
        watched = OtelTracing(SimpleSpanProcessor(memory), sample, world.engine.capabilities)
        observe = observer(world.services.metrics, watched)
        dispatcher = Dispatcher(world.engine, DispatchSettings(), observe)
        services = replace(world.services, dispatcher=dispatcher, tracing=watched)
        channel = MemoryChannel()
        connection = Connection(channel, JsonCodec(), services, traceparent=traceparent)
        world.tasks.append(asyncio.create_task(connection.run()))
        channel.say({**START, "context": "secret words"})
        await live(channel, speech(SLOTS))
        channel.say(END)
        await world.all_done()
        assert watched._live == {}
        told.update(channel.sent[0])

    serving(body, script)
    return list(memory.get_finished_spans()), told


def named(spans: list[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [span for span in spans if span.name == name]


def attribute(span: ReadableSpan, name: str) -> Any:
    assert span.attributes is not None
    return span.attributes[f"seamscribe.{name}"]


def duration_s(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_a_session_its_chunks_and_what_became_of_them() -> None:
    spans, ready = traced(f"00-{TRACE}-{PARENT}-01", FakeScript(delay_s=0.2))
    (session,) = named(spans, "session")
    assert session.parent is not None
    assert format(session.parent.span_id, "016x") == PARENT
    assert {format(span.get_span_context().trace_id, "032x") for span in spans} == {TRACE}  # type: ignore[union-attr]
    assert attribute(session, "session") == ready["session"][:8]
    assert (attribute(session, "reason"), attribute(session, "close")) == ("done", 1000)
    assert (attribute(session, "words"), attribute(session, "audio_ms")) == (6, 5500)
    chunks = named(spans, "chunk")
    assert {attribute(chunk, "kind") for chunk in chunks} >= {"first", "refresh"}
    committed = [event.attributes for chunk in chunks for event in chunk.events if event.name == "committed"]
    assert max(int(found["seamscribe.words"]) for found in committed if found) == 6  # type: ignore[arg-type]
    for chunk in chunks:
        assert (attribute(chunk, "engine"), attribute(chunk, "model")) == ("fake", "slots")
        assert chunk.parent == session.get_span_context()
        parts = [span for span in spans if span.parent == chunk.get_span_context()]
        assert {part.name for part in parts} <= {"queued", "decoded"}
        assert all(attribute(part, "audio_ms") == attribute(chunk, "audio_ms") > 0 for part in parts)
    decoded = named(spans, "decoded")
    assert any(duration_s(span) == pytest.approx(0.2, abs=0.01) for span in decoded)


def test_no_word_and_no_secret_is_in_a_trace() -> None:
    spans, ready = traced(None, FakeScript(delay_s=0.05))
    text = " ".join(span.to_json() for span in spans)
    for secret in (ready["session"], ready["token"], ready["read_token"], "secret words"):
        assert secret not in text
    values = {str(value) for span in spans for value in (span.attributes or {}).values()}
    assert not values & set(expected(SLOTS))


def test_a_decode_that_fails_is_an_error_with_its_cause_and_is_seen_tried_again() -> None:
    error = EngineError("engine", "says what the client said", retryable=True)
    spans, _ = traced(None, FakeScript(delay_s=0.05, failures={0: error}))
    failed = [chunk for chunk in named(spans, "chunk") if chunk.status.status_code is StatusCode.ERROR]
    assert [attribute(chunk, "finish") for chunk in failed] == ["engine"]
    assert "says" not in " ".join(span.to_json() for span in spans)


@pytest.mark.parametrize(
    ("traceparent", "sample", "seen"),
    [
        (None, 0.0, False),
        (None, 1.0, True),
        (f"00-{TRACE}-{PARENT}-00", 1.0, False),
        (f"00-{TRACE}-{PARENT}-01", 0.0, True),
        ("nonsense\r\n", 1.0, True),
        ("00-" + 32 * "0" + f"-{PARENT}-01", 1.0, True),
    ],
)
def test_who_is_traced(traceparent: str | None, sample: float, seen: bool) -> None:
    spans, _ = traced(traceparent, FakeScript(delay_s=0.05), sample)
    assert bool(spans) == seen


def test_without_an_address_nothing_is_traced_and_nothing_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, package: str | None = None) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    capabilities: Any = None
    assert tracing_for(Settings().tracing, capabilities) is UNTRACED
    with pytest.raises(SettingsError, match=r"tracing\.url: .* pip install 'seamscribe\[otel\]'"):
        tracing_for(TracingSettings("http://127.0.0.1:4318/v1/traces"), capabilities)


@pytest.mark.parametrize("value", ["ftp://x", "127.0.0.1:4318", "http://"])
def test_an_address_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match=r"tracing\.url"):
        load(environment={"SEAMSCRIBE_TRACING__URL": value})
