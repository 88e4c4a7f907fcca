"""`seamscribe bench KIND`: reads the options, has one kind measure, and shows and keeps what it found.

Exit status: 0 the run is whole (and with --gate every target met), 1 it is not, 2 nothing to play,
3 no server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from time import process_time
from typing import Any

from clients.arguments import address, speed
from clients.launch import LaunchError, Server, serving
from clients.play import Pace
from engine.weights import DEFAULT_MODEL, WeightsError, find_weights
from streaming.wire.messages import Start

from . import (
    capacity,
    formats,
    growth_cli,
    kill,
    languages,
    load_cli,
    markdown,
    overload,
    report,
    soak,
    speakers_cli,
)
from .corpus import Clip, CorpusError, build
from .evaluate import Scored, evaluate
from .live import Played, plan, play_slots
from .meter import Meter, metering
from .offline import SETTINGS, Offline, weights_hash
from .peers import command as peers
from .tracks import deal, parts_of

EXIT_OK, EXIT_FAULT, EXIT_NOTHING, EXIT_NO_SERVER = 0, 1, 2, 3
READ_OFFLINE = frozenset({"live", "languages", "capacity"})
"""What the same weights make of the whole files stands beside the figures of these."""
SPOKEN = "languages/zh-,languages/ja-,languages/es-,languages/fr-"


def main(argv: Sequence[str]) -> int:
    """Run the command; returns its exit status."""
    options = parser().parse_args(argv)
    try:
        if options.json is not None:
            # A run lasts many minutes: find out now that its result cannot be kept.
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.touch()
        status: int = asyncio.run(options.run(options))
        return status
    except (CorpusError, WeightsError, OSError, ValueError) as error:
        tell(str(error))
        return EXIT_NOTHING
    except LaunchError as error:
        tell(str(error))
        return EXIT_NO_SERVER
    except KeyboardInterrupt:
        tell("stopped")
        return EXIT_FAULT


def tell(line: str) -> None:
    """A remark, beside the tables."""
    print(line, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="seamscribe bench", description="Measure the service from outside.")
    kinds = made.add_subparsers(required=True, metavar="KIND")
    live = _kind(kinds, "live", "streams at speed 1 against reference texts", _live)
    live.add_argument("--streams", type=int, default=1, help="how many at once (default 1)")
    live.add_argument(
        "--tracks", type=int, default=1, help="participants in each stream, a clip each (default 1)"
    )
    live.add_argument("--seconds", type=float, help="audio per stream; left out: every clip once")
    live.add_argument(
        "--select", default="en", help="librispeech, ljspeech, long, en; en:1688; parts of paths"
    )
    live.add_argument("--seed", type=int, default=1, help="of the gaps between joined utterances")
    live.add_argument("--pin-language", action="store_true", help="tell the server each clip's language")
    live.add_argument("--factor", type=float, default=1.0, help="widens the delay targets (several streams)")
    live.add_argument("--gate", action="store_true", help="exit with 1 when a target is missed")
    load_cli.arguments(kinds, _kind, _load)
    capacity.arguments(kinds, _kind, _capacity)
    peers.arguments(kinds, _kind, _peers)
    growth_cli.arguments(kinds, _kind, _growth)
    soak.arguments(kinds, _kind, _soak)
    spoken = _kind(kinds, "languages", "each language in its own script", _languages)
    spoken.add_argument("--select", default=SPOKEN)
    spoken.add_argument("--streams", type=int, default=1)
    spoken.add_argument("--speed", type=speed, default=1.0)
    spoken.add_argument("--pin-language", action="store_true")
    odd = _kind(kinds, "formats", "every file ends in text or a clear error", _formats)
    odd.add_argument("--folder", default="formats", help="inside --audio (default %(default)s)")
    odd.add_argument("--speed", type=speed, default=None, help="default max")
    killed = _kind(kinds, "kill", "what kill -9 of the server costs the words of live sessions", _kill)
    killed.add_argument("--select", default="librispeech", help="as for live; the longest clips are taken")
    killed.add_argument("--streams", type=int, default=4, help="sessions at once (default %(default)s)")
    killed.add_argument("--kills", type=int, default=3, help="in each run (default %(default)s)")
    killed.add_argument(
        "--seed", type=int, default=1, help="of the gaps between utterances, and of the kills"
    )
    killed.add_argument("--pin-language", action="store_true", help="tell the server each clip's language")
    overload.arguments(kinds, _kind, _overload)
    speakers_cli.arguments(kinds, _kind, _speakers, _meeting)
    kept = kinds.add_parser("table", help="kept runs of live and growth as Markdown")
    kept.set_defaults(run=_table, json=None)
    kept.add_argument(
        "runs", nargs="+", type=Path, metavar="F", help="what bench live or growth --json wrote"
    )
    return made


def _kind(kinds: Any, name: str, help: str, run: Any) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = kinds.add_parser(name, help=help, description=help)
    made.set_defaults(run=run)
    made.add_argument("--audio", type=Path, required=True, metavar="DIR", help="a folder with a MANIFEST.tsv")
    made.add_argument("--url", type=address, help="a running server; left out: one is started for the run")
    made.add_argument("--model", default=DEFAULT_MODEL, help="weights of both readings (default %(default)s)")
    made.add_argument("--json", type=Path, metavar="F", help="also write everything into F")
    if name in READ_OFFLINE:
        made.add_argument("--no-offline", action="store_true", help="leave the offline reading out")
    if name != "peers":
        made.add_argument(
            "--serve",
            action="append",
            default=[],
            metavar="ARG",
            help="passed to seamscribe serve instead of engine and model, as --serve=ARG; may repeat",
        )
    return made


@asynccontextmanager
async def server(options: argparse.Namespace) -> AsyncIterator[Server]:
    """The server under test; pid 0 where it is not our child and cannot be metered."""
    if options.url:
        yield Server(options.url, 0)
        return
    arguments = options.serve or ["--engine", "local"]
    if not options.serve:
        arguments += ["--model", options.model]
    tell(f"starting a server: {' '.join(arguments)}")
    async with serving(arguments) as child:
        yield child


def offline(options: argparse.Namespace, clips: Sequence[Clip]) -> list[Any]:
    """The offline reading of each clip, None where they are left out. Before the server runs: both want the
    whole machine."""
    if options.no_offline:
        return [None] * len(clips)
    reader = Offline(find_weights(options.model))
    readings = []
    for clip in clips:
        tell(f"offline: {clip.name}")
        readings.append(reader.read(clip, language=clip.language if options.pin_language else None))
    return readings


async def measured(
    options: argparse.Namespace, clips: Sequence[Clip], slots: Sequence[Sequence[Clip]], pace: Pace
) -> tuple[list[tuple[Clip, Scored]], Meter | None, dict[str, Any]]:
    """Read offline, play, score."""
    spoken = [part for clip in clips for part in parts_of(clip)]
    readings = dict(zip(map(id, spoken), offline(options, spoken), strict=True))

    def start(clip: Clip) -> Start:
        return Start(language=clip.language if options.pin_language else None)

    meter: Meter | None = None
    before = process_time()
    async with server(options) as target:
        if target.pid:
            async with metering(target.pid) as meter:
                played = await play_slots(target.url, slots, pace, start, tell)
        else:
            played = await play_slots(target.url, slots, pace, start, tell)
    audio_s = sum(clip.seconds for clip, _ in played)
    described = settings(options, played)
    # Both share the machine: what the bench itself took is not the server's, but it was not free.
    described["bench_cpu_s_per_audio_s"] = round((process_time() - before) / audio_s, 4)
    rows = [(clip, evaluate(clip, playback, readings[id(clip)])) for clip, playback in played]
    return rows, meter, described


def settings(options: argparse.Namespace, played: Played) -> dict[str, Any]:
    """What this run was, as far as the results depend on it."""
    found = report.told(options)
    ready = next((p.captions.ready for _, p in played if p.captions.ready), None)
    if ready is not None:
        found |= {"engine": ready.engine, "served_model": ready.model}
        found |= {"max_delay_ms": ready.max_delay_ms, "pause_ms": ready.pause_ms}
    if not options.no_offline:
        found |= {"weights": weights_hash(find_weights(options.model))[:16], "offline": SETTINGS}
    return found


async def _live(options: argparse.Namespace) -> int:
    clips: Sequence[Clip] = build(options.audio, options.select, options.seed, tell)
    if options.tracks != 1:
        clips = deal(clips, options.tracks)
    slots = plan(clips, options.streams, options.seconds)
    audio_s = max(sum(clip.seconds for clip in slot) for slot in slots)
    tell(f"{len(clips)} clips, {options.streams} at once: {audio_s / 60:.1f} minutes")
    used = [clip for clip in clips if any(clip is other for slot in slots for other in slot)]
    scored, meter, described = await measured(options, used, slots, Pace())
    rows = [row for _, row in scored]
    found = report.total(rows, meter)
    goals = report.targets(found, options.factor)
    report.show(rows, found, goals, described)
    if options.json:
        report.write_json(options.json, report.document("live", described, found, goals, rows))
    if found.failures or (options.gate and not all(goal.met for goal in goals)):
        return EXIT_FAULT
    return EXIT_OK


async def _load(options: argparse.Namespace) -> int:
    return EXIT_OK if await load_cli.run(options, server, tell) else EXIT_FAULT


async def _growth(options: argparse.Namespace) -> int:
    return EXIT_OK if await growth_cli.run(options, server, tell) else EXIT_FAULT


async def _soak(options: argparse.Namespace) -> int:
    return EXIT_OK if await soak.run(options, tell) else EXIT_FAULT


async def _languages(options: argparse.Namespace) -> int:
    clips = build(options.audio, options.select, 1, tell)
    slots = plan(clips, options.streams, None)
    scored, meter, described = await measured(options, clips, slots, Pace(speed=options.speed))
    rows = [(clip.language, row) for clip, row in sorted(scored, key=lambda pair: pair[0].name)]
    languages.show(rows)
    wrong = languages.wrong(rows)
    for line in wrong:
        tell(line)
    if options.json:
        scores = [row for _, row in rows]
        found = report.total(scores, meter)
        report.write_json(options.json, report.document("languages", described, found, [], scores))
    return EXIT_FAULT if wrong else EXIT_OK


async def _kill(options: argparse.Namespace) -> int:
    if options.url:
        raise ValueError("--url: kill starts its own servers, for it kills them")
    clips = sorted(build(options.audio, options.select, options.seed, tell), key=lambda clip: -clip.seconds)
    clips = clips[: options.streams]
    arguments = options.serve or ["--engine", "local", "--model", options.model]
    found = await kill.kill(
        clips, options.kills, options.seed, arguments, language=options.pin_language, tell=tell
    )
    kill.show(found)
    if options.json:
        body = {"bench": "kill", "environment": report.environment(), "outcome": asdict(found)}
        report.write_json(options.json, body)
    return EXIT_FAULT if found.faults or found.revised or found.gap_samples else EXIT_OK


async def _capacity(options: argparse.Namespace) -> int:
    return EXIT_OK if await capacity.run(options, tell) else EXIT_FAULT


async def _peers(options: argparse.Namespace) -> int:
    return EXIT_OK if await peers.run(options, tell) else EXIT_FAULT


async def _overload(options: argparse.Namespace) -> int:
    clips = sorted(build(options.audio, options.select, options.seed, tell), key=lambda clip: clip.seconds)
    clips = clips[: options.clips]
    async with server(options) as target, metering(target.pid) as meter:
        crowds = await overload.overload(
            overload.entrance(target.url),
            clips,
            options.times,
            options.seconds,
            lambda: meter.max_rss_mib or None,
            tell,
        )
    phases, goals = [overload.figures(crowd) for crowd in crowds], overload.goals(crowds)
    overload.show(phases, goals)
    if options.json:
        body = {"bench": "overload", "environment": report.environment(), "phases": phases}
        report.write_json(options.json, body | {"targets": [{**asdict(g), "met": g.met} for g in goals]})
    whole = not any(crowd.unclear for crowd in crowds)
    return EXIT_OK if whole and (not options.gate or all(goal.met for goal in goals)) else EXIT_FAULT


async def _speakers(options: argparse.Namespace) -> int:
    return await speakers_cli.score(options, server, tell)


async def _meeting(options: argparse.Namespace) -> int:
    return speakers_cli.assemble(options, tell)


async def _table(options: argparse.Namespace) -> int:
    try:
        print(markdown.page([json.loads(path.read_text(encoding="utf-8")) for path in options.runs]), end="")
    except KeyError as error:
        tell(f"neither a run of bench live nor of growth: it lacks {error}")
        return EXIT_NOTHING
    return EXIT_OK


async def _formats(options: argparse.Namespace) -> int:
    folder = options.audio / options.folder
    files = sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
    if not files:
        raise CorpusError(f"--audio {options.audio}: there is no file in its folder {options.folder}")
    outcomes = []
    async with server(options) as target:
        for path in files:
            outcomes.append(await formats.try_file(target.url, path, Pace(speed=options.speed)))
    formats.show(outcomes)
    if options.json:
        report.write_json(
            options.json,
            {"bench": "formats", "environment": report.environment(), "files": [asdict(o) for o in outcomes]},
        )
    return EXIT_FAULT if any(outcome.faults for outcome in outcomes) else EXIT_OK
