"""Kyutai's streaming protocol, as moshi-server speaks it: MessagePack maps in binary frames both ways. Pure.

Words are told once, as they are committed: this protocol cannot take one back, and knows no speakers.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from streaming.wire.errors import ProtocolError, shown
from streaming.wire.messages import (
    Ack,
    Activity,
    AudioFormat,
    Encoding,
    Error,
    Flush,
    Flushed,
    Options,
    Ready,
    Segment,
    ServerMessage,
    Start,
)
from streaming.wire.messages import Audio as Sound
from streaming.wire.telling import Telling

from .dialect import Bye, Dialect, Frame, Handshake, Heard, Ignored, Translator, Way

PATH = "/api/asr-streaming"
RATE = 24_000
STEP = 1280
"""Samples (16 kHz) of one of its steps, 80 ms."""

PAUSES_MS = (500, 1000, 2000, 3000)
"""Its `prs` are the chances of pauses so long; here they are known: 0 or 1."""


class Init(Struct, tag="Init"):
    """Nothing."""


class Audio(Struct, tag="Audio"):
    """Samples, 24 kHz, mono."""

    pcm: list[float]


class OggOpus(Struct, tag="OggOpus"):
    """The same, encoded."""

    data: bytes


class Marker(Struct, tag="Marker"):
    """To be answered once all audio before it is transcribed."""

    id: int


Heeded = Init | Audio | OggOpus | Marker

_decoder: msgspec.msgpack.Decoder[Heeded] = msgspec.msgpack.Decoder(Heeded)


class Kyutai(Translator):
    """One client."""

    def __init__(self) -> None:
        self._telling = Telling()
        self._markers: dict[str, int] = {}
        self._asked = 0
        self._speaking = False
        self._since = 0
        self._step = 0

    def greet(self) -> Iterable[Heard]:
        """Nothing is to be configured."""
        audio = AudioFormat(Encoding.PCM_F32LE, RATE, 1)
        return (Start(audio=audio, options=Options(speakers=False, activity_pause_s=PAUSES_MS[0] / 1000)),)

    def hear(self, frame: Frame) -> Iterable[Heard]:
        """Text frames mean nothing."""
        if isinstance(frame, str):
            yield Ignored(("text frame",))
            return
        match _decoded(frame):
            case Audio(pcm=pcm):
                yield Sound(array("f", pcm).tobytes())
            case Marker(id=id):
                self._asked += 1
                self._markers[str(self._asked)] = id
                yield Flush(str(self._asked))
            case OggOpus():
                raise ProtocolError(
                    "unsupported_encoding", "OggOpus: is not read here: send Audio", field="OggOpus"
                )

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        """Words as they are committed, steps as audio arrives."""
        match message:
            case Ready():
                yield _frame(type="Ready")
            case Segment():
                for word in self._telling.tell(message):
                    yield _frame(type="Word", text=word.text, start_time=word.start_ms / 1000)
                    yield _frame(type="EndWord", stop_time=word.end_ms / 1000)
            case Activity(speaking=speaking, at_ms=at):
                self._speaking, self._since = speaking, at
            case Ack(sample=sample) if sample // STEP > self._step:
                self._step = sample // STEP
                silent = 0 if self._speaking else sample // 16 - self._since
                pauses = [1.0 if silent >= pause else 0.0 for pause in PAUSES_MS]
                yield _frame(type="Step", step_idx=self._step, prs=pauses, buffered_pcm=0)
            case Flushed(id=id):
                yield _frame(type="Marker", id=self._markers.pop(id))

    def close(self, code: int, error: Error | None) -> Bye:
        """An error is a message, then the close."""
        if error is None:
            return Bye(code)
        return Bye(code, error.code, (_frame(type="Error", message=error.message),))


def _decoded(frame: bytes) -> Heeded:
    try:
        return _decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        what = shown(str(error))
        raise ProtocolError(
            "malformed", f"the message is none of Init, Audio, OggOpus, Marker ({what}): check it"
        ) from None


def _frame(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


def _open(handshake: Handshake) -> Dialect:
    return Kyutai()


WAY = Way("kyutai", PATH, _open, key_headers=("kyutai-api-key",), key_queries=("auth_id",))
