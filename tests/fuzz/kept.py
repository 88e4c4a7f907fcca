"""What the disk gives back: rows of the journal, one of them damaged, up to a session that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from engine.contract import Capabilities
from engine.fake import FakeEncoder, vector_of
from streaming.core.meeting import Meeting
from streaming.core.settings import SessionSettings
from streaming.core.voices import KnownVoice
from streaming.kept import remembering
from streaming.kept.restore import freeze, log_of, receipt, revive, skip
from streaming.kept.stored import Damaged, Progress, Row, encode, read_back
from streaming.kept.transcripts import export
from streaming.wire.messages import (
    AudioFormat,
    Ended,
    Flushed,
    Gap,
    Named,
    Participant,
    Receipt,
    Segment,
    Speaker,
    Start,
    Track,
    Word,
)
from streaming.wire.render import FORMATS

from .runner import Target

_TRAITS = FakeEncoder().traits
_WORDS = (Word("one", 100, 400, 0.9), Word("two", 600, 900))
STATES = (
    Segment(0, 1, 2, 0, 0, 1000, 1, "one two", _WORDS, "", True, language="en"),
    Gap(0, 1000, 1500, "lost"),
    Segment(0, 2, 1, 2, 1500, 2500, 2, "three", (Word("three", 1600, 1900),), "", False),
    Speaker(0, 1, 3, 2, True),
    Named(0, 1, "Ann"),
    Participant(0, "p1", False, 20, "Ann", 1),
    Flushed(0, "one", 16_000),
)
_ENDED = Ended(0, Receipt(40_000, 2500, 3, 0, 40_000, 0, 0, 2500, 0, ()))
START = msgspec.json.encode(Start())
TRACKS = msgspec.json.encode(Start(audio=AudioFormat(channels=2), tracks=(Track("Ann"), Track())))
PROGRESS = msgspec.json.encode(Progress((40_000,), 48_000))
VOICES = remembering.encode([KnownVoice(1, vector_of(0), 3.0, 2.0)], _TRAITS)
EVENTS = tuple(encode(state) for state in STATES)


def _session(start: bytes, progress: bytes, voices: bytes, events: Sequence[bytes], sample: int) -> Meeting:
    """Everything that is made of a session's rows."""
    row: Row = (1_700_000_000_000, None, b"t" * 32, b"r" * 32, start, progress, voices, "bot")
    stored = read_back("s", row, [(data, seq) for seq, data in enumerate(events, 1)])
    log = log_of(stored)
    for name in FORMATS:
        export(log, name, "s")
    tracks = stored.opened.start.tracks
    freeze(log)
    place = skip(revive(stored, log), log, sample, tracks=bool(tracks))
    receipt(place, stored.progress.received)
    remembering.decode(stored.voices, _TRAITS)
    return Meeting(
        "s",
        SessionSettings(),
        Capabilities("fake", "slots", 30.0),
        tracks=tuple(track.name for track in tracks),
        continues=place.continues,
        numbered=place.numbered,
    )


def _row(case: bytes, choices: Random) -> object:
    """The case takes one row's place: the one it was made from, as far as that can be told, or any."""
    start, progress, voices, events = START, PROGRESS, VOICES, list(EVENTS)
    place = choices.randrange(3 + len(events))
    sample = choices.choice((0, 32_000, 1 << 40))
    if place == 0 or case[:16] == START[:16]:
        start = case
    elif place == 1 or case[:10] == PROGRESS[:10]:
        progress = case
    elif place == 2 or case[:8] == VOICES[:8]:
        voices = case
    else:
        events[place - 3] = case
    return _session(start, progress, voices, events, sample)


TARGETS = (
    Target("journal", [START, TRACKS, PROGRESS, VOICES, *EVENTS, encode(_ENDED)], _row, (Damaged,), 0.5),
)
