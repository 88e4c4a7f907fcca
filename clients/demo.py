"""`seamscribe demo [FILE]`: the whole service in one command, on real speech.

Starts the real server with the real engine as a child process, plays a recording of two people to it in real
time, shows the captions, then the transcript, the receipt and the measured delays, and stops the server.
Exit status: 0 all of it worked, 1 a gap or a lost stream, 2 no speech to play, 3 the server did not start.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from streaming.wire.messages import Start
from streaming.wire.render import joined, paragraphs

from .arguments import language
from .audio import AudioError
from .delays import Delays, measure, own_times
from .launch import LaunchError, command, serving
from .play import Pace, Playback
from .recording import NoRecording, dialogue, reading
from .replay import (
    EXIT_FAULT,
    EXIT_FILE,
    EXIT_NO_SERVER,
    EXIT_OK,
    Source,
    open_source,
    report,
    run,
    say,
    transcript,
)
from .screen import coloured
from .stats import Summary, summarize

SET_UP_S = 600.0
"""How long fetching the networks that tell voices apart may take, the first time."""


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="seamscribe demo", description="Server, engine, speech and captions in one command."
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        help="audio to play (default: two people on the telephone, out of a package)",
    )
    parser.add_argument(
        "--model", metavar="M", help="weights: base, tiny.en, or a folder (default: the server's)"
    )
    parser.add_argument("--language", type=language, metavar="L", help="ISO 639 code; left out: detected")
    options = parser.parse_args(argv)
    try:
        path = options.file or recording()
        if path is None:
            say("no speech at hand: install seamscribe[demo] anew, or name a file: seamscribe demo FILE")
            return EXIT_FILE
        source = open_source(path, path.name, say)
        if not command(["weights", "speakers"], SET_UP_S):
            say("going on without telling voices apart")
        return asyncio.run(_demo(source, options.model, Start(language=options.language)))
    except AudioError as error:
        say(str(error))
        return EXIT_FILE
    except LaunchError as error:
        say(f"{error}\nWhat is installed and what is missing: seamscribe doctor")
        return EXIT_NO_SERVER
    except KeyboardInterrupt:
        say("stopped")
        return EXIT_FAULT


def recording() -> Path | None:
    """Two people where that can be had, else one; None where no recording is at hand."""
    try:
        return dialogue()
    except NoRecording as error:
        say(f"{error}; going on with a reading by one person")
        return reading()


async def _demo(source: Source, model: str | None, start: Start) -> int:
    say("starting the server and loading its weights ...")
    arguments = ["--engine", "local", *(["--model", model] if model else [])]
    playback = Playback(source.name)
    async with serving(arguments) as server:
        say(f"{server.url} is ready; playing {source.name} in real time")
        await run([source], [playback], server.url, start, Pace(), None)
    _show(playback)
    report([playback], say)
    if not playback.faults():
        return EXIT_OK
    for line in server.log:
        say(f"server: {line}")
    return EXIT_FAULT


def _show(playback: Playback) -> None:
    sys.stdout.write("\n")
    out = Console(highlight=False)
    if out.is_terminal:
        for part in paragraphs(playback.captions.ordered()):
            out.print(coloured(part.speaker, part.name, joined(part.words)), soft_wrap=True)
    else:
        sys.stdout.write(transcript(playback, "text"))
    sys.stdout.write("\n")
    sys.stdout.flush()
    console = Console(stderr=True, highlight=False)
    if ready := playback.captions.ready:
        console.print(f"engine {ready.engine}, model {ready.model}, at speed 1", markup=False)
    console.print(delay_table(measure(playback, own_times(playback))))


def delay_table(delays: Delays) -> Table:
    """The measured delays, in seconds, by the service's own word times."""
    table = Table(
        "seconds", "count", "mean", "p50", "p95", "max", title="Measured delays", title_justify="left"
    )
    for name, values in (
        ("first text after speech starts", delays.first_text),
        ("word committed after it was spoken", delays.commit),
        ("final after the pause is known", delays.final),
    ):
        table.add_row(name, *_cells(summarize(values)))
    return table


def _cells(summary: Summary) -> list[str]:
    figures = (summary.mean, summary.p50, summary.p95, summary.max)
    return [str(summary.count), *("-" if f is None else f"{f:.2f}" for f in figures)]
