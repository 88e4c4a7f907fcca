"""`seamscribe replay FILE...`: recorded files as live streams, one each, all at once; with --tracks as one
stream of several people.

Standard output holds the transcripts and nothing else; captions and remarks go to standard error.
Exit status: 0 every sample accounted for as text or silence, 1 a gap, a broken promise or a lost stream,
2 a file that cannot be read (or wrong arguments), 3 no server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from streaming.wire.messages import Options, Ready, Start
from streaming.wire.render import FORMATS, called, render

from . import asking
from .aio import DEFAULT_URL, ClientError, Unreachable
from .arguments import address, language, max_delay_s, packet_s, pause_s, speed, track_name
from .audio import AudioError, decode, duration_s
from .launch import LaunchError, serving
from .participants import open_participants, with_tracks
from .play import Arrival, Listener, Pace, Playback, play
from .screen import Screen

EXIT_OK, EXIT_FAULT, EXIT_FILE, EXIT_NO_SERVER = 0, 1, 2, 3

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """One readable file, already opened: its first samples are there."""

    name: str
    pieces: Iterator[bytes]
    length_s: float | None


def open_source(path: Path, name: str, say: Say) -> Source:
    """Decode the first piece, so that a file that gives nothing fails before a stream is opened for it."""
    pieces = decode(path, say)
    first = next(pieces)
    return Source(name, chain([first], pieces), duration_s(path))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="seamscribe replay",
        description="Play audio files as live streams, several at once, and print their transcripts.",
        epilog="Exit status: 0 complete, 1 gap or lost stream, 2 unreadable file, 3 no server.",
    )
    made.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="any format PyAV reads, or .pcm/.raw"
    )
    made.add_argument("--url", type=address, default=DEFAULT_URL, help="the server (default %(default)s)")
    made.add_argument("--speed", type=speed, default=1.0, help="times real time, or max (default 1.0)")
    made.add_argument(
        "--packet-ms", type=packet_s, default="100", help="audio in one packet (default %(default)s)"
    )
    made.add_argument("--format", choices=FORMATS, default="text")
    made.add_argument("--out", type=Path, metavar="DIR", help="write each transcript into DIR instead")
    made.add_argument(
        "--events", type=Path, metavar="F", help="write every message with its arrival, as JSON lines"
    )
    made.add_argument("--language", type=language, metavar="L", help="ISO 639 code; left out: detected")
    made.add_argument(
        "--max-delay", type=max_delay_s, metavar="S", help="seconds until a word is committed at the latest"
    )
    made.add_argument("--pause", type=pause_s, metavar="S", help="seconds of silence that end a segment")
    made.add_argument(
        "--tracks",
        action="store_true",
        help="one stream of several people: each channel of FILE is one, or each of several files",
    )
    made.add_argument(
        "--track-name",
        type=track_name,
        action="append",
        default=[],
        metavar="NAME",
        help="who is on the next track; repeat it in order",
    )
    made.add_argument(
        "--model-less",
        action="store_true",
        help="run it on a scripted engine of its own: tries files and transport without weights",
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    options = parser().parse_args(argv)
    pace = Pace(options.packet_ms, options.speed)
    start = Start(
        language=options.language,
        options=Options(max_delay_s=options.max_delay, pause_s=options.pause),
    )
    if options.track_name and not options.tracks:
        parser().error("--track-name needs --tracks")
    several = len(options.files) > 1 and not options.tracks
    if options.format in {"srt", "vtt"} and several and options.out is None:
        parser().error(f"several files as {options.format} need --out DIR, one file each")
    try:
        return asyncio.run(_replay(options, start, pace))
    except Unreachable as error:
        print(
            f"{error}\nStart one with: seamscribe serve    (or see it all at once: seamscribe demo)",
            file=sys.stderr,
        )
        return EXIT_NO_SERVER
    except LaunchError as error:
        say(str(error))
        return EXIT_NO_SERVER
    except BrokenPipeError:
        raise  # whoever read the transcript has left, and is not told anything
    except OSError as error:  # the events or the transcripts cannot be written
        say(f"{error.filename}: {error.strerror}")
        return EXIT_FILE
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return EXIT_FAULT


async def _replay(options: argparse.Namespace, start: Start, pace: Pace) -> int:
    if options.tracks:
        try:
            people = open_participants(options.files, options.track_name, say)
        except AudioError as error:
            say(str(error))
            return EXIT_FILE
        sources, unreadable = [Source(options.files[0].name, people.pieces, people.length_s)], 0
        start = with_tracks(start, people.tracks)
    else:
        sources, unreadable = open_sources(options.files, say)
    if not sources:
        return EXIT_FILE
    if options.out is not None:
        try_places(sources, options.format, options.out)
    async with AsyncExitStack() as stack:
        url = options.url
        if options.model_less:
            url = (await stack.enter_async_context(serving(["--engine", "fake"]))).url
        playbacks = [Playback(source.name) for source in sources]
        await run(sources, playbacks, url, start, pace, options.events)
        bodies = [await _body(playback, options.format, url) for playback in playbacks]
    write_transcripts(playbacks, bodies, options.format, options.out)
    report(playbacks, say)
    if any(playback.faults() for playback in playbacks):
        return EXIT_FAULT
    return EXIT_FILE if unreadable else EXIT_OK


def say(line: str) -> None:
    """A remark, beside the transcript."""
    print(line, file=sys.stderr)


def open_sources(paths: Sequence[Path], say: Say) -> tuple[list[Source], int]:
    """The readable files, and how many are not; each of those is told in one line."""
    sources: list[Source] = []
    for number, path in enumerate(paths, 1):
        twin = [p.name for p in paths].count(path.name) > 1
        try:
            sources.append(open_source(path, f"{number}-{path.name}" if twin else path.name, say))
        except AudioError as error:
            say(str(error))
    return sources, len(paths) - len(sources)


async def run(
    sources: Sequence[Source],
    playbacks: Sequence[Playback],
    url: str,
    start: Start,
    pace: Pace,
    events: Path | None,
) -> None:
    """Play all sources at once, with captions; raises `Unreachable` where no server is."""
    with ExitStack() as stack:
        screen = stack.enter_context(Screen(playbacks, [source.length_s for source in sources]))
        listen: Listener = screen.hear
        if events is not None:
            listen = both(screen.hear, event_writer(stack.enter_context(events.open("w", encoding="utf-8"))))
        await asyncio.gather(
            *(
                _play_one(playback, url, start, source.pieces, pace, listen)
                for source, playback in zip(sources, playbacks, strict=True)
            )
        )


async def _play_one(
    playback: Playback, url: str, start: Start, pieces: Iterator[bytes], pace: Pace, listen: Listener
) -> None:
    try:
        await play(playback, url, start, pieces, pace, listen)
    except Unreachable:
        raise
    except ClientError as error:
        # One refused stream is its own loss; the others go on.
        playback.failure = f"{error} ({'try again later' if error.retryable else error.code})"


def both(first: Listener, second: Listener) -> Listener:
    """One listener for two."""

    def listen(playback: Playback, arrival: Arrival) -> None:
        first(playback, arrival)
        second(playback, arrival)

    return listen


def event_writer(file: Any) -> Listener:
    """Writes one JSON line a message: seconds on the stream's clock, stream, message without its secrets."""

    def listen(playback: Playback, arrival: Arrival) -> None:
        message = arrival.message
        if isinstance(message, Ready):
            message = msgspec.structs.replace(message, token="", read_token="")
        line = {
            "at_s": round(arrival.at_s, 4),
            "stream": playback.name,
            "message": msgspec.to_builtins(message),
        }
        file.write(json.dumps(line, ensure_ascii=False) + "\n")

    return listen


