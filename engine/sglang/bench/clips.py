"""Speech for the load: utterances with their reference texts, or noise where none are at hand.

`python -m engine.sglang.bench.clips DATA OUT` packs some utterances of a data folder (`MANIFEST.tsv`) for
a machine that has none; the folder must not be committed.
"""

from __future__ import annotations

import csv
import re
import shutil
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from engine.contract import Audio

RATE = 16_000
_WORDS = re.compile(r"[a-z0-9']+")
_TABLE = "refs.tsv"


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One utterance; `text` is empty where nothing was said or nothing is known."""

    audio: Audio
    text: str

    @property
    def seconds(self) -> float:
        return len(self.audio) / RATE


def load_clips(folder: Path | None, *, shortest_s: float = 4.0, longest_s: float = 9.0) -> list[Clip]:
    """Utterances of `folder` (its `refs.tsv`: path, text) between two lengths; noise without a folder."""
    if folder is None or not (folder / _TABLE).is_file():
        random = np.random.default_rng(1)
        return [Clip((random.standard_normal(RATE * s) * 0.05).astype(np.float32), "") for s in (5, 6, 7, 8)]
    soundfile = import_module("soundfile")
    clips: list[Clip] = []
    for line in (folder / _TABLE).read_text("utf-8").splitlines():
        name, _, text = line.partition("\t")
        samples, rate = soundfile.read(folder / name, dtype="float32")
        if rate == RATE and samples.ndim == 1 and shortest_s <= len(samples) / RATE <= longest_s:
            clips.append(Clip(samples, text))
    if not clips:
        raise ValueError(f"{folder} holds no utterance between {shortest_s:g} and {longest_s:g} s")
    return clips


def joined(clips: list[Clip], seconds: float, count: int) -> list[Clip]:
    """`count` clips of exactly `seconds`: whole utterances in turn, then silence."""
    out: list[Clip] = []
    position = 0
    for _ in range(count):
        audio = np.zeros(round(seconds * RATE), np.float32)
        texts: list[str] = []
        at = 0
        while at + len(clips[position % len(clips)].audio) <= len(audio):
            clip = clips[position % len(clips)]
            audio[at : at + len(clip.audio)] = clip.audio
            at += len(clip.audio) + RATE // 4
            texts.append(clip.text)
            position += 1
        position += not texts
        out.append(Clip(audio, " ".join(texts).strip()))
    return out


def words(text: str) -> list[str]:
    """Comparable words: small letters and digits only."""
    return _WORDS.findall(text.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


def distance(reference: list[str], heard: list[str]) -> int:
    """Fewest words to insert, delete or replace."""
    row = list(range(len(heard) + 1))
    for i, expected in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, got in enumerate(heard, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (expected != got))
    return row[-1]


def pack(data: Path, target: Path, count: int = 40) -> int:
    """Copy up to `count` English utterances of 3 to 9 s from `data` to `target`; how many there were."""
    target.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with open(data / "MANIFEST.tsv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            path = data / row["path"]
            if (
                len(lines) < count
                and row["path"].endswith(".flac")
                and row["ref_text"]
                and "librispeech" in row["path"]
                and 3.0 <= float(row["duration_s"] or 0) <= 9.0
            ):
                shutil.copyfile(path, target / path.name)
                lines.append(f"{path.name}\t{row['ref_text']}")
    (target / _TABLE).write_text("\n".join(lines) + "\n", "utf-8")
    return len(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{pack(Path(sys.argv[1]), Path(sys.argv[2]))} utterances\n")
