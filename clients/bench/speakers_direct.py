"""The live path without server and text: the same windows, encoder and linker, as fast as the machine goes.

Causal: what is heard at a moment depends on the audio before it alone. The offline bound clusters all
evidence of the same windows at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import thread_time

import numpy as np

from engine.contract import FRAME, SAMPLE_RATE, Audio, SpeakerWindow
from engine.detector import open_detector
from engine.speakers.encoder import open_encoder
from streaming.core.events import Turn
from streaming.core.listening import Listener, ListeningSettings
from streaming.core.speakers import Linker, LinkerSettings

from .speakers_refs import Spoken

FOREVER_S = 1e6
CELL_S = 0.1
"""Labels are compared in steps of this."""


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """All windows of one recording, in order."""

    windows: tuple[SpeakerWindow, ...]
    cpu_s: float
    """CPU of the encoder."""


@dataclass(frozen=True, slots=True)
class Linked:
    """What became of them."""

    turns: tuple[Spoken, ...]
    """As frozen; a voice nobody knows is a speaker by the name of "unknown"."""
    revisions: int
    """Times that a stretch which had a speaker got another."""
    count: int


async def listen(audio: Audio, settings: ListeningSettings) -> Heard:
    """Hear a recording (float32, 16 kHz) as a live stream: every window is answered before the next frame."""
    encoder, stream = open_encoder(), open_detector().open()
    listener, windows = Listener("bench", settings), []
    try:
        for at in range(0, len(audio) - FRAME + 1, FRAME):
            frame = audio[at : at + FRAME]
            listener.receive_audio(frame, stream.feed(frame))
            if at + 2 * FRAME > len(audio):
                listener.end()
            for task in listener.tasks_to_run():
                windows.append(await encoder.voices(task))
                listener.receive_answer(task.id)
    finally:
        await encoder.close()
    return Heard(tuple(windows), encoder.counters["speaker_cpu_s"])


def link(heard: Heard, seconds: float, settings: LinkerSettings) -> Linked:
    """The live linker over the windows."""
    end = round(seconds * SAMPLE_RATE)
    linker, revisions = Linker(replace(settings, remember_s=FOREVER_S)), 0
    shown: list[int | None] = []
    for window in heard.windows:
        linker.hear(window)
        now = _cells(linker, window.end)
        changed = [old is not None and old != new for old, new in zip(shown, now, strict=False)]
        revisions += sum(b and not a for a, b in zip([False, *changed], changed, strict=False))
        shown = now
    linker.freeze(end)
    return Linked(spoken(linker.turns(0, end)), revisions, linker.count)


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of telling the voices of one recording apart, as a live stream."""

    windows: int
    encoder_s: float
    """All windows."""
    linker_s: float
    slowest_s: float
    """The window that took the linker longest."""
    found: int
    """Speakers, of however many there are."""


async def cost(audio: Audio) -> Cost:
    """Hear a recording (float32, 16 kHz) with the server's own settings."""
    heard, linker = await listen(audio, ListeningSettings()), Linker(LinkerSettings())
    took = []
    for window in heard.windows:
        begun = thread_time()
        linker.hear(window)
        took.append(thread_time() - begun)
    return Cost(len(took), heard.cpu_s, sum(took), max(took, default=0.0), linker.count)


def _cells(linker: Linker, end: int) -> list[int | None]:
    cell = round(CELL_S * SAMPLE_RATE)
    return [linker.who(at, at + cell).speaker for at in range(0, end - cell + 1, cell)]


def whole(heard: Heard, seconds: float, settings: LinkerSettings) -> Linked:
    """All evidence clustered at once, nothing frozen: the bound for the live linker."""
    end = round(seconds * SAMPLE_RATE)
    linker = Linker(replace(settings, revise_s=FOREVER_S, remember_s=FOREVER_S))
    linker.hear(*heard.windows)
    return Linked(spoken(linker.turns(0, end)), 0, linker.count)


def spoken(turns: tuple[Turn, ...]) -> tuple[Spoken, ...]:
    """Turns in seconds."""
    return tuple(
        Spoken(
            turn.start / SAMPLE_RATE,
            turn.end / SAMPLE_RATE,
            "unknown" if turn.speaker is None else str(turn.speaker),
        )
        for turn in turns
    )


def as_float(pcm: np.ndarray[tuple[int, ...], np.dtype[np.int16]]) -> Audio:
    return (pcm.astype(np.float32) / 32768.0).astype(np.float32)
