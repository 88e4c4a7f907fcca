"""What a scenario says and what must come back: audio whose words under the scripted engine are known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clients.captions import Captions
from engine.fake import SLOT, word
from streaming.wire.messages import CLOCK_RATE, AudioFormat, Start, Track

SLACK = SLOT
"""Samples at the end of what arrived in which a word may be heard or not."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`data` is in the format of `start`, s16le; `slots` tells for each track which half seconds are loud,
    None where nobody knows the words."""

    start: Start
    data: bytes
    slots: tuple[str, ...] | None
    reference: tuple[str, ...] = ()
    """The words of a run without faults, where it alone tells them."""

    @property
    def stride(self) -> int:
        """Bytes of one sample of all channels."""
        return 2 * self.start.audio.channels

    @property
    def seconds(self) -> float:
        return len(self.data) / (self.stride * self.start.audio.sample_rate)

    def after(self, sample: int) -> bytes:
        """The audio from the first sample at or after `sample` (16 kHz clock)."""
        return self.data[-(-sample * self.start.audio.sample_rate // CLOCK_RATE) * self.stride :]


def draw(drawn: random.Random, least_s: float = 8.0, most_s: float = 25.0) -> Scene:
    """Talk and pauses, alone or with two on tracks, at any usual rate."""
    count = round(2 * drawn.uniform(least_s, most_s))
    rate = drawn.choice([8_000, 16_000, 16_000, 16_000, 44_100, 48_000])
    slots = tuple(_talk(drawn, count) for _ in range(drawn.choice([1, 1, 1, 2])))
    tracks = tuple(Track(f"Voice {n}") for n in range(len(slots))) if len(slots) > 1 else ()
    samples = np.stack([_hum(line, rate) for line in slots], axis=1)
    start = Start(audio=AudioFormat(sample_rate=rate, channels=len(slots)), tracks=tracks)
    return Scene(start, samples.tobytes(), slots)


def _talk(drawn: random.Random, count: int) -> str:
    line = ""
    while len(line) < count:
        line += "x" * drawn.randint(1, 9) + "." * drawn.randint(1, 5)
    return line[:count]


def _hum(slots: str, rate: int) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    size = SLOT * rate // CLOCK_RATE
    voiced = np.repeat([slot == "x" for slot in slots], size)
    hum = np.sin(2 * np.pi * 200 * np.arange(len(voiced)) / rate)
    return np.asarray(10_000 * hum * voiced, "<i2")


def breaches(scene: Scene, captions: Captions, *, whole: bool = True) -> list[str]:
    """What was not kept of the promises: words never change (P1), every sample is accounted for (P4), nothing
    is missed over lost connections (P6). `whole`: all of the audio was sent and the end was said."""
    found = list(captions.faults)
    if captions.revised:
        found.append(f"{captions.revised} committed words were revised")
    receipt = captions.receipt
    if receipt is None:
        return [*found, "no receipt"]
    if captions.error is not None and whole:
        found.append(f"the server ended it: {captions.error.code}: {captions.error.message}")
    sent = len(scene.data) // scene.stride * CLOCK_RATE / scene.start.audio.sample_rate
    if not (abs(receipt.samples - sent) <= 1 if whole else receipt.samples <= sent + 1):
        found.append(f"the receipt covers {receipt.samples} of {sent:.0f} samples")
    if receipt.gap_samples:
        causes = sorted({str(span.cause) for span in receipt.spans if span.cover == "gap"})
        found.append(f"{receipt.gap_samples} samples are gaps: {', '.join(causes)}")
    for index, line in enumerate(scene.slots or ()):
        track = next(
            (t for key, t in captions.tracks.items() if key == index or len(scene.slots or ()) == 1), None
        )
        said = [w.text for w in track.words] if track is not None else []
        found += difference(line, said, None if whole else receipt.samples)
    return found


def difference(slots: str, said: Sequence[str], received: int | None = None) -> list[str]:
    """Words lost, doubled or changed of those that `slots` hold, of which `received` samples came (None:
    all)."""
    loud = [slot for slot, kind in enumerate(slots) if kind == "x"]
    truth = [word(slot).text for slot in loud]
    end = len(slots) * SLOT + SLACK if received is None else received
    most = sum(slot * SLOT < end for slot in loud)
    least = sum((slot + 1) * SLOT <= end - SLACK for slot in loud)
    if list(said) == truth[: len(said)] and least <= len(said) <= most:
        return []
    at = next(
        (n for n, (a, b) in enumerate(zip(said, truth, strict=False)) if a != b), min(len(said), len(truth))
    )
    return [
        f"{len(said)} words came, {least} to {most} were said; from word {at} on {list(said[at : at + 4])}"
        f" instead of {truth[at : at + 4]}"
    ]


def edits(truth: Sequence[str], said: Sequence[str]) -> int:
    """Words to insert, delete or replace in one to have the other."""
    row = list(range(len(said) + 1))
    for at, wanted in enumerate(truth, 1):
        last, row[0] = row[0], at
        for n, got in enumerate(said, 1):
            last, row[n] = row[n], min(row[n] + 1, row[n - 1] + 1, last + (wanted != got))
    return row[-1]
