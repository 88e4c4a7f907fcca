"""The commands `bench speakers` and `bench meeting`, and their tables."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from clients.launch import Server

from . import meeting, report
from .speakers import Scores, Total, run, totals
from .speakers_refs import recordings
from .speakers_scores import Der

Open = Callable[[argparse.Namespace], AbstractAsyncContextManager[Server]]
Tell = Callable[[str], None]


def assemble(options: argparse.Namespace, tell: Tell) -> int:
    """`bench meeting`: write the six-voice meeting."""
    made = meeting.assemble(options.audio, options.seed, tell)
    meeting.write(made, options.out)
    who, away_s = meeting.absence(made.turns)
    people = len({turn.speaker for turn in made.turns})
    tell(
        f"{len(made.pcm) / 16_000:.0f} s, {people} people, {len(made.turns)} turns; {who} away {away_s:.0f} s"
    )
    return 0


async def score(options: argparse.Namespace, open_server: Open, tell: Tell) -> int:
    """`bench speakers`; 1 where a stream had a fault."""
    found = recordings(options.audio, options.select, tell)
    async with _server(options, open_server) as url:
        rows = await run(url, found, speed=options.speed, python=options.senko, tell=tell)
    sums = totals(rows, found)
    show(rows, sums)
    if options.json:
        body = {
            "bench": "speakers",
            "environment": report.environment(),
            "totals": [asdict(row) for row in sums],
            "recordings": [asdict(row) for row in rows],
        }
        report.write_json(options.json, body)
    faults = [f"{row.name}: {fault}" for row in rows for fault in row.faults]
    for fault in faults:
        tell(fault)
    return 1 if faults else 0


@asynccontextmanager
async def _server(options: argparse.Namespace, open_server: Open) -> AsyncIterator[str | None]:
    if options.no_live:
        yield None
        return
    async with open_server(options) as server:
        yield server.url


def show(rows: Sequence[Scores], sums: Sequence[Total]) -> None:
    """Print a line for each recording and system, and one for each system."""
    console = Console(highlight=False)
    table = Table(title="Recordings (DER %: missed + false alarm + confusion)", title_justify="left")
    for name in (
        "recording",
        "system",
        "DER",
        "m + f + c",
        "DER .25",
        "JER",
        "count",
        "cp",
        "WER",
        "revised",
    ):
        table.add_column(name, overflow="fold")
    for row in sorted(rows, key=lambda row: row.name):
        table.add_row(
            row.name.rpartition("/")[2],
            row.system,
            _percent(row.strict.rate),
            _parts(row.strict),
            _percent(row.collar.rate) if row.collar.total else "-",
            _percent(row.jer),
            f"{row.count_error:+d}",
            _percent(row.cp.rate) if row.cp else "-",
            _percent(row.plain.rate) if row.plain else "-",
            str(row.revisions),
        )
    console.print(table)
    for row in rows:
        if row.back is not None:
            console.print(f"{row.name}, {row.system}: {_back(row.back)}")
    console.print(_sums(sums))


def _back(back: meeting.Return) -> str:
    known = "known again" if back.known else "NOT known again"
    return f"{back.speaker} away {back.away_s:.0f} s, {back.before} before, {back.after} after: {known}"


def _sums(sums: Sequence[Total]) -> Table:
    table = report.figures_table("All recordings", "", *(row.system for row in sums))
    lines: tuple[tuple[str, Callable[[Total], Any]], ...] = (
        ("DER, collar 0 %", lambda r: _percent(r.strict.rate)),
        ("  missed + false alarm + confusion", lambda r: _parts(r.strict)),
        ("DER, collar 0.25 %", lambda r: _percent(r.collar.rate)),
        ("mean of the recordings' DER, collar 0 %", lambda r: _percent(r.mean_der)),
        ("JER %", lambda r: _percent(r.jer)),
        ("worst speaker count error", lambda r: f"{r.worst_count:+d}"),
        ("cpWER %", lambda r: _percent(r.cp.rate) if r.cp.length else "-"),
        ("WER %", lambda r: _percent(r.plain.rate) if r.plain.length else "-"),
        ("cp minus plain", lambda r: _percent(r.cp.rate - r.plain.rate) if r.cp.length else "-"),
        ("revisions a minute", lambda r: report.number(r.revisions_per_minute)),
        ("words finally wrong, % of time", lambda r: _percent(r.frozen_wrong)),
        ("right label after word end p50, s", lambda r: report.number(r.delay.p50)),
        ("right label after word end p95, s", lambda r: report.number(r.delay.p95)),
        ("CPU of speakers, s per audio second", lambda r: report.number(r.cpu_s_per_audio_s, 3)),
    )
    for name, value in lines:
        table.add_row(name, *(value(row) for row in sums))
    return table


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.1f}"


def _parts(found: Der) -> str:
    parts = (found.missed, found.false_alarm, found.confusion)
    return " + ".join(_percent(part / max(found.total, 1e-9)) for part in parts)


def arguments(kinds: Any, kind: Callable[..., argparse.ArgumentParser], run: Any, write: Any) -> None:
    """Add both commands."""
    made = kind(kinds, "speakers", "who said what, against references", run)
    made.add_argument("--select", default="conversations/ami/", help="parts of paths (default %(default)s)")
    made.add_argument("--speed", type=float, default=1.0, help="of the live stream, times real time")
    made.add_argument("--no-live", action="store_true", help="leave the server out: linker and bound alone")
    made.add_argument("--senko", type=Path, metavar="PYTHON", help="a Python in which senko is installed")
    about = "write a meeting of six voices with exact references"
    parser: argparse.ArgumentParser = kinds.add_parser("meeting", help=about, description=about)
    parser.add_argument(
        "--audio", type=Path, required=True, metavar="DIR", help="a folder with a MANIFEST.tsv"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write it")
    parser.add_argument("--seed", type=int, default=1)
    parser.set_defaults(run=write, json=None)
