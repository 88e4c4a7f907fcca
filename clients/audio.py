"""Any audio file as pcm_s16le at 16 kHz, mono or with the channels it has, piece by piece: the whole file is
never in memory.

A file that cannot be read gives one `AudioError` that says why and what to do. One that ends early or
holds broken packets gives what could be read, and says so through `warn`.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RATE = 16_000
"""Samples per second of everything this module gives out."""

BYTES_PER_SECOND = 2 * RATE

HEADERLESS = frozenset({".pcm", ".raw"})
"""Suffixes read as bare samples; nothing in such a file says what it holds."""

_READ = 64 * 1024
# Containers that guess their length from the bit rate: a shorter decode proves nothing there.
_GUESSED_LENGTH = frozenset({"mp3", "aac"})
_MAX_BAD_PACKETS = 100

Warn = Callable[[str], None]


class AudioError(Exception):
    """This file gives no audio; the text names the file, the reason and the remedy."""


def decode(path: Path, warn: Warn, channels: int = 1) -> Iterator[bytes]:
    """Yield the file as s16le 16 kHz, in pieces of whole samples: mixed down to mono, or with all of its
    `channels`, as many as `count_channels` says, interleaved. Raises `AudioError`."""
    try:
        _check_file(path)
        if path.suffix.lower() in HEADERLESS:
            if channels != 1:
                raise AudioError(f"{path}: bare samples are read as mono: give it a header with {channels}")
            warn(f"{path.name}: no header; read as 16 kHz, 16 bit little-endian, mono")
            yield from _headerless(path, warn)
        else:
            _check_riff(path, warn)
            yield from _container(path, warn, channels)
    except OSError as error:
        raise AudioError(f"{path}: {error.strerror or error}") from error


def count_channels(path: Path) -> int:
    """How many channels the file's audio has; raises `AudioError`."""
    _check_file(path)
    if path.suffix.lower() in HEADERLESS:
        return 1
    with _open(path) as container:
        return int(_stream(container, path).channels)


def load(path: Path, warn: Warn) -> npt.NDArray[np.int16]:
    """The whole file at once, for tools that need it so; raises `AudioError`."""
    return np.frombuffer(b"".join(decode(path, warn)), dtype="<i2")


def duration_s(path: Path) -> float | None:
    """What the file says it lasts, for progress lines only; None where it does not say."""
    if path.suffix.lower() in HEADERLESS:
        return path.stat().st_size / BYTES_PER_SECOND
    try:
        import av
    except ImportError:
        return None
    try:
        with av.open(str(path), **_lenient(av)) as container:
            return container.duration / av.time_base if container.duration else None
    except av.error.FFmpegError:
        return None


