"""`bench kill`: what kill -9 of the server costs the words of live sessions.

The same clips are played as sessions at once three times: undisturbed, undisturbed again (what is decoded
when depends on the load, so two such runs differ as well), and with the server killed in their middle and
started anew on its journal. Words are compared without case and punctuation.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic

import jiwer
from rich.console import Console

from clients.chaos.machine import Machine, machine
from clients.play import Pace, Playback, play
from streaming.wire.messages import Start

from .corpus import Clip
from .report import figures_table, show_faults
from .scoring import Errors, bare, score

NEAR_S = 10.0
"""What differs so near a cut counts as the cut's; further away nothing of it is left in a window."""

EDGE_S, APART_S = 8.0, 15.0
"""Cuts keep so far from both ends of the shortest clip, and from each other."""

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Cut:
    """One session at one kill: where its audio stood, and words that differ from the undisturbed run within
    `NEAR_S` of there, in the killed run and in the second undisturbed one."""

    clip: str
    at_s: float
    apart: int
    undisturbed: int
    words: int
    """Of the undisturbed run, there."""
    heard: str
    """What the killed run says there, and what the undisturbed one says."""
    plain: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """All sessions of one seed."""

    cuts: list[Cut]
    references: tuple[Errors, Errors, Errors]
    """Against the reference texts: undisturbed, undisturbed again, killed."""
    apart: Errors
    """The killed run against the undisturbed one, of all of the audio."""
    floor: Errors
    """The second undisturbed run against the first."""
    resumes: int
    revised: int
    gap_samples: int
    away_s: list[float]
    """How long the server was away, by kill."""
    faults: list[str]


@dataclass(slots=True)
class _Run:
    playbacks: list[Playback]
    cuts: list[list[float]]
    """Of each kill the seconds of audio that each session had sent."""
    away_s: list[float]


def moments(clips: Sequence[Clip], kills: int, seed: int) -> list[float]:
    """When to kill, seconds from the start, in order; raises ValueError where the clips are too short."""
    span = min(clip.seconds for clip in clips) - 2 * EDGE_S - APART_S * (kills - 1)
    if span <= 0:
        raise ValueError(f"{kills} kills do not fit into the shortest clip: fewer --kills, or longer clips")
    drawn = sorted(random.Random(seed).uniform(0, span) for _ in range(kills))
    return [EDGE_S + at + APART_S * number for number, at in enumerate(drawn)]


async def kill(
    clips: Sequence[Clip], kills: int, seed: int, arguments: Sequence[str], *, language: bool, tell: Tell
) -> Outcome:
    """Three runs of `seamscribe serve ARGUMENTS`; raises `LaunchError` and ValueError."""
    at = moments(clips, kills, seed)
    runs = []
    for name, when in (("undisturbed", []), ("undisturbed again", []), ("killed", at)):
        tell(f"{len(clips)} sessions, {max(clip.seconds for clip in clips):.0f} s, {name}")
        runs.append(await _run(clips, when, arguments, language=language))
    return compare(clips, [run.playbacks for run in runs], runs[2].cuts, runs[2].away_s)


async def _run(
    clips: Sequence[Clip], moments: Sequence[float], arguments: Sequence[str], *, language: bool
) -> _Run:
    run = _Run([Playback(clip.name) for clip in clips], [], [])

    def start(clip: Clip) -> Start:
        return Start(language=clip.language if language else None)

    async with machine(*arguments) as server, asyncio.TaskGroup() as tasks:
        begun = monotonic()
        for clip, playback in zip(clips, run.playbacks, strict=True):
            data = clip.pcm.tobytes()
            pieces = [data[at : at + 32_000] for at in range(0, len(data), 32_000)]
            tasks.create_task(play(playback, server.url, start(clip), pieces, Pace(), lambda *_: None))
        for moment in moments:
            await asyncio.sleep(max(0.0, begun + moment - monotonic()))
            run.cuts.append([playback.sent_s for playback in run.playbacks])
            run.away_s.append(await _timed(_strike(server)))
    return run


async def _strike(server: Machine) -> None:
    await server.kill()
    await server.start()


async def _timed(work: Awaitable[None]) -> float:
    begun = monotonic()
    await work
    return monotonic() - begun


