"""`bench growth --against speakers`: what telling people apart costs, by how many there are.

Recordings of one length: as many of the corpus's readers as are wanted take turns, in an order of chance, an
utterance each, again and again. The encoder and the linker hear them as the server has them hear a stream.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from clients.audio import RATE, Warn

from .corpus import GAP_S, Clip, CorpusError, Row, join, read_manifest
from .growth_page import Curve, Plot
from .speakers_direct import Cost, as_float, cost

SELECT = "utterances_en/"


def people(rows: Sequence[Row], select: str) -> list[list[Row]]:
    """The utterances of each reader whose paths hold one of the parts of `select` (separated by commas), as
    far as the manifest says how long they are; who reads longest comes first."""
    mine: dict[str, list[Row]] = {}
    parts = [part.strip() for part in select.split(",") if part.strip()]
    for row in sorted(rows, key=lambda row: row.name):
        if any(part in row.name for part in parts) and row.speakers and row.text and row.duration_s > 0:
            mine.setdefault(row.speakers, []).append(row)
    return sorted(mine.values(), key=lambda said: -sum(row.duration_s for row in said))


def order(said: Sequence[Sequence[Row]], seconds: float, dice: random.Random) -> list[Row]:
    """Turns of all of them, at least `seconds` long: each person once before anybody speaks again, each
    utterance of a person before one comes again."""
    turns: list[Row] = []
    place = dict.fromkeys(range(len(said)), 0)
    while sum(row.duration_s for row in turns) < seconds:
        for person in dice.sample(range(len(said)), len(said)):
            turns.append(said[person][place[person] % len(said[person])])
            place[person] += 1
    return turns


def gathering(folder: Path, select: str, count: int, seconds: float, seed: int, warn: Warn) -> Clip:
    """A recording of exactly `seconds` by `count` people; raises `CorpusError` where there are fewer, or they
    do not all come to speak in that time."""
    said = people(read_manifest(folder), select)
    if len(said) < count:
        raise CorpusError(
            f"{folder} has utterances with a duration_s of {len(said)} people in {select}, not of {count}:"
            " select more, or take fewer people"
        )
    dice = random.Random(seed)
    turns = order(said[:count], seconds, dice)
    if sum(row.duration_s for row in turns[:count]) > seconds:
        raise CorpusError(f"--seconds {seconds:g} is too short for {count} people: take more")
    clip = join(f"{count} people", turns, lambda: dice.uniform(*GAP_S), warn)
    return Clip(clip.name, clip.pcm[: round(seconds * RATE)], "", clip.language)


async def measure(clip: Clip) -> Cost:
    return await cost(as_float(clip.pcm))


def curve(counts: Sequence[int], seconds: float, costs: Sequence[Cost]) -> Curve:
    """The costs of recordings of so many people, `seconds` each."""
    encoder = [1000 * one.encoder_s / seconds for one in costs]
    linker = [1000 * one.linker_s / max(one.windows, 1) for one in costs]
    rows = [
        (
            str(count),
            str(one.found),
            str(one.windows),
            f"{encode:.1f}",
            f"{1000 * one.encoder_s / max(one.windows, 1):.1f}",
            f"{link:.2f}",
            f"{1000 * one.slowest_s:.2f}",
            f"{1000 * one.linker_s / seconds:.2f}",
        )
        for count, one, encode, link in zip(counts, costs, encoder, linker, strict=True)
    ]
    places = tuple(map(str, counts))
    return Curve(
        "speakers",
        f"People in a recording of {seconds:g} s",
        (
            "people",
            "found",
            "windows",
            "encoder: CPU ms / audio s",
            "CPU ms / window",
            "linker: CPU ms / window",
            "most",
            "CPU ms / audio s",
        ),
        tuple(rows),
        (
            Plot("Encoder", "people", places, "CPU ms / audio s", tuple(encoder)),
            Plot("Linker", "people", places, "CPU ms / window", tuple(linker)),
        ),
    )
