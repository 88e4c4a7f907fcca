"""Recordings as browsers, phones and programs make them, written by PyAV's encoders."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any

import av
import numpy as np
import numpy.typing as npt

Samples = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to record."""

    container: str
    codec: str
    rate: int
    options: dict[str, str] = field(default_factory=dict)
    exact: bool = False
    """Whether the samples come out as they went in."""
    resumes: bool = False
    """Whether a part can be decoded without the ones before it."""


_FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof", "frag_duration": "200000"}
KINDS = {
    "webm": Kind("webm", "libopus", 48_000, {"live": "1", "cluster_time_limit": "500"}, resumes=True),
    "ogg": Kind("ogg", "libopus", 48_000, {"page_duration": "100000"}, resumes=True),
    "mp4": Kind("mp4", "aac", 48_000, _FRAGMENTS, resumes=True),
    "flac": Kind("flac", "flac", 16_000, exact=True, resumes=True),
    "mp3": Kind("mp3", "libmp3lame", 16_000, {"write_xing": "0"}, resumes=True),
    "aac": Kind("adts", "aac", 16_000, resumes=True),
    "wav": Kind("wav", "pcm_s16le", 16_000, exact=True),
    "aiff": Kind("aiff", "pcm_s16be", 16_000, exact=True),
    "caf": Kind("caf", "pcm_s16le", 16_000, exact=True),
    "au": Kind("au", "pcm_s16be", 16_000, exact=True),
}


class _Pipe(io.RawIOBase):
    """Cannot be gone back in, like what a recorder writes to."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)


def recorded(kind: str, samples: Samples, rate: int = 16_000) -> bytes:
    """`samples` (n,) or (n, channels) at `rate`, as that kind of recording; what seeks back to its header is
    written as to a file."""
    return muxed(KINDS[kind], audio_frames(samples.reshape(len(samples), -1), rate, 0))


def paused(kind: str, samples: Samples, starts: Iterable[float]) -> bytes:
    """The same samples (n,), at the recording's rate, at each of these seconds, and nothing between."""
    rate = KINDS[kind].rate
    parts = (audio_frames(samples.reshape(-1, 1), rate, round(start * rate)) for start in starts)
    return muxed(KINDS[kind], chain.from_iterable(parts), turn=False)


def muxed(kind: Kind, frames: Iterable[Any], *, turn: bool = True) -> bytes:
    """The frames, written; turned into the encoder's format and frames, or as they are."""
    target: Any = io.BytesIO() if kind.container in {"aiff", "caf"} else _Pipe()
    frames = iter(frames)
    first = next(frames)
    with av.open(target, "w", format=kind.container, options=kind.options) as container:
        stream: Any = container.add_stream(kind.codec, rate=kind.rate, layout=first.layout.name)
        size = stream.frame_size or 960
        turned = av.AudioResampler(stream.format, first.layout, kind.rate, frame_size=size)
        for frame in chain([first], frames):
            for part in turned.resample(frame) if turn else [frame]:
                container.mux(stream.encode(part))
        for part in turned.resample(None) if turn else []:
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))
    return bytes(target.data) if isinstance(target, _Pipe) else bytes(target.getvalue())


def audio_frames(samples: Samples, rate: int, start: int) -> Iterator[Any]:
    layout = {1: "mono", 2: "stereo"}[samples.shape[1]]
    for at in range(0, len(samples), 960):
        part = np.ascontiguousarray(samples[at : at + 960]).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(part, "s16", layout)
        frame.sample_rate, frame.pts = rate, start + at
        yield frame


@lru_cache(maxsize=64)
def tone(kind: str, seconds: float = 2.0, hertz: float = 440.0, channels: int = 1) -> bytes:
    """A tone of that length."""
    return recorded(kind, sine(seconds, hertz, channels))


def sine(seconds: float, hertz: float = 440.0, channels: int = 1, rate: int = 16_000) -> Samples:
    """(n, channels): each channel twice as high as the one before, as s16."""
    at = np.arange(round(seconds * rate)) / rate
    waves = [np.sin(2 * np.pi * hertz * 2**channel * at) for channel in range(channels)]
    return (np.stack(waves, axis=1) * 12_000).astype(np.int16)


def feeding(*messages: bytes) -> Callable[[], bytes]:
    """A `pull` that gives these, then the end."""
    rest = iter(messages)
    return lambda: next(rest, b"")


def packets(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
