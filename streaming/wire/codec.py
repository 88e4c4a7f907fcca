"""Bytes and text of the socket to messages and back. Pure; raises `ProtocolError` and nothing else.

Two codecs, chosen by websocket subprotocol. JSON: control messages are text frames, audio is binary
frames. MessagePack: every message is one map in a binary frame, audio included (`{type: audio, data}`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from . import language, names
from .errors import CloseCode, ProtocolError, shown
from .messages import (
    VERSION,
    Audio,
    AudioFormat,
    ClientMessage,
    Encoding,
    Name,
    Options,
    Presence,
    ServerMessage,
    Start,
    Track,
)

JSON_PROTOCOL = "seamscribe.v1.json"
MSGPACK_PROTOCOL = "seamscribe.v1.msgpack"

_REMEDIES = {
    "type": "use start, resume, read, flush, alive, name, presence, hotwords or end; audio goes in binary"
    " frames",
    "version": f"this server speaks version {VERSION}",
    "audio": "use {encoding, sample_rate, channels}, each of which may be left out",
    "audio.encoding": "use one of " + ", ".join(Encoding),
    "audio.sample_rate": "use 8000 to 48000",
    "audio.channels": "use 1 to 8",
    "language": language.REMEDY,
    "languages": "use at most 16 ISO 639 codes such as en, or leave it out",
    "context": "use a text of at most 4000 characters",
    "hotwords": "use at most 200 texts of 1 to 64 characters",
    "tracks": "use one {} or {name: 1 to 64 characters} for each channel of audio, in order, 8 at most, or"
    " leave it out to mix the channels down",
    "voices": "use at most 64 names of 1 to 64 characters",
    "options": "use {max_delay_s, pause_s, speakers, activity_pause_s}, each of which may be left out",
    "options.max_delay_s": "use 0.7 to 30 seconds",
    "options.pause_s": "use 0.2 to 3 seconds",
    "options.speakers": "use true or false, or leave it out",
    "options.activity_pause_s": "use 0.1 to 10 seconds, or leave it out",
    "label": "use a text of at most 128 characters, or leave it out",
    "id": "use a text of 1 to 128 characters",
    "present": "use true, or false for who left",
    "name": "use one line of at most 64 characters",
    "speaker": "use the number that segments carry, 1 to 9999; of a track its index and one",
    "data": "use bytes (base64 in JSON)",
    "session": "use ready.session of the session to go on with",
    "token": "use ready.token of the session (a reader: ready.read_token); in start a key or token, or none",
    "last_seq": "use the greatest seq that came, or leave it out for everything",
    "next_sample": "use the oldest sample that can still be sent, at 16,000 a second",
    "after": "use the greatest seq that came, or leave it out for everything",
}
_CODES = {
    "type": "unknown_type",
    "version": "unsupported_version",
    "audio.encoding": "unsupported_encoding",
    "audio.sample_rate": "unsupported_sample_rate",
    "audio.channels": "unsupported_channels",
}
_FIELDS = {
    "": Start.__struct_fields__,
    "audio": AudioFormat.__struct_fields__,
    "options": Options.__struct_fields__,
    "tracks[]": Track.__struct_fields__,
}
_JSON = "JSON object in a text frame"
_MSGPACK = "MessagePack map in a binary frame"
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_INDEX = re.compile(r"\[[^]]*\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")

_Data = TypeVar("_Data", str, bytes, str | bytes)
_Message = TypeVar("_Message")


class Codec(Protocol):
    """One way to write messages."""

    @property
    def name(self) -> str:
        """The websocket subprotocol."""
        ...

    def decode(self, data: str | bytes) -> ClientMessage:
        """One websocket message of the client; raises `ProtocolError`."""
        ...

    def encode(self, message: ServerMessage) -> str | bytes:
        """One message of the server as the payload of a text or a binary frame."""
        ...

    def encode_client(self, message: ClientMessage) -> str | bytes: ...

    def decode_server(self, data: str | bytes) -> ServerMessage:
        """One message of the server; raises `ProtocolError`."""
        ...


class JsonCodec:
    """Text frames hold JSON, binary frames hold audio."""

    name = JSON_PROTOCOL

    def __init__(self) -> None:
        self._client: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
        self._server: msgspec.json.Decoder[ServerMessage] = msgspec.json.Decoder(ServerMessage)
        self._encoder = msgspec.json.Encoder()

    def decode(self, data: str | bytes) -> ClientMessage:
        if isinstance(data, bytes):
            return Audio(data)
        return _read_client(self._client.decode, _peek_json.decode, data, _JSON)

    def encode(self, message: ServerMessage) -> str:
        return self._encoder.encode(message).decode()

    def encode_client(self, message: ClientMessage) -> str | bytes:
        return message.data if isinstance(message, Audio) else self._encoder.encode(message).decode()

    def decode_server(self, data: str | bytes) -> ServerMessage:
        return _read(self._server.decode, data, _JSON)


class MsgpackCodec:
    """Every message is one MessagePack map in a binary frame."""

    name = MSGPACK_PROTOCOL

    def __init__(self) -> None:
        self._client: msgspec.msgpack.Decoder[ClientMessage] = msgspec.msgpack.Decoder(ClientMessage)
        self._server: msgspec.msgpack.Decoder[ServerMessage] = msgspec.msgpack.Decoder(ServerMessage)
        self._encoder = msgspec.msgpack.Encoder()

    def decode(self, data: str | bytes) -> ClientMessage:
        return _read_client(self._client.decode, _peek_msgpack.decode, _binary(data), _MSGPACK)

    def encode(self, message: ServerMessage) -> bytes:
        return self._encoder.encode(message)

    def encode_client(self, message: ClientMessage) -> bytes:
        return self._encoder.encode(message)

    def decode_server(self, data: str | bytes) -> ServerMessage:
        return _read(self._server.decode, _binary(data), _MSGPACK)


_CODECS: tuple[Codec, ...] = (JsonCodec(), MsgpackCodec())
SUBPROTOCOLS = tuple(codec.name for codec in _CODECS)


def choose(offered: Sequence[str]) -> Codec | None:
    """The codec for the subprotocols a client offers, its own order first; JSON where it offers none,
    None where it offers only others."""
    if not offered:
        return _CODECS[0]
    by_name = {codec.name: codec for codec in _CODECS}
    return next((by_name[name] for name in offered if name in by_name), None)


def _binary(data: str | bytes) -> bytes:
    if isinstance(data, str):
        raise ProtocolError(
            "text_frame", f"a text frame came under {MSGPACK_PROTOCOL}: send every message as a binary frame"
        )
    return data


class _Peek(msgspec.Struct):
    """As much of a message as tells which version it is in."""

    type: Any = None
    version: Any = VERSION


_peek_json: msgspec.json.Decoder[_Peek] = msgspec.json.Decoder(_Peek)
_peek_msgpack: msgspec.msgpack.Decoder[_Peek] = msgspec.msgpack.Decoder(_Peek)


def _read(decode: Callable[[_Data], _Message], data: _Data, expected: str) -> _Message:
    """One message; everything that can be wrong with it as `ProtocolError`."""
    try:
        return decode(data)
    except msgspec.DecodeError as error:
        raise _refusal(error, expected) from None
    except UnicodeDecodeError:
        raise _garbage(expected, "text is not UTF-8") from None
    except RecursionError:
        raise _too_deep(expected) from None


def _read_client(
    decode: Callable[[_Data], ClientMessage], peek: Callable[[_Data], _Peek], data: _Data, expected: str
) -> ClientMessage:
    try:
        message = _read(decode, data, expected)
    except ProtocolError as refusal:
        if refusal.code != "malformed":
            _check_version(peek, data, expected)
        raise
    if isinstance(message, Start):
        if message.version != VERSION:
            raise _other_version(message.version)
        _check_tracks(message)
        for index, track in enumerate(message.tracks):
            _check_name(track.name or "", f"tracks[{index}].name")
    if isinstance(message, Name | Presence):
        _check_name(message.name, "name")
    return message


def _check_name(name: str, field: str) -> None:
    if not names.shows(name):
        raise ProtocolError(
            "bad_field",
            f"{field}: {shown(name)} holds characters that cannot be shown: use one line of plain text",
            field=field,
        )


def _check_tracks(start: Start) -> None:
    """Tracks are the channels, each with a name or without; two people may have the same name."""
    tracks, channels = len(start.tracks), start.audio.channels
    if not tracks:
        return
    if tracks != channels:
        raise ProtocolError(
            "bad_field",
            f"tracks: {tracks} of them, but audio.channels is {channels}: {_REMEDIES['tracks']}",
            field="tracks",
        )
    if start.voices:
        raise ProtocolError(
            "bad_field",
            "voices: nobody is recognized by voice where tracks tell who speaks: leave it out and name the"
            " tracks",
            field="voices",
        )


def _check_version(peek: Callable[[_Data], _Peek], data: _Data, expected: str) -> None:
    """What another version's start holds need not be known here: its version is the reason to refuse it."""
    try:
        found = peek(data)
    except RecursionError:
        raise _too_deep(expected) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    if found.type == "start" and found.version != VERSION:
        raise _other_version(found.version) from None