def packets(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Cut `pieces` anew into packets of `size` bytes; the last may be shorter.

    An `AudioError` of the source passes through after everything that came before it.
    """
    pending = bytearray()
    broken: AudioError | None = None
    try:
        for piece in pieces:
            pending += piece
            whole = len(pending) - len(pending) % size
            for at in range(0, whole, size):
                yield bytes(pending[at : at + size])
            del pending[:whole]
    except AudioError as error:
        broken = error
    if pending:
        yield bytes(pending)
    if broken is not None:
        raise broken


def _check_file(path: Path) -> None:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise AudioError(f"{path}: no such file") from None
    if stat.S_ISDIR(found.st_mode):
        raise AudioError(f"{path}: is a folder, not a file: name the files in it")
    if not stat.S_ISREG(found.st_mode):
        kind = "pipe" if stat.S_ISFIFO(found.st_mode) else "device"
        raise AudioError(f"{path}: is a {kind}, not a file: write the audio to a file first")
    if not found.st_size:
        raise AudioError(f"{path}: the file is empty (0 bytes)")


def _headerless(path: Path, warn: Warn) -> Iterator[bytes]:
    odd, some = b"", False
    with path.open("rb") as file:
        while piece := file.read(_READ):
            piece = odd + piece
            whole = len(piece) - len(piece) % 2
            odd = piece[whole:]
            if whole:
                some = True
                yield piece[:whole]
    if not some:
        raise AudioError(f"{path}: not one whole 16 bit sample")
    if odd:
        warn(f"{path.name}: an odd number of bytes; the last one is left out")


def _check_riff(path: Path, warn: Warn) -> None:
    """Tell of a WAV cut off on the way; the decoder itself takes the file's size for the truth."""
    with path.open("rb") as file:
        head = file.read(8)
    if head[:4] != b"RIFF" or len(head) < 8:
        return
    promised, there = int.from_bytes(head[4:8], "little") + 8, path.stat().st_size
    # A writer that cannot seek back leaves the largest sizes there are: no promise at all.
    if there + 1 < promised < 0x7FFF_FFFF:
        warn(f"{path.name}: cut off? it promises {promised} bytes, {there} are there; these are used")


def _lenient(av: Any) -> dict[str, Any]:
    """Titles in no encoding are passed over; from 19 on PyAV does so by itself."""
    return {"metadata_errors": "ignore"} if int(av.__version__.split(".")[0]) < 19 else {}


def _open(path: Path) -> Any:
    try:
        import av
    except ImportError as error:
        raise AudioError(f"{path}: reading it needs PyAV; install seamscribe[files]") from error

    try:
        return av.open(str(path), **_lenient(av))
    except av.error.FFmpegError as error:
        raise AudioError(
            f"{path}: no format we can read ({error.strerror or error}); bare 16 kHz samples must end in .pcm"
        ) from error


def _stream(container: Any, path: Path) -> Any:
    stream = next(iter(container.streams.audio), None)
    if stream is None:
        raise AudioError(f"{path}: holds no audio track")
    return stream


def _container(path: Path, warn: Warn, channels: int) -> Iterator[bytes]:
    with _open(path) as container:
        stream = _stream(container, path)
        length = stream.duration * float(stream.time_base) if stream.duration and stream.time_base else 0.0
        samples = 0
        for piece in _resampled(_frames(container, stream, path, warn), path, channels):
            samples += len(piece) // (2 * channels)
            yield piece
        if not samples:
            raise AudioError(f"{path}: a header, but no sample of audio ({container.format.name})")
        short = length - samples / RATE
        if container.format.name not in _GUESSED_LENGTH and short > 0.5:
            warn(
                f"{path.name}: cut off? it promises {length:.1f} s, {samples / RATE:.1f} s could be read; "
                "these are used"
            )


def _frames(container: Any, stream: Any, path: Path, warn: Warn) -> Iterator[Any]:
    """Decoded frames; a broken packet is left out and told, a broken container ends the reading."""
    from av.error import FFmpegError

    bad = 0
    reading = container.demux(stream)
    while True:
        try:
            packet = next(reading)
        except StopIteration:
            break
        except FFmpegError as error:
            warn(f"{path.name}: reading broke off ({error.strerror or error}); what came before is used")
            break
        try:
            yield from packet.decode()
        except FFmpegError:
            bad += 1
            if bad >= _MAX_BAD_PACKETS:
                break
    if bad:
        warn(f"{path.name}: {bad} broken packet(s) left out")


def _resampled(frames: Iterable[Any], path: Path, channels: int) -> Iterator[bytes]:
    """Frames as s16 16 kHz; a stream may change its rate or layout on the way, with several channels not
    their number, for each is somebody."""
    from av import AudioResampler

    resampler, shape = None, None
    for frame in frames:
        found = frame.layout.nb_channels
        if channels not in {1, found}:
            raise AudioError(f"{path}: {found} channels where it began with {channels}: split it there")
        now = (frame.format.name, frame.layout.name, found, frame.sample_rate)
        if resampler is None or now != shape:
            if resampler is not None:
                yield from _bytes(resampler.resample(None), channels)
            layout = "mono" if channels == 1 else frame.layout
            resampler, shape = AudioResampler("s16", layout, RATE), now
        yield from _bytes(resampler.resample(frame), channels)
    if resampler is not None:
        yield from _bytes(resampler.resample(None), channels)


def _bytes(frames: Iterable[Any], channels: int) -> Iterator[bytes]:
    for frame in frames:
        if frame.samples:
            yield bytes(frame.planes[0])[: 2 * channels * frame.samples]
