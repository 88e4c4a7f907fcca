"""Enrolled voices: of each a name and a vector, in a file of its own, and nothing of the audio.

Vectors of two encoders do not compare, so each file names the encoder it is for. Files are written whole or
not at all and are readable by their owner only, for a vector tells a person's voice apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta, Struct

from engine.contract import SpeakerTraits, Vector
from streaming.access.naming import fit
from streaming.wire.errors import ProtocolError, shown

SUFFIX = ".voice"
VERSION = 1
MOST_BYTES = 1 << 20
"""A larger file is no voice of ours."""


class VoiceError(Exception):
    """A voice cannot be kept, read or found; the message names the remedy."""


class Voice(Struct, frozen=True, forbid_unknown_fields=True):
    """What a file holds, as JSON."""

    version: int
    name: str
    model: str
    """The encoder that made the vector."""
    dimension: int
    seconds: Annotated[float, Meta(ge=0)]
    """Length of the audio it was made from; the audio itself is not kept."""
    vector: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Enrolled:
    """One line of the list: a voice, or a file that is none (`fault`)."""

    name: str
    seconds: float = 0.0
    model: str = ""
    fault: str | None = None


class VoiceStore:
    """The voices in one folder. Blocking: small files, read when a session begins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, vector: Vector, seconds: float, traits: SpeakerTraits) -> Path:
        """Keep a voice; returns its file. Raises `VoiceError`, for a name that is taken too."""
        name = _fitting(name)
        path = self._path(name)
        if path.exists():
            raise VoiceError(f"{name!r} is enrolled already: delete it first (seamscribe voice delete)")
        voice = Voice(VERSION, name, traits.model, traits.dimension, seconds, tuple(float(x) for x in vector))
        _check(voice, traits)
        data = msgspec.json.format(msgspec.json.encode(voice), indent=1)
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(path, data)
        except OSError as error:
            raise VoiceError(
                f"cannot write below {self.folder}: {error.strerror}: set encoder.voices to another folder"
            ) from error
        return path

    def list(self) -> Sequence[Enrolled]:
        """All that is enrolled, by name, whatever encoder it is for; broken files say so."""
        try:
            paths = sorted(self.folder.glob(f"*{SUFFIX}"))
        except OSError as error:
            raise VoiceError(f"cannot read {self.folder}: {error.strerror}") from error
        return sorted(map(_enrolled, paths), key=lambda voice: voice.name)

    def delete(self, name: str) -> None:
        """Forget a voice; raises `VoiceError` where there is none of that name."""
        name = _fitting(name)
        try:
            self._path(name).unlink()
        except FileNotFoundError:
            raise VoiceError(f"{name!r} is not enrolled: see seamscribe voice list") from None
        except OSError as error:
            raise VoiceError(f"cannot delete {name!r}: {error.strerror}") from error

    def load(self, names: Iterable[str], traits: SpeakerTraits) -> dict[str, Vector]:
        """The vectors of `names` for this encoder; raises `ProtocolError` on the field `voices`, naming the
        voice and the remedy."""
        return {name: self._load(name, traits) for name in names}

    def _load(self, name: str, traits: SpeakerTraits) -> Vector:
        try:
            path = self._path(_fitting(name))
            if not path.is_file():
                raise ProtocolError(
                    "unknown_voice",
                    f"voices: {shown(name)!r} is not enrolled here: leave it out, or have the operator enrol"
                    " it with `seamscribe voice add`",
                    field="voices",
                )
            voice = _read(path)
            _check(voice, traits)
        except VoiceError as error:
            raise ProtocolError(
                "unusable_voice",
                f"voices: {shown(name)!r} cannot be used: {error}: leave it out, or have the operator enrol"
                " it again",
                field="voices",
            ) from error
        return np.asarray(voice.vector, dtype=np.float32)

    def _path(self, name: str) -> Path:
        # Names hold any character and may be longer than a file system takes.
        return self.folder / _file_of(name)


def _file_of(name: str) -> str:
    return f"{hashlib.sha256(name.encode()).hexdigest()[:32]}{SUFFIX}"


def _fitting(name: str) -> str:
    try:
        return fit(name)
    except ValueError as error:
        raise VoiceError(f"NAME {error}") from None


def _enrolled(path: Path) -> Enrolled:
    try:
        voice = _read(path)
    except VoiceError as error:
        return Enrolled(path.name, fault=str(error))
    return Enrolled(voice.name, voice.seconds, voice.model)


def _read(path: Path) -> Voice:
    if not path.is_file():  # a pipe would be waited for
        raise VoiceError("it is no file")
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        voice = msgspec.json.decode(data, type=Voice)
    except OSError as error:
        raise VoiceError(f"its file cannot be read ({error.strerror})") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise VoiceError("its file is damaged or of another program") from None
    if voice.version != VERSION:
        raise VoiceError(f"its file is of version {voice.version}, this server reads {VERSION}")
    if path.name != _file_of(_fitting(voice.name)):
        raise VoiceError(f"its file is the voice of {shown(voice.name)!r} under another name")
    return voice


def _check(voice: Voice, traits: SpeakerTraits) -> None:
    if (voice.model, voice.dimension) != (traits.model, traits.dimension):
        raise VoiceError(
            f"it was enrolled with the encoder {voice.model} ({voice.dimension} numbers), this server has"
            f" {traits.model} ({traits.dimension})"
        )
    length = float(np.linalg.norm(np.asarray(voice.vector, dtype=np.float64)))
    if len(voice.vector) != voice.dimension or not abs(length - 1.0) < 0.01:
        raise VoiceError(f"its vector is damaged ({len(voice.vector)} numbers, length {length:.2f})")


def _write(path: Path, data: bytes) -> None:
    """All of it or nothing, for the owner alone."""
    handle, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)  # made with 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
