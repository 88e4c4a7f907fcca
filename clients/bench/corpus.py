"""What is played: recordings with reference texts, named by a folder's `MANIFEST.tsv`.

Short utterances are joined into streams of a minute and more, so that a session meets pauses of many
lengths and the references stay exact. The gaps come from a fixed seed: the same clip every time.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clients.audio import RATE, AudioError, Warn, load

MANIFEST = "MANIFEST.tsv"
GAP_S = (0.3, 1.5)
READING_GAP_S = 0.4
"""Between the parts of one contiguous reading: what a narrator leaves between clauses."""

Pcm = npt.NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Row:
    """One recording of the manifest; `text` is empty where nobody speaks."""

    path: Path
    name: str
    duration_s: float
    """0 where the manifest does not say."""
    language: str
    speakers: str
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One stream to play: mono 16 kHz samples and what is said in them."""

    name: str
    pcm: Pcm
    reference: str
    language: str

    @property
    def seconds(self) -> float:
        return len(self.pcm) / RATE


class CorpusError(Exception):
    """The folder or the selection gives nothing to play."""


def read_manifest(folder: Path) -> list[Row]:
    """All recordings that the folder's manifest names and that are there; raises `CorpusError`."""
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise CorpusError(
            f"--audio {folder}: holds no {MANIFEST}: write one (tab-separated, at least path and ref_text)"
        )
    with manifest.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, delimiter="\t")
        if "path" not in (reader.fieldnames or ()):
            raise CorpusError(f"{manifest}: its first line names no column path: separate names by tabs")
        return [row for row in (_row(folder, r) for r in reader) if row]


def _row(folder: Path, cells: dict[str, str]) -> Row | None:
    path = folder / cells["path"]
    if not path.is_file():
        return None
    text, reference = cells.get("ref_text") or "", cells.get("ref_path") or ""
    # Several references (speaker turns, words) may stand in one cell; only plain text is one of ours.
    if not text and reference.endswith(".txt") and (folder / reference).is_file():
        text = (folder / reference).read_text(encoding="utf-8")
    return Row(
        path=path,
        name=cells["path"],
        duration_s=_seconds(folder, cells),
        language=cells.get("lang") or "",
        speakers=cells.get("speakers") or "",
        text=" ".join(text.split()),
    )


def _seconds(folder: Path, cells: dict[str, str]) -> float:
    text = cells.get("duration_s") or "0"
    try:
        return float(text)
    except ValueError:
        raise CorpusError(
            f"{folder / MANIFEST}: {cells['path']}: duration_s: {text!r} is no number of seconds"
        ) from None


def join(name: str, rows: Iterable[Row], gap_s: Callable[[], float], warn: Warn) -> Clip:
    """Recordings one after the other with `gap_s()` seconds of silence between; raises `AudioError`."""
    pieces: list[Pcm] = []
    texts: list[str] = []
    language = ""
    for row in rows:
        if pieces:
            pieces.append(np.zeros(round(gap_s() * RATE), dtype=np.int16))
        pieces.append(load(row.path, warn))
        texts.append(row.text)
        language = row.language
    return Clip(name, np.concatenate(pieces), " ".join(texts), language)


def _librispeech(rows: list[Row], seed: int, warn: Warn) -> list[Clip]:
    mine = sorted((r for r in rows if "librispeech" in r.name), key=lambda r: (r.speakers, r.name))
    rng = random.Random(seed)
    return [
        join(f"librispeech {speaker}", group, lambda: rng.uniform(*GAP_S), warn)
        for speaker, group in groupby(mine, key=lambda r: r.speakers)
    ]


def _ljspeech(rows: list[Row], seed: int, warn: Warn) -> list[Clip]:
    mine = sorted((r for r in rows if "/LJ001-" in r.name), key=lambda r: r.name)
    return [join("ljspeech LJ001", mine, lambda: READING_GAP_S, warn)] if mine else []


def _long(rows: list[Row], seed: int, warn: Warn) -> list[Clip]:
    return _each([r for r in rows if r.name.startswith("long/") and r.text], warn)


def _each(rows: list[Row], warn: Warn) -> list[Clip]:
    clips = []
    for row in rows:
        try:
            clips.append(join(row.name, [row], lambda: 0.0, warn))
        except AudioError as error:
            warn(str(error))
    return clips


_RECIPES: dict[str, tuple[Callable[[list[Row], int, Warn], list[Clip]], ...]] = {
    "librispeech": (_librispeech,),
    "ljspeech": (_ljspeech,),
    "long": (_long,),
    "en": (_librispeech, _ljspeech, _long),
}


def build(folder: Path, select: str, seed: int, warn: Warn) -> list[Clip]:
    """The clips of `select`: recipe names or parts of a path, separated by commas.

    Recipes: librispeech, ljspeech, long, en (these three); `librispeech:1688` takes those of its clips whose
    name holds 1688. Anything else picks each recording with a reference whose path holds it. Raises
    `CorpusError`, also when a word selects nothing.
    """
    rows = read_manifest(folder)
    clips: list[Clip] = []
    for word in filter(None, (part.strip() for part in select.split(","))):
        recipes, _, part = word.partition(":")
        if recipes in _RECIPES:
            made = [clip for recipe in _RECIPES[recipes] for clip in recipe(rows, seed, warn)]
            found = [clip for clip in made if part in clip.name]
        else:
            found = _each([r for r in rows if word in r.name and r.text], warn)
        if not found:
            raise CorpusError(
                f"--select {word}: nothing in {folder / MANIFEST} fits: use {', '.join(_RECIPES)} or part of"
                " a path there"
            )
        clips += found
    if not clips:
        raise CorpusError(f"--select {select!r}: names nothing: use {', '.join(_RECIPES)} or parts of paths")
    return clips
