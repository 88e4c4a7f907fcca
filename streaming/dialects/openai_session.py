"""What an OpenAI Realtime client wants of its session: both shapes of `session`, the present one and that of
the beta, and how it is told back. Pure.

What cannot be had is left at its default and named as ignored: their programs take any `error` for the end.
Only a format of audio that is not read here is refused, for it would be heard as noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streaming.wire.errors import ProtocolError, shown
from streaming.wire.language import language_of, languages_of
from streaming.wire.messages import LANGUAGES, AudioFormat, Encoding, Options, Start

from .lenient import hotwords_of

RATE = 24_000
LEAST_PAUSE_S = 0.5
"""The shortest pause that ends a turn here: shorter ones cut sentences. With LiveKit's 0.35 s 3.1 to 3.9
of 100 words were wrong (of 128) where natively 1.6 to 2.3 were."""
MOST_PAUSE_S = 3.0
PAUSE_MS = 500
"""Silence that ends a turn, where the client does not say."""
CONTEXT = 4_000

_EAGER_MS = {"low": 1200, "medium": 700, "auto": 700, "high": 500}
"""`semantic_vad`, which goes by the silence here."""
_DELAYS = {"minimal": 1.0, "low": 2.0, "high": 5.0, "xhigh": 10.0}
"""`transcription.delay` as the longest time until a word is committed, seconds."""

_FORMATS = {"audio/pcm": Encoding.PCM_S16LE, "audio/pcmu": Encoding.MULAW, "audio/pcma": Encoding.ALAW}
_BETA_FORMATS = {"pcm16": "audio/pcm", "g711_ulaw": "audio/pcmu", "g711_alaw": "audio/pcma"}
_BETA = {
    "input_audio_format": "format",
    "input_audio_transcription": "transcription",
    "input_audio_noise_reduction": "noise_reduction",
    "turn_detection": "turn_detection",
}
"""Fields of the beta's flat `session` as those of `session.audio.input`."""

_KNOWN = {
    "session": {"type", "audio", "include", "id", "object", "expires_at", "client_secret", *_BETA},
    "input": set(_BETA.values()),
    "transcription": {"model", "language", "languages", "prompt", "keywords", "delay"},
    "turn_detection": {
        *("type", "threshold", "prefix_padding_ms", "silence_duration_ms", "eagerness"),
        *("idle_timeout_ms", "create_response", "interrupt_response"),
    },
}


class Wishes:
    """One client's, from `session.update` to the next: fields left out stay as they are."""

    def __init__(self, model: str | None = None) -> None:
        """`model` is what the address named: echoed, whatever it is."""
        self._input: dict[str, Any] = {
            "format": {"type": "audio/pcm", "rate": RATE},
            "transcription": {"model": model} if model else None,
            "noise_reduction": None,
            "turn_detection": None,
        }
        self._include: Any = None

    @property
    def detecting(self) -> bool:
        """Whether the server tells turns apart; else the client commits."""
        return self._input["turn_detection"] is not None

    def update(self, session: object) -> tuple[str, ...]:
        """Take in what is there; returns names that mean nothing here. Raises `ProtocolError` for a format
        that is not read."""
        session = session if isinstance(session, dict) else {}
        audio = session.get("audio")
        given = audio.get("input") if isinstance(audio, dict) else None
        given = dict(given) if isinstance(given, dict) else {}
        ignored = [*_unknown("session", session), *_unknown("input", given)]
        given |= {_BETA[name]: value for name, value in session.items() if name in _BETA}
        self._include = session.get("include", self._include)
        if "format" in given:
            self._input["format"] = _format(given["format"])
        for name in ("transcription", "turn_detection", "noise_reduction"):
            if name not in given:
                continue
            if given[name] is None or isinstance(given[name], dict):
                self._input[name] = given[name]
                ignored += _unknown(name, given[name] or {})
            else:
                ignored.append(name)
        if self._input["turn_detection"] is not None:
            self._input["turn_detection"] = _turns(self._input["turn_detection"])
        return tuple(ignored)

    def start(self) -> Start:
        """The same in our own protocol."""
        format, said = self._input["format"], self._input["transcription"] or {}
        turns = self._input["turn_detection"]
        pause_s = None if turns is None else _pause_s(turns)
        keywords, prompt = said.get("keywords"), said.get("prompt")
        return Start(
            audio=AudioFormat(_FORMATS[format["type"]], format.get("rate", 8_000)),
            language=_language(said),
            languages=_languages(said),
            context=prompt[-CONTEXT:] if isinstance(prompt, str) else "",
            hotwords=hotwords_of(keywords if isinstance(keywords, list) else ()),
            options=Options(
                max_delay_s=_DELAYS.get(str(said.get("delay"))),
                pause_s=pause_s,
                activity_pause_s=pause_s or PAUSE_MS / 1000,
            ),
        )

    def told(self, id: str, *, beta: bool) -> dict[str, Any]:
        """As `session` in the answers."""
        base: dict[str, Any] = {
            "id": f"sess_{id}",
            "object": "realtime.transcription_session",
            "include": self._include,
        }
        if not beta:
            return {**base, "type": "transcription", "audio": {"input": dict(self._input)}}
        flat: dict[str, Any] = {name: self._input[field] for name, field in _BETA.items()}
        kind = self._input["format"]["type"]
        flat["input_audio_format"] = next(old for old, new in _BETA_FORMATS.items() if new == kind)
        return {**base, **flat}


