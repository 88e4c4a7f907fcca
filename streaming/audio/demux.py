"""Audio as recorders write it (WebM, Ogg, MP4 fragments, FLAC, MP3, AAC, WAV and others) to samples, while
the bytes come. Nothing here waits but `pull`, which runs in a thread: see `streaming.audio.container`.

Only what `sniff` knows by its first bytes is opened, by that demuxer and with those decoders alone: FFmpeg
has others that read files and addresses named inside the data.

A stream may hold one recording after another: a new one is known by its header at the beginning of a message,
as a recorder sends it. One that breaks is taken up again at the next place where that can be done, with its
own header, and what is missing on its clock is silence. Only bytes that hold no audio at all, or far too much
of it, end the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import SEEK_END
from itertools import chain
from typing import Any, BinaryIO

import numpy as np

from engine.contract import Audio
from streaming.wire.errors import ProtocolError

from .bounds import STREAMS, Watched, bound_blocks
from .boxes import Boxes, check_file
from .tape import ENOUGH, NotAudio, Source, Tape, refused, sniff
from .wav import samples_of

DECODERS = (
    "opus,libopus,vorbis,libvorbis,aac,aac_latm,flac,alac,mp3,mp3float,mp2,mp2float,amrnb,amrwb,libopencore_amrnb,"
    "gsm,gsm_ms,adpcm_ms,adpcm_ima_wav,adpcm_ima_qt,pcm_s16le,pcm_s16be,pcm_s24le,pcm_s24be,pcm_s32le,pcm_s32be,"
    "pcm_f32le,pcm_f32be,pcm_f64le,pcm_u8,pcm_s8,pcm_alaw,pcm_mulaw"
)

CHANNELS = 8
RATES = range(4_000, 384_001)
"""Samples a second that are resampled."""

FREE_S = 60.0
LEAST_BYTES = 16
"""More audio than `FREE_S` and a second for each so many bytes is no recording but an attack: silence that is
switched off while nobody speaks (Opus with DTX) takes some 27 bytes a second, FLAC's 160."""

TOLERANCE_S = 0.25
"""A clock this far ahead of the samples is a hole; less is how recorders write times."""
LONGEST_HOLE_S = 30.0
"""A clock further ahead counts anew, as one that goes back."""

BAD_PACKETS = 100
"""So many in a row that cannot be decoded are a broken recording."""

BUFFER = 4096
"""Bytes that FFmpeg reads at once: where a recording breaks, what it has read is lost."""

BREAKS = 16
"""So often it may break without a sample between."""

Broke = Callable[[str], None]
"""Told why a recording had to be taken up again."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Some audio, a second at most."""

    samples: Audio
    """(n, tracks)"""
    rate: int


def check_installed() -> None:
    """Raise `ProtocolError` where PyAV is not there."""
    try:
        import av  # noqa: F401
    except ImportError:
        raise ProtocolError(
            "unsupported_encoding",
            "audio.encoding: this server takes no containers, for PyAV is missing there: send pcm_s16le, or"
            " have seamscribe[files] installed",
            field="audio.encoding",
        ) from None


def pieces(pull: Callable[[], bytes], tracks: int = 1, broke: Broke = lambda why: None) -> Iterator[Piece]:
    """The audio of a client whose next message `pull` gives, none at the end. `tracks` is 1, and channels are
    mixed down, or their number. Raises `ProtocolError`."""
    from av.error import FFmpegError

    tape, clock, breaks, seconds = Tape(pull), _Clock(), 0, 0.0
    while (start := tape.begin()) is not None:
        clock = _Clock() if start.fresh else clock
        try:
            for frame in _frames(tape, start.format):
                breaks = 0
                for piece in _cut(frame, clock, tracks):
                    seconds += len(piece.samples) / piece.rate
                    _check_density(seconds, tape.taken)
                    yield piece
                tape.heard(seconds)
            if tape.ended:
                continue
            why = "ended"
        except FFmpegError as error:
            why = type(error).__name__
        if isinstance(tape.fault, ProtocolError):
            raise tape.fault
        if tape.fault is not None:
            why = type(tape.fault).__name__
        breaks += 1
        if breaks >= BREAKS:
            raise NotAudio(f"nothing of it can be decoded ({why})")
        broke(why)
        tape.broke()
    if tape.taken and not seconds:
        raise NotAudio("not one sample of audio came")


def file_pieces(file: BinaryIO, tracks: int | None = 1) -> Iterator[Piece]:
    """The audio of a whole file, which may be gone back in. `tracks` is 1, and channels are mixed down, or
    their number; None, where any number will do. Raises `ProtocolError`."""
    check_installed()
    from av.error import FFmpegError

    size, clock, seconds = file.seek(0, SEEK_END), _Clock(), 0.0
    file.seek(0)
    format = sniff(file.read(ENOUGH))
    file.seek(0)
    if format is None:
        raise NotAudio("the file begins like no recording that is known" if size else "the file is empty")
    if format == "mp4":
        check_file(file, size)
    watched = Watched(file)
    try:
        for frame in _opened(watched, format, {}):
            watched.heard()
            for piece in _cut(frame, clock, tracks or frame.layout.nb_channels):
                seconds += len(piece.samples) / piece.rate
                _check_density(seconds, size)
                yield piece
    except FFmpegError as error:
        raise watched.fault or NotAudio(
            f"the file is damaged behind {seconds:.1f} s ({error.strerror})"
        ) from None
    if watched.fault is not None:
        raise watched.fault
    if not seconds:
        raise NotAudio("the file holds no sample of audio")


