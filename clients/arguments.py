"""Command-line values, each checked where it is read: what is wrong comes with its flag and the remedy."""

from __future__ import annotations

from argparse import ArgumentTypeError
from math import nan

from streaming.wire.codec import MSGPACK_PROTOCOL, choose
from streaming.wire.errors import ProtocolError
from streaming.wire.messages import Options, Start, Track

from .aio import stream_url
from .play import Pace


def address(text: str) -> str:
    """A server's base URL, or its stream's own."""
    try:
        stream_url(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return text


def speed(text: str) -> float | None:
    """An argument such as 1.0, 4 or max; None stands for max."""
    if text == "max":
        return None
    value = _number(text)
    try:
        return Pace(speed=value).speed
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r}: {error}") from None


def packet_s(text: str) -> float:
    """Milliseconds of audio in one packet, as seconds."""
    try:
        return Pace(_number(text) / 1000).packet_s
    except ValueError:
        raise ArgumentTypeError(f"{text!r}: use 5 to 2000 milliseconds") from None


def language(text: str) -> str:
    """A language as `start` takes it."""
    _check(text, Start(language=text))
    return text


def track_name(text: str) -> str:
    """A participant's name as `start` takes it."""
    _check(text, Start(tracks=(Track(text),)))
    return text


def max_delay_s(text: str) -> float:
    """Seconds as `start` takes them for `options.max_delay_s`."""
    value = _number(text)
    _check(text, Start(options=Options(max_delay_s=value)))
    return value


def pause_s(text: str) -> float:
    """Seconds as `start` takes them for `options.pause_s`."""
    value = _number(text)
    _check(text, Start(options=Options(pause_s=value)))
    return value


def _number(text: str) -> float:
    """What no bound holds for where it is no number, so that the bound's remedy is what is said."""
    try:
        return float(text)
    except ValueError:
        return nan


def _check(text: str, start: Start) -> None:
    """Have the protocol judge it, as the server will; MessagePack, for JSON has no NaN."""
    codec = choose([MSGPACK_PROTOCOL])
    assert codec is not None
    try:
        codec.decode(codec.encode_client(start))
    except ProtocolError as error:
        remedy = error.message.rpartition(": ")[2]
        raise ArgumentTypeError(f"{text!r}: {remedy}") from None
