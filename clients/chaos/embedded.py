"""Scenarios with a real engine: real speech, whose words a run without faults tells."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from clients.audio import AudioError, load
from clients.recording import reading
from streaming.wire.messages import CLOCK_RATE, Start

from .scene import Scene
from .talk import Trial, converse

PIECE_S = 12
PIECES = 3
_SPEEDS = (1.0, 2.0)


class NoSpeech(Exception):
    """There is nothing to say; tells what to install."""


async def trials(url: str, engine: tuple[str, ...], *, model: bool) -> Callable[[], Trial]:
    """What makes the trials of a run: with a `model` they speak pieces of a recording, of which the server at
    `url` is asked the words first, once and undisturbed. Raises `NoSpeech`."""
    if not model:
        return Trial
    pieces = [await _asked(url, piece) for piece in _pieces()]

    def draw(drawn: random.Random, *_: float) -> Scene:
        return drawn.choice(pieces)

    return lambda: Trial(draw=draw, speeds=_SPEEDS, engine=engine)


def _pieces() -> list[Scene]:
    path = reading()
    try:
        if path is None:
            raise NoSpeech("no speech at hand: install seamscribe[demo]")
        data = load(path, lambda _: None).tobytes()
    except AudioError as error:
        raise NoSpeech(str(error)) from error
    size = 2 * CLOCK_RATE * PIECE_S
    return [Scene(Start(language="en"), data[at : at + size], None) for at in range(0, PIECES * size, size)]


async def _asked(url: str, piece: Scene) -> Scene:
    trial = Trial(speeds=(1.0,))
    captions = await converse(url, piece, random.Random(0), trial, flushes=False)
    if trial.faults:
        raise NoSpeech(f"the server fails without any fault of ours: {trial.faults[0]}")
    return replace(piece, reference=tuple(captions.committed.split()))
