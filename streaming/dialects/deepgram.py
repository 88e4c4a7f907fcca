"""Deepgram's live protocol, `WS /v1/listen`. Pure.

Everything is said in the query; audio follows in binary frames, a few commands in text. Names in the query
that change nothing here are ignored, but for those whose silent absence would harm: they are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from streaming.denial import Denied
from streaming.wire.errors import CloseCode, ProtocolError, shown
from streaming.wire.language import language_of, languages_of
from streaming.wire.messages import (
    Ack,
    Activity,
    Alive,
    Audio,
    AudioFormat,
    Encoding,
    End,
    Ended,
    Error,
    Flush,
    Flushed,
    Hotwords,
    Options,
    Ready,
    Segment,
    ServerMessage,
    Speaker,
    Start,
    Track,
)

from .deepgram_finals import Finals
from .deepgram_shapes import (
    About,
    Said,
    configure_failure,
    configured,
    failure,
    metadata,
    results,
    speech_started,
    text_of,
    utterance_end,
)
from .dialect import Bye, Dialect, Frame, Handshake, Heard, Ignored, Translator, Way
from .lenient import hotwords_of, json_of
from .query import Query

PATH = "/v1/listen"
QUIET_S = 10.0
"""Without audio, KeepAlive or another message the stream is closed after it."""

LEAST_PAUSE_S = 0.3
"""The shortest pause that ends an utterance here, whatever `endpointing` says: shorter ones cut sentences."""

_ENCODINGS = {
    "linear16": (Encoding.PCM_S16LE, 16_000),
    "mulaw": (Encoding.MULAW, 8_000),
    "alaw": (Encoding.ALAW, 8_000),
}
_CONTAINERS = frozenset({"", "flac", "opus", "ogg-opus"})
"""Left out, the bytes say what they are."""

_UNDERSTOOD = ("model", "version", "tag", "extra", "mip_opt_out", "no_delay", "language_hint")
"""Names that ask for nothing that would show in the answers."""

_HARMFUL = {
    "callback": "results are told to who asks alone, and no address is called: leave it out",
}
_REDACT = "this server strikes nothing out: leave it out, or have it set up with privacy.redact"
_CODES = {
    CloseCode.BAD_REQUEST: (1008, "DATA-0000"),
    CloseCode.UNAUTHORIZED: (1008, "INVALID_AUTH"),
    CloseCode.TIMEOUT: (1011, "NET-0001"),
    CloseCode.FAULT: (1011, "NET-0000"),
}
"""Our close codes as Deepgram's, with its name for them; others mean the same there."""

_STATUS = {400: "Bad Request", 401: "INVALID_AUTH", 403: "INSUFFICIENT_PERMISSIONS", 503: "OVERLOADED"}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the query says."""

    start: Start
    interim: bool = False
    utterance_end: int | None = None
    """Milliseconds of silence."""
    speech_started: bool = False
    diarize: bool = False
    endpoints: bool = True
    punctuated: bool = False


def wishes_of(query: Query, *, redacts: bool = False) -> Wishes:
    """Raises `ProtocolError` naming the field and the remedy. `redacts`: words are struck out here, whichever
    the client names, as the server's function has it."""
    for name in _UNDERSTOOD:
        query.texts(name)
    query.texts("redact")
    for name, remedy in (_HARMFUL if redacts else {**_HARMFUL, "redact": _REDACT}).items():
        if any(value.lower() not in ("", "false") for value in query.texts(name)):
            raise ProtocolError("unsupported", f"{name}: {remedy}", field=name)
    endpointing = (query.text("endpointing") or "").lower()
    pause_s = None
    if endpointing not in ("", "true", "false"):
        pause_s = max(LEAST_PAUSE_S, min(query.number("endpointing", 0.0, 0, 60_000) / 1000, 3.0))
    utterance_end = query.integer("utterance_end_ms", 0, 0, 60_000)
    diarize = query.flag("diarize") or query.text("diarize_model") is not None
    interim, started = query.flag("interim_results"), query.flag("vad_events")
    channels = query.integer("channels", 1, 1, 8)
    tracks = (Track(),) * channels if query.flag("multichannel") and channels > 1 else ()
    terms = [*query.texts("keyterm"), *(one.rpartition(":")[0] or one for one in query.texts("keywords"))]
    return Wishes(
        Start(
            audio=_audio(query, channels),
            language=_language(query),
            # Asked for or not, the language is told where it was heard.
            languages=languages_of(query.choice("detect_language"), "detect_language"),
            hotwords=hotwords_of(terms),
            tracks=tracks,
            options=Options(
                pause_s=pause_s,
                speakers=diarize if not tracks else None,
                activity_pause_s=pause_s or 0.6,
            ),
        ),
        interim=interim,
        utterance_end=utterance_end if interim and utterance_end else None,
        speech_started=started,
        diarize=diarize,
        endpoints=endpointing != "false",
        punctuated=any([query.flag("punctuate"), query.flag("smart_format"), query.flag("dictation")]),
    )