def _other_version(version: object) -> ProtocolError:
    # Only scalars are shown: the text of anything else is as long, and as deep, as the client likes.
    what = shown(str(version), 40) if isinstance(version, int | float | str) else type(version).__name__
    return ProtocolError(
        "unsupported_version",
        f"version: {what} is not spoken here: {_REMEDIES['version']}",
        field="version",
    )


def _garbage(expected: str, detail: str) -> ProtocolError:
    return ProtocolError(
        "malformed", f"the message is no {expected} ({shown(detail)}): check how it is written"
    )


def _too_deep(expected: str) -> ProtocolError:
    return _garbage(expected, "it is nested too deeply")


def _refusal(error: msgspec.DecodeError, expected: str) -> ProtocolError:
    """`error` as the client should read it: which field, what is wrong, what to do."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return _garbage(expected, text)
    found = _PATH.search(text)
    path = found.group(1) if found else ""
    what = text[: found.start()] if found else text
    if unknown := _UNKNOWN.search(what):
        field = shown(f"{path}.{unknown.group(1)}".lstrip("."))
        known = ", ".join(_FIELDS.get(_INDEX.sub("[]", path), ()))
        remedy = f"leave it out; known here: {known}" if known else "leave it out"
        return ProtocolError("unknown_field", f"{field}: unknown field: {remedy}", field=field)
    if missing := _MISSING.search(what):
        field = f"{path}.{missing.group(1)}".lstrip(".")
        return ProtocolError("missing_field", f"{field}: missing: {_remedy(field)}", field=field)
    if not path:
        return _garbage(expected, what)
    code = _CODES.get(path, "bad_field")
    return ProtocolError(code, f"{shown(path)}: {shown(what)}: {_remedy(path)}", field=shown(path))


def _remedy(path: str) -> str:
    return _REMEDIES.get(path.split("[")[0], "see the protocol's description")


def too_big(size: int, limit: int) -> ProtocolError:
    """The refusal of a message of `size` bytes where `limit` is the most."""
    return ProtocolError(
        "too_big",
        f"a message of {size} bytes exceeds ready.limits.max_packet_bytes = {limit}: send smaller packets",
        close=CloseCode.TOO_BIG,
    )