def file_channels(file: BinaryIO) -> int:
    """How many channels a whole file begins with. Blocking; raises `ProtocolError` where it is no recording,
    or has more than are taken."""
    channels: int = next(file_pieces(file, None)).samples.shape[1]
    return channels


def _frames(tape: Tape, format: str) -> Iterator[Any]:
    """Decoded frames of one recording. A packet that cannot be decoded is left out."""
    options = {"probesize": "32", "analyzeduration": "1"}
    source: Source = tape
    if format == "wav":
        source, format, raw = samples_of(tape)
        options |= raw
    elif format == "mp4":
        source = Boxes(tape)
    yield from _opened(source, format, options)


def _opened(source: Any, format: str, options: dict[str, str]) -> Iterator[Any]:
    import av

    bound_blocks()
    options = {"codec_whitelist": DECODERS, "max_streams": str(STREAMS), **options}
    # Titles in no encoding are nothing to us; from 19 on PyAV passes over them by itself.
    lenient: dict[str, Any] = {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}
    with av.open(source, "r", format=format, options=options, buffer_size=BUFFER, **lenient) as container:
        stream = next(iter(container.streams.audio), None)
        if stream is None:
            raise NotAudio("it holds no audio track")
        # FFmpeg's own list holds only while it looks at the beginning.
        name = stream.codec_context.name if stream.codec_context else "its codec"
        if name not in DECODERS.split(","):
            raise refused("encoding", f"{name} is not decoded here: record Opus, AAC, FLAC or PCM")
        bad = 0
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except av.error.FFmpegError:
                bad += 1
                if bad >= BAD_PACKETS:
                    raise
                continue
            bad = 0
            yield from frames


class _Clock:
    """Where a recording is on its own clock."""

    def __init__(self) -> None:
        self._next: float | None = None

    def hole(self, frame: Any) -> int:
        """Samples missing before this frame."""
        rate: int = frame.sample_rate
        at = self._next if frame.pts is None else float(frame.pts * frame.time_base) * rate
        if at is None or self._next is None:
            self._next = at or 0.0
        hole = 0 if at is None else round(at - self._next)
        if not TOLERANCE_S * rate < hole <= LONGEST_HOLE_S * rate:
            # Small differences add up until they are a hole; large ones are another clock.
            if at is not None and abs(hole) > TOLERANCE_S * rate:
                self._next = at
            hole = 0
        self._next += hole + frame.samples
        return hole


def _cut(frame: Any, clock: _Clock, tracks: int) -> Iterator[Piece]:
    channels, rate = frame.layout.nb_channels, frame.sample_rate
    if rate not in RATES:
        raise refused("sample_rate", f"{rate} samples a second are not taken: record with 48000")
    if not 1 <= channels <= CHANNELS or tracks not in {1, channels}:
        wanted = f"tracks are {tracks}" if 1 <= channels <= CHANNELS else f"{CHANNELS} are the most"
        raise refused("channels", f"the recording has {channels} channels, but {wanted}: record as many")
    samples = _mixed(_floats(frame, channels), tracks)
    hole = clock.hole(frame)
    silence = (np.zeros((min(rate, hole - at), tracks), np.float32) for at in range(0, hole, rate))
    for part in chain(silence, (samples[at : at + rate] for at in range(0, len(samples), rate))):
        yield Piece(part, rate)


def _floats(frame: Any, channels: int) -> Audio:
    """(n, channels) in [-1, 1]."""
    raw: Any = frame.to_ndarray()
    audio: Audio
    raw = raw.T if frame.format.is_planar else raw.reshape(-1, channels)
    if raw.dtype.kind == "u":
        audio = (raw.astype(np.float32) - np.float32(128)) * np.float32(1 / 128)
    elif raw.dtype.kind == "i":
        audio = np.multiply(raw, np.float32(2.0 ** (1 - 8 * raw.dtype.itemsize)), dtype=np.float32)
    else:
        audio = np.clip(np.nan_to_num(raw.astype(np.float32)), -1.0, 1.0)
    return audio


def _mixed(samples: Audio, tracks: int) -> Audio:
    if samples.shape[1] == tracks:
        return samples
    mixed: Audio = samples.mean(axis=1, keepdims=True, dtype=np.float32)
    return mixed


def _check_density(seconds: float, taken: int) -> None:
    if seconds > FREE_S + taken / LEAST_BYTES:
        raise refused(
            "encoding",
            f"{seconds:.0f} s of audio in {taken} bytes are more than recorders make: send what one wrote",
        )
