"""What meeting bots and telephone services have in common: they connect, send JSON with audio in base64, and
read nothing. Pure.

A bot sends either one mix or each participant apart; what comes first decides. A mix is one stream, whose
voices are told apart; participants are the tracks of one session (`lanes`, `roster`), all eight from the
start, for tracks are fixed there. Pieces that cannot be read are ignored, and counted: what they held is
silence, and the clock goes on. Captions are read over our own routes.
"""

from __future__ import annotations

import binascii
import math
from abc import abstractmethod
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming.wire.errors import ProtocolError, shown
from streaming.wire.language import language_of
from streaming.wire.messages import (
    Alive,
    Audio,
    AudioFormat,
    Encoding,
    Flush,
    ServerMessage,
    Start,
    Track,
)

from .dialect import Frame, Handshake, Heard, Ignored, Translator
from .lanes import Lanes
from .lenient import json_of
from .query import Query
from .roster import Roster

TRACKS = 8
SLOWEST, FASTEST = 8_000, 48_000
FLUSH_S = 2.0
"""After so long without a piece what was said is made final."""

START_S = 5.0
"""After so long without audio a session is opened all the same: nobody is let wait for it longer."""

MIX = ""
"""Who speaks where all come as one."""

_FARTHEST_S = 1e11


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the address says: `?tracks=1..8`, `?sample_rate=`, `?language=`, `?label=`."""

    tracks: int
    rate: int
    """Of a session that is opened before there is audio."""
    language: str | None
    label: str


def wishes_of(query: Query) -> Wishes:
    """Raises `ProtocolError` naming the field and the remedy."""
    return Wishes(
        tracks=query.integer("tracks", TRACKS, 1, TRACKS),
        rate=query.integer("sample_rate", 16_000, SLOWEST, FASTEST),
        language=language_of(query.text("language")),
        label=query.text("label") or "",
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """Audio of one participant, or of the `MIX`."""

    who: str
    at_s: float | None
    """On the source's clock; None where it does not say."""
    data: bytes
    rate: int


MALFORMED = Ignored(("malformed message",))

MISSHAPEN = (AttributeError, KeyError, TypeError, ValueError, OverflowError)
"""What comes of reading a message whose fields are missing, or of another kind."""


class Bot(Translator):
    """One bot: a dialect says what its frames mean."""

    slack_s = 0.05
    """How exact the times of its pieces are: see `Lanes`."""

    def __init__(self, handshake: Handshake) -> None:
        """Raises `ProtocolError`."""
        self._wishes = wishes_of(handshake.query)
        self._label = self._wishes.label
        self.rate = self._wishes.rate
        self._apart: bool | None = None
        self._lanes: Lanes | None = None
        self.roster = Roster(self._wishes.tracks)
        """Who is there."""
        self._late = 0
        self._flushes = 0
        self._settled = True

    @abstractmethod
    def read(self, message: dict[str, Any]) -> Iterable[Heard | Piece]:
        """What one message of the bot's means; raises `MISSHAPEN` where it is not what it should be."""

    def hear(self, frame: Frame) -> Iterable[Heard]:
        """A text frame holds one message."""
        if (message := message_of(frame)) is None:
            yield MALFORMED
            return
        try:
            found = list(self.read(message))
        except MISSHAPEN:
            yield MALFORMED
            return
        for one in found:
            yield from self._take(one) if isinstance(one, Piece) else (one,)
        yield from self._news()

    def tick(self, quiet_s: float) -> Iterable[Heard]:
        """Silence is no reason to hang up: a bot may send nothing while nobody speaks."""
        if self._lanes is None:
            if quiet_s >= START_S:
                yield from self._begin(True, self.rate)
                yield from self._news()
            return
        yield Alive()
        yield from map(Audio, self._lanes.wait(quiet_s))
        if quiet_s >= FLUSH_S and not self._settled:
            self._settled = True
            self._flushes += 1
            yield Flush(str(self._flushes))

    def gone(self) -> Iterable[Heard]:
        """What waited for others."""
        return self.rest()

    def say(self, message: ServerMessage) -> Iterable[Frame]:
        """Nothing: nobody would read it."""
        return ()

    def call(self, label: str) -> None:
        """What the session is called in the list of sessions, unless the address says so."""
        self._label = self._label or label

    def rest(self) -> Iterator[Audio]:
        """What was held back."""
        if self._lanes is not None:
            yield from map(Audio, self._lanes.finish())

    def _begin(self, apart: bool, rate: int) -> Iterator[Heard]:
        """One track is none: there is nothing to tell apart by."""
        tracks = self._wishes.tracks if apart else 1
        self._lanes = Lanes(tracks, rate, slack_s=self.slack_s, more=apart)
        self.rate = rate
        yield Start(
            audio=AudioFormat(Encoding.PCM_S16LE, rate, tracks),
            language=self._wishes.language,
            tracks=(Track(),) * tracks if apart else (),
            label=self._label[:128],
        )

    def _take(self, piece: Piece) -> Iterator[Heard]:
        apart = piece.who != MIX
        if self._apart is None:
            self._apart = apart
        if self._lanes is None:
            yield from self._begin(apart, piece.rate)
        if apart is not self._apart:
            # The same words twice would be worse than once.
            yield Ignored(("mixed audio" if self._apart else "participant's audio",))
            return
        if piece.rate != self.rate:
            raise ProtocolError(
                "rate_changed",
                f"sample_rate: {piece.rate} came after {self.rate}: keep one rate for a connection",
                field="sample_rate",
            )
        lane = self.roster.lane(piece.who) if apart else 0
        assert self._lanes is not None
        if lane is None:
            yield Ignored(("participant",))
            return
        yield from self._news()
        self._settled = False
        yield from map(Audio, self._lanes.put(piece.who, lane, piece.at_s, piece.data))
        if self._lanes.late > self._late:
            self._late = self._lanes.late
            yield Ignored(("late audio",))

    def _news(self) -> Iterator[Heard]:
        """Who came, left or has a name; waits for the session."""
        if self._lanes is not None:
            yield from self.roster.presences()
            yield from self.roster.names()


def message_of(frame: Frame) -> dict[str, Any] | None:
    """None where it is no JSON object."""
    try:
        return json_of(frame)
    except ProtocolError:
        return None


def id_of(value: object) -> str:
    """Of a participant; raises ValueError where there is none."""
    if not (found := str(value)[:128]):
        raise ValueError("a participant without an id")
    return found


def rate_of(value: object) -> int:
    """Samples a second; raises `ProtocolError` where that is none, or not one that is taken."""
    found = seconds(value)
    if found is None or not SLOWEST <= found <= FASTEST:
        raise ProtocolError(
            "bad_field",
            f"sample_rate: {shown(str(value))} is not from {SLOWEST} to {FASTEST}: use 16000",
            field="sample_rate",
        )
    return int(found)


def samples(text: str) -> bytes:
    """Of base64; raises ValueError."""
    try:
        return b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def seconds(value: object) -> float | None:
    """A number, or one written as text; None where it is no time."""
    try:
        found = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return None
    return found if abs(found) < _FARTHEST_S else None


def clock(text: object) -> float | None:
    """ISO 8601 as seconds; None where it is no time."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None