def transcript(playback: Playback, format: str) -> str:
    """The final transcript in one of `FORMATS`."""
    captions = playback.captions
    segments = captions.ordered()
    if format != "json":
        return render(segments, format, recording=Path(playback.name).stem)
    return render(
        segments,
        "json",
        name=playback.name,
        session=captions.ready.session if captions.ready else None,
        language=captions.language,
        receipt=msgspec.to_builtins(captions.receipt),
        faults=playback.faults(),
    )


async def _body(playback: Playback, format: str, url: str) -> str:
    """The final transcript; RTTM as the server has it, for turns are heard by voice and not sent."""
    ready = playback.captions.ready
    if format == "rttm" and ready is not None and playback.captions.receipt is not None:
        try:
            return called(await asking.transcript(url, ready, format), Path(playback.name).stem)
        except ClientError as error:
            say(f"{playback.name}: its RTTM has segments in place of turns, for {error}")
    return transcript(playback, format)


def try_places(sources: Sequence[Source], format: str, folder: Path) -> None:
    """Make `folder` and see that the transcripts can be written into it; raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        place = _place(folder, source.name, format)
        there = place.exists()
        with place.open("a", encoding="utf-8"):
            pass
        if not there:
            place.unlink()


def _place(folder: Path, name: str, format: str) -> Path:
    return folder / f"{name}.{FORMATS[format].ending}"


def write_transcripts(
    playbacks: Sequence[Playback], bodies: Sequence[str], format: str, folder: Path | None
) -> None:
    """Into `folder`, one file each, or all to standard output."""
    for playback, body in zip(playbacks, bodies, strict=True):
        if folder is not None:
            _place(folder, playback.name, format).write_text(body, encoding="utf-8")
            continue
        if len(playbacks) > 1 and format == "text":
            print(f"== {playback.name}")
        sys.stdout.write(body)
    sys.stdout.flush()


def report(playbacks: Sequence[Playback], say: Say) -> None:
    """One line a stream: its receipt, or why it has none."""
    for playback in playbacks:
        receipt = playback.captions.receipt
        if receipt is not None:
            say(
                f"{playback.name}: receipt for {receipt.duration_ms / 1000:.2f} s: {receipt.words} words, "
                f"text {receipt.text_ms / 1000:.2f} s, silence {receipt.silence_ms / 1000:.2f} s, "
                f"gaps {receipt.gap_ms / 1000:.2f} s"
            )
            if not receipt.words:
                say(f"{playback.name}: no speech was found in it")
        if playback.resumes:
            say(f"{playback.name}: the connection broke {playback.resumes} times and was made again")
        for fault in playback.faults():
            say(f"{playback.name}: {fault}")
