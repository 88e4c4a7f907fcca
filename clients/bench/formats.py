"""`bench formats`: every file of a folder ends in text, or in one clear error."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from clients.aio import ClientError
from clients.audio import AudioError
from clients.play import Arrival, Pace, Playback, play
from clients.replay import open_source
from streaming.wire.messages import Start


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one file ended: exactly one of `text` and `error` is told; `faults` is neither."""

    name: str
    text: str | None
    error: str | None
    warnings: tuple[str, ...]
    faults: tuple[str, ...]


async def try_file(url: str, path: Path, pace: Pace) -> Outcome:
    """Replay one file."""
    warnings: list[str] = []
    playback = Playback(path.name)
    try:
        source = open_source(path, path.name, warnings.append)
        await play(playback, url, Start(), source.pieces, pace, _ignore)
    except (AudioError, ClientError) as error:
        return Outcome(path.name, None, str(error), tuple(warnings), ())
    return Outcome(path.name, playback.captions.committed, None, tuple(warnings), tuple(playback.faults()))


def _ignore(playback: Playback, arrival: Arrival) -> None:
    """Only the end counts."""


def show(outcomes: list[Outcome]) -> None:
    """Print one line a file."""
    console = Console(highlight=False)
    table = Table("file", "ends in", "text or error", "remarks", title="Formats", title_justify="left")
    for outcome in outcomes:
        kind = "error" if outcome.error else "text" if outcome.text else "no speech"
        remarks = "; ".join((*outcome.warnings, *outcome.faults))
        table.add_row(outcome.name, kind, outcome.error or outcome.text or "", remarks)
    console.print(table)