def compare(
    clips: Sequence[Clip],
    runs: Sequence[Sequence[Playback]],
    cuts: Sequence[Sequence[float]],
    away_s: Sequence[float],
) -> Outcome:
    """Score three runs of the same clips: undisturbed, undisturbed again, killed. `cuts`: of each kill the
    seconds of audio that each session had sent. Pure."""
    found, apart, floor = [], Errors(), Errors()
    references = [Errors(), Errors(), Errors()]
    for number, clip in enumerate(clips):
        plain, again, killed = (run[number] for run in runs)
        for index, playback in enumerate((plain, again, killed)):
            references[index] += score(clip.reference, playback.captions.committed, clip.language)
        apart += _errors(plain, killed)
        floor += _errors(plain, again)
        for at in (kill[number] for kill in cuts):
            near = (at - NEAR_S, at + NEAR_S)
            texts = (_text(killed, near), _text(plain, near))
            count = sum(1 for word in plain.captions.transcript if near[0] <= word.end_ms / 1000 < near[1])
            found.append(Cut(clip.name, at, _near(plain, killed, at), _near(plain, again, at), count, *texts))
    played = [playback for run in runs for playback in run]
    receipts = [playback.captions.receipt for playback in played]
    return Outcome(
        cuts=found,
        references=(references[0], references[1], references[2]),
        apart=apart,
        floor=floor,
        resumes=sum(playback.resumes for playback in runs[2]),
        revised=sum(playback.captions.revised for playback in played),
        gap_samples=sum(receipt.gap_samples for receipt in receipts if receipt is not None),
        away_s=list(away_s),
        faults=[f"{p.name}: {fault}" for p in played for fault in p.faults()]
        + [f"{p.name}: did not resume" for p in runs[2] if p.resumes < len(cuts)],
    )


def _words(playback: Playback) -> list[str]:
    return [bare(word.text) for word in playback.captions.transcript]


def _text(playback: Playback, near: tuple[float, float]) -> str:
    words = playback.captions.transcript
    return " ".join(word.text for word in words if near[0] <= word.end_ms / 1000 < near[1])


def _errors(plain: Playback, other: Playback) -> Errors:
    edits = list(_edits(plain, other))
    counts = {
        kind: sum(1 for each, _ in edits if each == kind) for kind in ("substitute", "delete", "insert")
    }
    return Errors(counts["substitute"], counts["delete"], counts["insert"], len(_words(plain)))


def _near(plain: Playback, other: Playback, at_s: float) -> int:
    return sum(abs(when - at_s) <= NEAR_S for _, when in _edits(plain, other))


def _edits(plain: Playback, other: Playback) -> Iterator[tuple[str, float]]:
    """Each word to change in `plain` to have `other`: how, and when it was spoken, seconds."""
    said, heard = plain.captions.transcript, other.captions.transcript
    if not said or not heard:
        yield from (("delete", word.end_ms / 1000) for word in said)
        yield from (("insert", word.end_ms / 1000) for word in heard)
        return
    out = jiwer.process_words(" ".join(_words(plain)), " ".join(_words(other)))
    for chunk in out.alignments[0]:
        if chunk.type == "insert":
            spoken = heard[chunk.hyp_start_idx : chunk.hyp_end_idx]
        else:
            spoken = said[chunk.ref_start_idx : chunk.ref_end_idx]
        if chunk.type != "equal":
            yield from ((chunk.type, word.end_ms / 1000) for word in spoken)


def show(found: Outcome) -> None:
    """Print one line a cut and the sums."""
    console = Console(highlight=False)
    title = f"Words within {NEAR_S:.0f} s of each cut"
    table = figures_table(title, "session", "cut at s", "differ", "undisturbed", "of")
    for cut in found.cuts:
        table.add_row(cut.clip, f"{cut.at_s:.1f}", str(cut.apart), str(cut.undisturbed), str(cut.words))
        if cut.apart:
            console.print(
                f"{cut.clip} {cut.at_s:.1f}\n  killed {cut.heard}\n  plain  {cut.plain}", markup=False
            )
    console.print(table)
    count = max(1, len(found.cuts))
    first, again, killed = (100 * errors.rate for errors in found.references)
    lines = (
        f"{len(found.cuts)} cuts: {sum(c.apart for c in found.cuts) / count:.2f} words near each differ from"
        f" the undisturbed run, {sum(c.undisturbed for c in found.cuts) / count:.2f} in another such run",
        f"WER against the references: undisturbed {first:.2f} and {again:.2f} %, killed {killed:.2f} %"
        f" of {found.references[0].length} words",
        f"WER against the undisturbed run: killed {100 * found.apart.rate:.2f} %, another undisturbed run"
        f" {100 * found.floor.rate:.2f} %",
        f"{found.resumes} resumes, {found.revised} committed words revised, {found.gap_samples} samples of"
        f" gaps, server away {', '.join(f'{s:.1f}' for s in found.away_s)} s",
    )
    for line in lines:
        console.print(line)
    show_faults(console, found.faults)
