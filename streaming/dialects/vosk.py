"""vosk-server's protocol: audio in binary frames, each answered by exactly one JSON text, for its clients
wait for that answer before they send on. Pure.

Answers are what is known when audio comes, so a result may come a frame later than there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET

from streaming.wire.errors import ProtocolError
from streaming.wire.messages import (
    Audio,
    AudioFormat,
    End,
    Ended,
    Error,
    Flush,
    Flushed,
    Segment,
    ServerMessage,
    Start,
    Word,
)
from streaming.wire.render import joined
from streaming.wire.telling import Telling

from .dialect import Bye, Dialect, Frame, Handshake, Heard, Ignored, Translator, Way
from .lenient import hotwords_of, json_of

PATH = "/vosk"
RATE = 8000
"""What vosk-server takes audio for where its client does not say."""
_KNOWN = frozenset({"sample_rate", "words", "phrase_list", "max_alternatives"})


class Vosk(Translator):
    """One client."""

    def __init__(self) -> None:
        self._started = False
        self._words = True
        self._alternatives = 0
        self._telling = Telling()
        self._final: list[Word] = []
        """Words of final segments that were not answered yet."""
        self._open: dict[int, str] = {}
        """How the segments read that are not final."""
        self._resets = 0

    def hear(self, frame: Frame) -> Iterable[Heard]:
        """Binary: audio. Text: config, eof or reset."""
        if isinstance(frame, bytes):
            if not self._started:
                yield from self._start({})
            if frame:
                yield Audio(frame)
            yield self._answer()
            return
        message = json_of(frame)
        if "config" in message:
            config = message["config"] if isinstance(message["config"], dict) else {}
            yield from [Ignored(("config",))] if self._started else self._start(config)
        elif message.get("eof"):
            if not self._started:
                yield from self._start({})
            yield End()
        elif message.get("reset") and self._started:
            self._resets += 1
            yield Flush(str(self._resets))
        else:
            yield Ignored(tuple(message) or ("{}",))

    def _start(self, config: dict[str, Any]) -> Iterable[Heard]:
        self._started = True
        if unknown := tuple(config.keys() - _KNOWN):
            yield Ignored(unknown)
        self._words = bool(config.get("words", True))
        try:
            rate = msgspec.convert(config.get("sample_rate", RATE), float, strict=False)
            self._alternatives = msgspec.convert(config.get("max_alternatives", 0), int, strict=False)
        except msgspec.ValidationError as error:
            raise ProtocolError("bad_field", f"config: {error}: use a number", field="config") from None
        if not 8_000 <= rate <= 48_000:  # nor is it NaN, or more than a message can hold
            raise ProtocolError(
                "unsupported_sample_rate",
                f"config.sample_rate: {rate:g} is not taken: use 8000 to 48000",
                field="config.sample_rate",
            )
        phrases = config.get("phrase_list", [])
        yield Start(
            audio=AudioFormat(sample_rate=int(rate)),
            hotwords=hotwords_of(phrases if isinstance(phrases, list) else []),
        )

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        """Only what was asked for besides audio is answered by itself."""
        match message:
            case Segment():
                self._hear_segment(message)
            case Flushed() | Ended():
                yield self._result()

    def close(self, code: int, error: Error | None) -> Bye:
        """There is no message for errors but the reason of the close."""
        return Bye(code, "" if error is None else error.message)

    def _hear_segment(self, segment: Segment) -> None:
        if segment.final:
            self._final += self._telling.tell(segment)
            self._open.pop(segment.id, None)
        elif text := joined(self._telling.news(segment)) + segment.partial:
            self._open[segment.id] = text.strip()

    def _answer(self) -> str:
        if self._final:
            return self._result()
        return _json({"partial": " ".join(self._open.values())})

    def _result(self) -> str:
        words, self._final = self._final, []
        result: dict[str, Any] = {"text": joined(words)}
        if self._words and words:
            result = {"result": [_word(word) for word in words], **result}
        if self._alternatives:
            return _json({"alternatives": [{"confidence": 1.0, **result}]})
        return _json(result)


def _word(word: Word) -> dict[str, Any]:
    return {
        "conf": 1.0 if word.confidence is UNSET else word.confidence,
        "start": word.start_ms / 1000,
        "end": word.end_ms / 1000,
        "word": word.text,
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _open(handshake: Handshake) -> Dialect:
    return Vosk()


# Nothing in this protocol carries a key.
WAY = Way("vosk", PATH, _open, key_queries=("token",))