def _audio(query: Query, channels: int) -> AudioFormat:
    name = (query.text("encoding") or "").lower()
    if name in _CONTAINERS:
        query.texts("sample_rate")
        return AudioFormat(Encoding.CONTAINER, channels=channels)
    if name not in _ENCODINGS:
        remedy = f"use one of {', '.join(_ENCODINGS)}, or leave it out for audio in a container"
        raise ProtocolError(
            "unsupported_encoding",
            f"encoding: {shown(name, 40)} is not read here: {remedy}",
            field="encoding",
        )
    encoding, rate = _ENCODINGS[name]
    return AudioFormat(encoding, query.integer("sample_rate", rate, 8_000, 48_000), channels)


def _language(query: Query) -> str | None:
    """`multi`, or none: heard."""
    name = query.text("language") or ""
    return None if name.lower() == "multi" else language_of(name)


class Deepgram(Translator):
    """One client."""

    def __init__(self, handshake: Handshake) -> None:
        """Raises `ProtocolError`."""
        self._wishes = wishes = wishes_of(handshake.query, redacts=handshake.redacts)
        self._about = About(handshake.id, handshake.created)
        self.headers = {"dg-request-id": handshake.id}
        self._count = len(wishes.start.tracks) or 1
        self._finals = Finals(
            self._count,
            diarize=wishes.diarize,
            endpoints=wishes.endpoints,
            punctuated=wishes.punctuated,
        )
        self._hash = hashlib.sha256()
        self._flushes: dict[str, tuple[int, ...]] = {}
        """Finalizes to be answered, and on which channels."""
        self._asked = 0
        self._closing = False

    # -- the client ------------------------------------------------------------------------------

    def greet(self) -> Iterable[Heard]:
        """The query has said it all."""
        return (self._wishes.start,)

    def hear(self, frame: Frame) -> Iterable[Heard]:
        """Audio in binary frames, an empty one ends the stream; commands in text."""
        if isinstance(frame, bytes):
            if not frame:
                yield from self._close()
            elif not self._closing:
                self._hash.update(frame)
                yield Audio(frame)
            return
        message = json_of(frame)
        match message.get("type"):
            case "KeepAlive":
                yield from () if self._closing else (Alive(),)
            case "Finalize":
                yield from self._finalize(message.get("channel"))
            case "CloseStream":
                yield from self._close()
            case "Configure":
                yield from self._configure(message)
            case other:
                yield Ignored((f"type {str(other)[:40]}",))

    def tick(self, quiet_s: float) -> Iterable[Heard]:
        """Whoever sends neither audio nor KeepAlive is gone."""
        if quiet_s >= QUIET_S and not self._closing:
            reason = f"NET-0001: neither audio nor a text message came within {QUIET_S:g} seconds"
            yield Bye(1011, reason)

    def _finalize(self, channel: object) -> Iterable[Heard]:
        if self._closing:
            return
        # Whatever equals the number of a channel names it; anything else means all.
        every = tuple(range(self._count))
        self._asked += 1
        self._flushes[id := str(self._asked)] = tuple(one for one in every if one == channel) or every
        yield Flush(id)

    def _configure(self, message: dict[str, Any]) -> Iterable[Heard]:
        """Other keyterms from now on; features are as they were."""
        if isinstance(features := message.get("features"), dict) and features:
            yield Ignored(tuple(f"feature {name[:40]}" for name in features))
        if (terms := message.get("keyterms")) is None:
            yield configured(self._about)
            return
        texts = isinstance(terms, list) and all(isinstance(term, str) for term in terms)
        kept = hotwords_of(terms) if texts else ()
        if texts and {term.strip() for term in terms} - {""} == set(kept):
            yield from (Hotwords(kept), configured(self._about, kept))
        else:
            yield configure_failure(self._about)

    def _close(self) -> Iterable[Heard]:
        if not self._closing:
            self._closing = True
            yield End()

    # -- the session -----------------------------------------------------------------------------

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        """As `Results` and the events that were asked for."""
        match message:
            case Ready():
                self._about = self._about.knowing(message)
            case Activity():
                yield from self._activity(message)
            case Segment():
                yield from self._segment(message)
            case Speaker():
                self._finals.revise(message)
                yield from self._released()
            case Ack(sample=sample):
                self._finals.arrived(sample // 16)
                yield from self._released()
                yield from self._utterances()
            case Flushed(id=id):
                yield from self._finalized(self._flushes.pop(id, ()))
            case Ended(receipt=receipt):
                yield from self._results(self._finals.release(all=True))
                told = metadata(self._about, self._hash.hexdigest(), receipt.duration_ms, self._count)
                yield text_of({"type": "Metadata", **told})

    def close(self, code: int, error: Error | None) -> Bye:
        """Why it ends early is told in a message too."""
        if error is None:
            return Bye(CloseCode.NORMAL)
        theirs, name = _CODES.get(CloseCode(code), (code, error.code))
        return Bye(theirs, f"{name}: {error.message}", (failure(name, error.message),))

    def _activity(self, news: Activity) -> Iterator[Frame]:
        self._finals.activity(news)
        if news.speaking and self._wishes.speech_started:
            track = news.track if isinstance(news.track, int) else 0
            yield speech_started((track, self._count), news.at_ms)

    def _segment(self, segment: Segment) -> Iterator[Frame]:
        for said in self._finals.take(segment):
            if said.final or self._wishes.interim:
                yield results(said, self._about)
        yield from self._released()

    def _released(self) -> Iterator[Frame]:
        # The last words before the answer to Finalize are the answer: they wait for it.
        if not self._flushes:
            yield from self._results(self._finals.release())

    def _finalized(self, tracks: tuple[int, ...]) -> Iterator[Frame]:
        answers = self._finals.release(all=True)
        for track in tracks:
            last = next((at for at in reversed(range(len(answers))) if answers[at].channel[0] == track), None)
            if last is None:
                answers.append(self._finals.empty(track))
            else:
                answers[last] = answers[last].answering()
        yield from self._results(answers)

    def _utterances(self) -> Iterator[Frame]:
        if self._wishes.utterance_end is not None:
            for channel, at in self._finals.utterances(self._wishes.utterance_end):
                yield utterance_end(channel, at)

    def _results(self, said: Iterable[Said]) -> Iterator[Frame]:
        return (results(one, self._about) for one in said)


def _open(handshake: Handshake) -> Dialect:
    return Deepgram(handshake)


def deny(status: int, message: str) -> Denied:
    """As Deepgram's, with the reason in a header too, for browsers and libraries show no body."""
    code = _STATUS.get(status, f"HTTP {status}")
    header = f"{code}: {message}".encode("ascii", "replace").decode()
    return {"err_code": code, "err_msg": message, "request_id": ""}, {"dg-error": header}


WAY = Way("deepgram", PATH, _open, frozenset({"token", "bearer"}), deny=deny)
