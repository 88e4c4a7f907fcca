"""Native protocol, version 1: every message as a tagged, frozen struct.

The tag is the field `type`. Client messages refuse unknown fields by name; a field left out takes the
default written here. Times end in `_ms` and are milliseconds on the session's audio clock, which starts
at 0 with the first sample. A `sample` is an index on the same clock at 16,000 samples a second, whatever
rate the client sends: a client at another rate multiplies by rate / 16,000.

`seq` grows from one message to the next, with holes: a state that was outdated before it could be sent takes
its number along. `ready` and `ack`, and an `error` that is one connection's own, take no number: they carry
the newest the client has, so the greatest `seq` that came is always what to name in `resume`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

VERSION = 1
"""The protocol version spoken here."""

CLOCK_RATE = 16_000
"""Samples per second of every `sample` on the wire."""

BEAT_S = 5.0
"""A connection on which audio may be sent says something at least this often."""


class Encoding(StrEnum):
    """How one sample is written."""

    PCM_S16LE = "pcm_s16le"
    PCM_F32LE = "pcm_f32le"
    MULAW = "mulaw"
    ALAW = "alaw"
    CONTAINER = "container"
    """As a recorder writes it, header and all: WebM, Ogg, MP4 in fragments, FLAC, MP3, AAC, WAV and others.
    The bytes say at which rate and with how many channels, so `sample_rate` is not looked at, and `channels`
    only where there are tracks. Such a stream cannot be resumed."""


WIDTHS = {Encoding.PCM_S16LE: 2, Encoding.PCM_F32LE: 4, Encoding.MULAW: 1, Encoding.ALAW: 1}
"""Bytes of one bare sample of one channel; a container has no such number."""


class AudioFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """What the client's audio bytes are. Channels are interleaved; they are mixed down unless `start.tracks`
    makes each a participant."""

    encoding: Encoding = Encoding.PCM_S16LE
    sample_rate: Annotated[int, Meta(ge=8_000, le=48_000)] = 16_000
    channels: Annotated[int, Meta(ge=1, le=8)] = 1


class Options(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the client wants its words; None is the server's setting. Seconds."""

    max_delay_s: Annotated[float, Meta(ge=0.7, le=30.0)] | None = None
    """Every word is committed this long after it was spoken, at the latest."""
    pause_s: Annotated[float, Meta(ge=0.2, le=3.0)] | None = None
    """A pause this long ends a segment."""
    speakers: bool | None = None
    """Whether the voices of the stream are told apart; not asked of tracks, which are speakers already."""
    activity_pause_s: Annotated[float, Meta(ge=0.1, le=10.0)] | None = None
    """Have `activity` told; speech has stopped after so long a silence. None: not told."""


