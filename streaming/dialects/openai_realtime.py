"""OpenAI's Realtime protocol for transcription, `WS /v1/realtime?intent=transcription`: JSON both ways. Pure.

What is wanted is said in `session.update`, which may come before, after or beside the first audio, or not at
all; so the session begins when audio does. Their programs take `error` for the end of the stream: it is sent
for nothing else, and not where coming back is worth it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from streaming.wire.errors import CloseCode, ProtocolError
from streaming.wire.messages import (
    Ack,
    Activity,
    Alive,
    Audio,
    Ended,
    Error,
    Flush,
    Flushed,
    Gap,
    Hotwords,
    Named,
    Segment,
    ServerMessage,
    Speaker,
    Start,
)

from .dialect import Bye, Dialect, Frame, Handshake, Heard, Ignored, Translator, Way
from .lenient import json_of
from .openai_items import Items
from .openai_session import Wishes
from .openai_shapes import Event, deny, frame

PATH = "/v1/realtime"
BETA = "openai-beta.realtime-v1"

HELD = 24_000
"""Bytes of audio (0.5 s of PCM) that wait for the first `session.update`, which some send beside them."""
PATIENCE_S = 3.0
"""So long a quiet client is waited for before the session begins without it."""
QUIET_S = 600.0
"""So long a client may send nothing: a muted microphone sends no audio. The server's own patience follows."""
PIECE = 9_600
"""Bytes of audio in one message of ours: an append may be longer than one may be."""

_AGAIN = {CloseCode.RESTART, CloseCode.OVERLOAD, CloseCode.FAULT, CloseCode.TIMEOUT}
"""After these a client may come back: it does where it saw no `error`."""


class OpenAIRealtime(Translator):
    """One client."""

    def __init__(self, handshake: Handshake) -> None:
        handshake.query.texts("intent")
        self._id = handshake.id
        self._wishes = Wishes(handshake.query.text("model"))
        self._beta = BETA in map(str.lower, handshake.subprotocols)
        self._items = Items(handshake.id)
        if handshake.note:
            self._wishes.update(json_of(handshake.note))
            self._items.detecting = self._wishes.detecting
        self._started: Start | None = None
        self._held = bytearray()
        self._told = 0
        """Whatever was sent, counted."""
        self._asked = 0
        """Flushes."""

    # -- the client ------------------------------------------------------------------------------

    def greet(self) -> Iterable[Heard]:
        """What the session will be, unless the client wants it otherwise."""
        yield self._session("created")

    def hear(self, frame: Frame) -> Iterable[Heard]:
        """One event."""
        if isinstance(frame, bytes):
            yield Ignored(("binary frame",))
            return
        event = json_of(frame)
        match event.get("type"):
            case "session.update":
                yield from self._update(event, beta=False)
            case "transcription_session.update":
                yield from self._update(event, beta=True)
            case "input_audio_buffer.append":
                yield from self._append(event.get("audio"))
            case "input_audio_buffer.commit":
                yield from self._flush(self._items.commit)
            case "input_audio_buffer.clear":
                yield from self._flush(self._items.clear)
            case other:
                yield Ignored((f"type {str(other)[:40]}",))

    def tick(self, quiet_s: float) -> Iterable[Heard]:
        """Nothing came: the session begins all the same, and goes on."""
        if quiet_s >= PATIENCE_S:
            yield from self._begin()
            yield from self._frames(self._items.named())
        if self._started is not None and quiet_s < QUIET_S:
            yield Alive()

    def _update(self, event: dict[str, Any], *, beta: bool) -> Iterator[Heard]:
        self._beta = beta
        ignored = self._wishes.update(event.get("session"))
        self._items.detecting = self._wishes.detecting
        if self._started is not None:
            ignored += self._late(self._started)
            if (terms := self._wishes.start().hotwords) != self._started.hotwords:
                self._started = replace(self._started, hotwords=terms)
                yield Hotwords(terms)
        elif self._held:
            yield from self._begin()
        if ignored:
            yield Ignored(ignored)
        yield self._session("updated")

    def _late(self, started: Start) -> tuple[str, ...]:
        """What can be wished for no more. Raises `ProtocolError` where audio would be taken for another."""
        wanted = self._wishes.start()
        if wanted.audio != started.audio:
            raise ProtocolError(
                "format_changed",
                "session.audio.input.format: audio came in another one before: say it before the first audio,"
                " or open a new connection",
                field="session.audio.input.format",
            )
        names = ("language", "languages", "context", "options")
        return tuple(
            f"{name} after audio" for name in names if getattr(wanted, name) != getattr(started, name)
        )

    def _append(self, audio: object) -> Iterator[Heard]:
        try:
            data = base64.b64decode(audio if isinstance(audio, str) else "!", validate=True)
        except (binascii.Error, ValueError):
            raise ProtocolError(
                "bad_audio", "audio: is no base64 text: encode the samples so", field="audio"
            ) from None
        if self._started is not None:
            yield from _pieces(data)
            return
        self._held += data
        if len(self._held) >= HELD:
            yield from self._begin()

    def _begin(self) -> Iterator[Heard]:
        if self._started is None:
            self._started = self._wishes.start()
            yield self._started
            yield from _pieces(bytes(self._held))
            self._held.clear()

    def _flush(self, ask: Callable[[str], Iterator[Event]]) -> Iterator[Heard]:
        yield from self._begin()
        self._asked += 1
        yield Flush(id := str(self._asked))
        yield from self._frames(ask(id))

    # -- the session -----------------------------------------------------------------------------

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        """As events of items."""
        return self._frames(self._events(message))

    def close(self, code: int, error: Error | None) -> Bye:
        """An `error` where it would be the same again; else the close alone says it."""
        if error is None:
            return Bye(CloseCode.NORMAL)
        if code in _AGAIN or error.code in ("session_too_long", "expired"):
            return Bye(code, f"{error.code}: {error.message}")
        told = {
            "type": "invalid_request_error",
            "code": error.code,
            "message": error.message,
            "param": None if error.field is UNSET else error.field,
            "event_id": None,
        }
        return Bye(code, error.code, tuple(self._frames([("error", {"error": told})])))

    def _events(self, message: ServerMessage) -> Iterable[Event]:
        items = self._items
        match message:
            case Activity():
                return items.activity(message)
            case Segment():
                return items.segment(message)
            case Speaker() | Named():
                return items.speaker(message)
            case Gap():
                items.gap(message)
            case Ack(sample=sample):
                return items.arrived(sample // 16)
            case Flushed(id=id, sample=sample):
                return items.flushed(id, sample // 16)
            case Ended(receipt=receipt):
                return items.rest(receipt.duration_ms)
        return ()

    def _session(self, what: str) -> str:
        kind = "transcription_session" if self._beta else "session"
        told = self._wishes.told(self._id, beta=self._beta)
        return next(iter(self._frames([(f"{kind}.{what}", {"session": told})])))

    def _frames(self, events: Iterable[Event]) -> Iterator[str]:
        for event in events:
            self._told += 1
            yield frame(self._told, event)


def _pieces(data: bytes) -> Iterator[Audio]:
    for at in range(0, len(data), PIECE):
        yield Audio(data[at : at + PIECE])


def _open(handshake: Handshake) -> Dialect:
    return OpenAIRealtime(handshake)


WAY = Way("openai-realtime", PATH, _open, frozenset({"realtime", BETA}), deny=deny)
