"""`seamscribe voice add NAME FILE | list | delete NAME`: people who want to be recognized by their voice.

Exit status: 0 done, 1 it could not be done, 2 unusable settings or arguments.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from engine.contract import SAMPLE_RATE, Audio, EngineError, SpeakerEncoder, SpeakerTask, Vector
from streaming.audio.container import file_samples
from streaming.kept.voices import VoiceError, VoiceStore
from streaming.wire.errors import ProtocolError

from .app import open_encoder
from .errors import SettingsError
from .settings import Settings, load, voices_folder

MOST_S = 60.0
"""More of a file is not used."""
ALONE_S = 1.5
"""So much of a voice alone tells whether it is the same as another."""

KEPT = (
    "kept: the name, {dimension} numbers computed from the voice by {model}, and the length of the audio,"
    " readable by you alone; no audio. Such numbers tell a person's voice apart: enrol only who agreed."
    " Undo: seamscribe voice delete"
)


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    arguments = _parser().parse_args(argv)
    try:
        settings = load(arguments.config)
        store = VoiceStore(voices_folder(settings))
        match arguments.action:
            case "add":
                return asyncio.run(_add(store, settings, arguments.name, arguments.file))
            case "delete":
                store.delete(arguments.name)
                _say(f"deleted {arguments.name!r}: its file is gone")
            case _:
                _list(store)
    except SettingsError as error:
        _say(str(error))
        return 2
    except (VoiceError, EngineError) as error:
        _say(str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seamscribe voice", description="Voices that sessions may recognize (start.voices)."
    )
    parser.add_argument("--config", type=Path, metavar="F", help="a TOML file of settings")
    actions = parser.add_subparsers(dest="action", required=True, metavar="add|list|delete")
    add = actions.add_parser("add", help="enrol a voice from a recording of it alone, 10 to 60 s are best")
    add.add_argument("name", metavar="NAME")
    add.add_argument("file", metavar="FILE", type=Path)
    actions.add_parser("list", help="who is enrolled")
    actions.add_parser("delete", help="forget a voice").add_argument("name", metavar="NAME")
    return parser


async def _add(store: VoiceStore, settings: Settings, name: str, file: Path) -> int:
    audio = await asyncio.to_thread(_read, file)
    encoder = await asyncio.to_thread(open_encoder, settings)
    try:
        vector = await embedded(encoder, audio)
        path = store.add(name, vector, len(audio) / SAMPLE_RATE, encoder.traits)
    finally:
        await encoder.close()
    _say(f"enrolled {name!r} from {len(audio) / SAMPLE_RATE:.1f} s, in {path}")
    _say(KEPT.format(dimension=encoder.traits.dimension, model=encoder.traits.model))
    return 0


async def embedded(encoder: SpeakerEncoder, audio: Audio) -> Vector:
    """The vector of the voice in `audio`; raises `VoiceError` where there is too little of it, or two voices
    that do not sound like one person."""
    vector = await encoder.embed(audio)
    if vector is None:
        raise VoiceError("too little speech in it: use 10 s or more of the voice alone")
    heard: list[Vector] = []
    window = int(encoder.traits.window_s * SAMPLE_RATE)
    for start in range(0, len(audio), window):
        task = SpeakerTask(f"enrol-{start}", "enrol", audio[start : start + window], start)
        for voice in (await encoder.voices(task)).speakers:
            if voice.vector is not None and voice.alone >= ALONE_S * SAMPLE_RATE:
                heard.append(voice.vector)
    alike = min((float(one @ other) for one, other in combinations(heard, 2)), default=1.0)
    if alike < encoder.traits.same:
        raise VoiceError(
            f"not all of it sounds like one person (similarity {alike:.2f}, less than"
            f" {encoder.traits.same:g}): use a recording of the voice alone"
        )
    return vector


def _read(file: Path) -> Audio:
    most, pieces = int(MOST_S * SAMPLE_RATE), list[Audio]()
    try:
        with file.open("rb") as recording:
            for piece in file_samples(recording):
                pieces.append(piece[:, 0])
                if sum(map(len, pieces)) > most:
                    _say(f"{file.name}: only the first {MOST_S:g} s are used")
                    break
    except OSError as error:
        raise VoiceError(f"{file}: {error.strerror or error}") from None
    except ProtocolError as error:
        raise VoiceError(f"{file}: {error.message}") from None
    return np.concatenate(pieces)[:most]


def _list(store: VoiceStore) -> None:
    voices = store.list()
    for voice in voices:
        what = f"unusable: {voice.fault}" if voice.fault else f"{voice.seconds:.1f} s, {voice.model}"
        sys.stdout.write(f"{voice.name}\t{what}\n")
    if not voices:
        _say(f"nobody is enrolled in {store.folder}")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
