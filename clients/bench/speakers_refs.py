"""Recordings with known speakers: turns from RTTM, words from STM. Files are named by the folder's manifest,
or lie beside the audio under its name."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

from clients.audio import RATE, Warn, load

from .corpus import MANIFEST, CorpusError, Pcm


@dataclass(frozen=True, slots=True)
class Spoken:
    """One person heard in [start_s, end_s)."""

    start_s: float
    end_s: float
    speaker: str
    text: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """What is played and what is true of it."""

    name: str
    pcm: Pcm
    language: str
    turns: tuple[Spoken, ...]
    """Exact activity; overlapping turns are overlapped speech."""
    utterances: tuple[Spoken, ...] = field(default=())
    """With their words; empty where nobody wrote them down."""

    @property
    def seconds(self) -> float:
        return len(self.pcm) / RATE

    @property
    def speakers(self) -> set[str]:
        return {turn.speaker for turn in self.turns}


def read_rttm(path: Path) -> tuple[Spoken, ...]:
    """The turns of an RTTM file, by start; raises `CorpusError` naming the line that is none."""
    return parse_rttm(path.read_text(encoding="utf-8"), str(path))


def parse_rttm(text: str, name: str) -> tuple[Spoken, ...]:
    """The turns of the RTTM called `name`, by start; raises `CorpusError` naming the line that is none."""
    turns = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split()
        if not cells or cells[0] != "SPEAKER":
            continue
        try:
            start, length = float(cells[3]), float(cells[4])
            turns.append(Spoken(start, start + length, cells[7]))
        except (IndexError, ValueError):
            raise CorpusError(f"{name}:{number} is no RTTM line: {line[:60]!r}") from None
    return tuple(sorted(turns, key=lambda turn: (turn.start_s, turn.end_s)))


def read_stm(path: Path) -> tuple[Spoken, ...]:
    """The utterances of an STM file, by start; raises `CorpusError` naming the line that is none."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        cells = line.split(None, 5)
        if not cells or cells[0].startswith(";"):
            continue
        try:
            start, end = float(cells[3]), float(cells[4])
            text = cells[5] if len(cells) > 5 else ""
        except (IndexError, ValueError):
            raise CorpusError(f"{path}:{number} is no STM line: {line[:60]!r}") from None
        if text.startswith("<"):
            text = text.partition(">")[2]
        found.append(Spoken(start, end, cells[2], text.strip()))
    return tuple(sorted(found, key=lambda turn: (turn.start_s, turn.end_s)))


def recordings(folder: Path, select: str, warn: Warn) -> list[Recording]:
    """The recordings under `folder` with an RTTM whose path holds one of the parts of `select` (separated by
    commas); raises `CorpusError` where there is none."""
    parts = [part.strip() for part in select.split(",") if part.strip()]
    if (folder / MANIFEST).is_file():
        with (folder / MANIFEST).open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        named = [
            (folder / row["path"], _references(folder, row.get("ref_path") or ""), row.get("lang") or "en")
            for row in rows
        ]
    else:
        audio = sorted(p for p in folder.iterdir() if p.suffix in {".flac", ".wav"})
        named = [(p, [p.with_suffix(".rttm"), p.with_suffix(".stm")], "en") for p in audio]
    found = []
    for path, references, language in named:
        rttm = next((r for r in references if r.suffix == ".rttm" and r.is_file()), None)
        name = path.relative_to(folder).as_posix()
        if rttm is None or not path.is_file() or not any(part in name for part in parts):
            continue
        stm = next((r for r in references if r.suffix == ".stm" and r.is_file()), None)
        words = read_stm(stm) if stm is not None else ()
        found.append(Recording(name, load(path, warn), language, read_rttm(rttm), words))
    if not found:
        raise CorpusError(f"--select {select}: no recording with an RTTM in {folder} fits")
    return found


def _references(folder: Path, cell: str) -> list[Path]:
    """The tightest RTTM first: others carry one more dot in their names."""
    paths = [folder / part.strip() for part in cell.split(";") if part.strip()]
    return sorted(paths, key=lambda path: path.name.count("."))