def _unknown(what: str, given: Mapping[str, Any]) -> list[str]:
    return [f"{what}.{str(name)[:40]}" for name in given if name not in _KNOWN.get(what, given)]


def _format(given: object) -> dict[str, Any]:
    if isinstance(given, str):
        given = {"type": _BETA_FORMATS.get(given, given)}
    if given is None:
        given = {"type": "audio/pcm"}
    kind = given.get("type", "audio/pcm") if isinstance(given, dict) else given
    if not isinstance(given, dict) or not isinstance(kind, str) or kind not in _FORMATS:
        raise ProtocolError(
            "unsupported_encoding",
            f"format: {shown(str(kind), 40)} is not read here: use {', '.join(_FORMATS)}",
            field="session.audio.input.format",
        )
    if kind != "audio/pcm":
        return {"type": kind}
    rate = given.get("rate") or RATE
    if not isinstance(rate, int) or not 8_000 <= rate <= 48_000:
        raise ProtocolError(
            "unsupported_encoding",
            f"format.rate: {shown(str(rate), 40)} is not read here: use 8000 to 48000, best {RATE}",
            field="session.audio.input.format.rate",
        )
    return {"type": kind, "rate": rate}


def _turns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn detection with its defaults."""
    if given.get("type") == "semantic_vad":
        return {"eagerness": "auto", **given}
    defaults = {"threshold": 0.5, "prefix_padding_ms": 300, "silence_duration_ms": PAUSE_MS}
    return {**defaults, **given, "type": "server_vad"}


def _pause_s(turns: Mapping[str, Any]) -> float:
    if turns["type"] == "semantic_vad":
        pause: object = _EAGER_MS.get(str(turns.get("eagerness")), PAUSE_MS)
    else:
        pause = turns.get("silence_duration_ms")
    most = MOST_PAUSE_S * 1000
    ms = min(pause, most) if isinstance(pause, int | float) else PAUSE_MS
    return max(LEAST_PAUSE_S, ms / 1000)


def _language(said: Mapping[str, Any]) -> str | None:
    """Several, or none that looks like one: heard."""
    several = _languages(said)
    named = said.get("language") or (several[0] if len(several) == 1 else None)
    try:
        return language_of(named)
    except ProtocolError:
        return None


def _languages(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Those to expect; none where that is no list of languages."""
    several = said.get("languages")
    try:
        return languages_of(several[:LANGUAGES] if isinstance(several, list) else ())
    except ProtocolError:
        return ()