class Track(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One participant with a channel of its own."""

    name: Annotated[str, Meta(min_length=1, max_length=64)] | None = None


Hotword = Annotated[str, Meta(min_length=1, max_length=64)]


LANGUAGES = 16
"""So many languages may be expected."""

Language = Annotated[str, Meta(pattern=r"\A[a-z]{2,3}\Z")]


class Start(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="start"):
    """The first message of every stream."""

    version: int = VERSION
    audio: AudioFormat = AudioFormat()
    language: Language | None = None
    """ISO 639 code; None lets the server hear which language it is."""
    languages: Annotated[tuple[Language, ...], Meta(max_length=LANGUAGES)] = ()
    """Those to expect where `language` is left out: too short a stretch to be sure of is heard as one of
    them. Others are still detected; those that the engine does not know are no help."""
    context: Annotated[str, Meta(max_length=4_000)] = ""
    """What was said or written before: helps names and terms."""
    hotwords: Annotated[tuple[Hotword, ...], Meta(max_length=200)] = ()
    tracks: Annotated[tuple[Track, ...], Meta(max_length=8)] = ()
    """One for each channel of `audio`, in order: channels are people. Empty: one stream, whoever speaks."""
    voices: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=64)] = ()
    """Names of enrolled voices that may be recognized here."""
    options: Options = Options()
    label: Annotated[str, Meta(max_length=128)] = ""
    """What the client calls this session, for the list of sessions: the id of a call or a bot, say."""
    token: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    """Key or single-use token, where neither a header nor a subprotocol brought it."""


class Audio(Struct, frozen=True, forbid_unknown_fields=True, tag="audio"):
    """Audio bytes in the format of `start`, cut anywhere. In JSON a binary frame stands for it (or this
    message with base64); in MessagePack it is this message."""

    data: bytes


class Flush(Struct, frozen=True, forbid_unknown_fields=True, tag="flush"):
    """Make everything received so far final, without ending; answered by `flushed` with the same id. Use an
    id once: on a resumed connection one that came before is known to be the same flush, sent again."""

    id: Annotated[str, Meta(min_length=1, max_length=128)]


class End(Struct, frozen=True, forbid_unknown_fields=True, tag="end"):
    """No more audio; answered by the last segments and the receipt."""


Token = Annotated[str, Meta(min_length=1, max_length=256)]
Position = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class Resume(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="resume"):
    """The first message of a connection that goes on with a session instead of starting one; answered by
    `ready` with `resumed`, or by the error `resume_refused`. The connection that the session had before, if
    it still has one, is told `replaced`."""

    session: Annotated[str, Meta(min_length=1, max_length=128)]
    token: Token
    """`ready.token` of the session."""
    last_seq: Position = 0
    """`seq` of the newest message that came: what is newer follows. 0: everything."""
    next_sample: Position = 0
    """The oldest sample (16 kHz clock) that the client can still send."""


class Read(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="read"):
    """The first message of a reader whose address holds no token."""

    token: Token
    """`ready.read_token` or `ready.token` of the session."""
    after: Position = 0
    """`seq` of the newest message that came: what is newer follows. 0: everything."""


class Alive(Struct, frozen=True, forbid_unknown_fields=True, tag="alive"):
    """The client is there, though it has no audio for now: its silence counts from here."""


class Name(Struct, frozen=True, forbid_unknown_fields=True, tag="name"):
    """From now on, and for everything said before, this speaker has this name; told to all as `named`."""

    speaker: Annotated[int, Meta(ge=1, le=9_999)]
    """As segments carry it; that of a track is its index and one."""
    name: Annotated[str, Meta(max_length=64)]
    """Empty: by number again."""


class Presence(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="presence"):
    """Somebody is there from now on, or no longer; told to all as `participant`. It changes nothing of what
    is heard. Again with another `name` or `speaker`: the same person, better known."""

    id: Annotated[str, Meta(min_length=1, max_length=128)]
    """As the source of the audio has it."""
    present: bool = True
    name: Annotated[str, Meta(max_length=64)] = ""
    speaker: Annotated[int, Meta(ge=1, le=9_999)] | None = None
    """The number under which they are heard, once that is known."""


class Hotwords(Struct, frozen=True, forbid_unknown_fields=True, tag="hotwords"):
    """Expect these from now on, in place of those of `start`."""

    hotwords: Annotated[tuple[Hotword, ...], Meta(max_length=200)]


PARTICIPANTS = 1024
"""People of whom one session keeps whether they are there."""

ClientMessage = Start | Resume | Read | Audio | Flush | Alive | Name | Presence | Hotwords | End


class Limits(Struct, frozen=True):
    """What this endpoint takes from one stream."""

    max_packet_bytes: int
    max_ahead_ms: int
    """Audio that may wait undecoded before the server pauses reading."""
    max_session_ms: int
    idle_timeout_ms: int
    """The stream is closed when neither audio nor `alive` comes for so long."""


class Ready(Struct, frozen=True, omit_defaults=True, tag="ready"):
    """Answers `start` or `resume`: audio may flow. A reader gets it without tokens."""

    seq: int
    session: str
    version: int
    engine: str
    model: str
    audio: AudioFormat
    limits: Limits
    max_delay_ms: int
    pause_ms: int
    language: str | None = None
    token: str = ""
    """The session's secret, for `resume`."""
    read_token: str = ""
    """Lets readers in, and nothing else."""
    resume_ms: int = 0
    """So long the session goes on without a connection; 0: not at all."""
    resumed: bool = False
    next_sample: int = 0
    """The sample (16 kHz clock) that the server wants next. At another rate the client begins with the first
    of its samples at or after it, number ceil(next_sample * rate / 16,000)."""


class Word(Struct, frozen=True):
    """One committed word (a character where the script has no spaces)."""

    text: str
    start_ms: int
    end_ms: int
    confidence: float | UnsetType = UNSET
    space: bool | UnsetType = UNSET
    """Whether a space stands before the word; left out means true."""


class Segment(Struct, frozen=True, tag="segment"):
    """The whole present state of one segment: keep the newest `rev` of every `id`.

    `words` never change and only grow; `text` is how they read. `partial` may change freely: what a
    reader sees is `text + partial` (`partial` brings its own leading space). After `final` no word comes,
    only, while its speaker is not frozen, a new speaker, or a split: if two people turn out to have spoken,
    the segment's last words move to a segment with a new `id`, with the index and the times they had. The
    shortened segment comes first, and those that have its words before any with later words.

    A segment may come again with the `rev` it had: nothing of it has changed.
    """

    seq: int
    id: int
    rev: int
    first_word: int
    """Index of the first word in the append-only transcript of the session, or of its track."""
    start_ms: int
    end_ms: int
    speaker: int | None
    """Number of the speaker in this session, from 1; None while it is not known."""
    text: str
    words: tuple[Word, ...]
    partial: str
    final: bool
    language: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    """The speaker's name, where it has one."""
    track: int | UnsetType = UNSET
    """Index of the track in `start.tracks`, where there are any."""
    frozen: bool | UnsetType = UNSET
    """Whether the speaker is not revised any more, where that is known already."""


class Speaker(Struct, frozen=True, tag="speaker"):
    """Who spoke a segment, revised without any change of its words: `rev` counts on from the segment's."""

    seq: int
    segment: int
    rev: int
    speaker: int | None
    frozen: bool
    """Whether this is the last word on it."""
    name: str | UnsetType = UNSET
    score: float | UnsetType = UNSET
    """Similarity of the voice to the speaker's, -1 to 1."""


class Named(Struct, frozen=True, tag="named"):
    """From now on, and for everything said before, this speaker has this name; an empty one: none."""

    seq: int
    speaker: int
    name: str
    score: float | UnsetType = UNSET
    """Similarity to the enrolled voice, where a known voice was recognized."""


class Participant(Struct, frozen=True, tag="participant"):
    """Somebody came, or left, at `at_ms`. Of each `id` only the newest counts; again with the same `at_ms`:
    nobody moved, more is known."""

    seq: int
    id: str
    present: bool
    at_ms: int
    """As exact as the source: what bots send lies up to 0.2 s behind."""
    name: str | UnsetType = UNSET
    speaker: int | UnsetType = UNSET
    """Their number in segments, once they have spoken on a track."""


class Activity(Struct, frozen=True, tag="activity"):
    """Somebody began to speak, or stopped, at `at_ms`; only where `start.options` asks for it. Of a track
    only the newest counts."""

    seq: int
    speaking: bool
    at_ms: int
    track: int | UnsetType = UNSET
    """Where there are tracks."""


class Ack(Struct, frozen=True, tag="ack"):
    """Everything before `sample` (16 kHz clock) has arrived. Sent at least once a second while audio
    arrives, and every `BEAT_S` while none does, so that a dead connection is known by its silence."""

    seq: int
    sample: int
    durable: int = 0
    """What came before this sample need not be sent again, even if the server dies: clients may forget it."""


class Flushed(Struct, frozen=True, tag="flushed"):
    """Everything before `sample` (16 kHz clock) is final: all that had arrived when the flush did, but the
    last 20 ms at most, and at other rates than 16 kHz what the resampler holds back (120 ms at most)."""

    seq: int
    id: str
    sample: int


class Gap(Struct, frozen=True, tag="gap"):
    """This stretch was received, but has no text, because of `cause`."""

    seq: int
    start_ms: int
    end_ms: int
    cause: str
    track: int | UnsetType = UNSET
    """The track it is missing from, where there are any."""


class Span(Struct, frozen=True):
    """Samples `start` to `end` (half-open, 16 kHz clock) became `cover`: text, silence or gap."""

    start: int
    end: int
    cover: str
    cause: str | UnsetType = UNSET


class Receipt(Struct, frozen=True):
    """What became of every sample: `spans` tile [0, samples) in order."""

    samples: int
    duration_ms: int
    words: int
    text_samples: int
    silence_samples: int
    gap_samples: int
    text_ms: int
    silence_ms: int
    gap_ms: int
    spans: tuple[Span, ...]


class Ended(Struct, frozen=True, tag="end"):
    """The stream's last word, with its receipt; the socket closes after it (or after an `error`)."""

    seq: int
    receipt: Receipt
    tracks: tuple[Receipt, ...] | UnsetType = UNSET
    """With tracks each has its own, in order; then `receipt` counts a sample as a gap if it is one on any
    track, else as text if it is on any, and the words of all."""


class Error(Struct, frozen=True, tag="error"):
    """Why the stream ends: always the last message, the close code tells retry from fault."""

    seq: int
    code: str
    message: str
    field: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


ServerMessage = (
    Ready | Segment | Speaker | Named | Participant | Activity | Ack | Flushed | Gap | Ended | Error
)
