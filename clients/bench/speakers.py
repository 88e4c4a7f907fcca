"""`bench speakers`: who said what, through the live server, against references.

Of the server both are scored: its words, each of which has one speaker (`live`), and the turns in its RTTM,
which know overlap and speech that nobody understood (`rttm`). Beside it, on the same windows of the same
encoder: the linker alone and the bound of a whole-recording clustering; and, where asked, the offline
diarizer senko.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as with_fields

from clients.aio import Refused
from clients.asking import transcript
from clients.play import Arrival, Pace, Playback, play
from clients.stats import Summary, summarize
from engine.sglang.payload import as_wav
from streaming.core.listening import ListeningSettings
from streaming.core.speakers import LinkerSettings
from streaming.wire.messages import Options, Segment, Speaker, Start
from streaming.wire.render import UNKNOWN

from . import speakers_senko
from .meeting import Return, returned
from .scoring import Errors
from .speakers_direct import as_float, link, listen, whole
from .speakers_refs import Recording, Spoken, parse_rttm
from .speakers_scores import Der, counterparts, der, jer, word_errors

COLLAR_S = 0.25
GAP_S = 1.0
"""Words of one speaker nearer than this are one turn: references bridge pauses of that length too. The
shortest that AMI's half minutes leave open is 0.96 s; in the assembled meeting whole utterances are turns."""
AWAY_S = 300.0
"""Who is silent for so long and comes back is reported by themselves."""
REFUSED = 12
"""How often a recording is offered to a server that says it is busy, `AGAIN_S` apart."""
AGAIN_S = 5.0
SENKO_S = 900.0
_BLOCK = 32_000


@dataclass(frozen=True, slots=True)
class Scores:
    """One system on one recording."""

    name: str
    system: str
    strict: Der
    collar: Der
    jer: float
    count_error: int
    """Speakers found less speakers there are; the unknown one is none."""
    cp: Errors | None = None
    plain: Errors | None = None
    cpu_s: float | None = None
    revisions: int = 0
    frozen_wrong: tuple[float, float] = (0.0, 0.0)
    """Seconds of words whose final speaker is not who spoke alone there, and of all such words."""
    delays: tuple[float, ...] = ()
    """From each rightly attributed word's end until its speaker was right for good, seconds."""
    faults: tuple[str, ...] = ()
    back: Return | None = None
    """Whether somebody who was silent for `AWAY_S` and more was known again."""


def scores(name: str, system: str, recording: Recording, turns: Sequence[Spoken]) -> Scores:
    """What turns are worth."""
    known = {turn.speaker for turn in turns} - {"unknown"}
    return Scores(
        name=name,
        system=system,
        strict=der(recording.turns, turns),
        collar=der(recording.turns, turns, collar_s=COLLAR_S),
        jer=jer(recording.turns, turns),
        count_error=len(known) - len(recording.speakers),
        back=returned(recording.turns, turns, AWAY_S),
    )


@dataclass(slots=True)
class Log:
    """Who every word was said to be by, and since when."""

    said: dict[int, list[tuple[float, int | None]]] = field(default_factory=dict)
    """By index of the word: each speaker it had, and when it got it."""
    segments: dict[int, Segment] = field(default_factory=dict)
    revisions: int = 0

    def hear(self, playback: Playback, arrival: Arrival) -> None:
        """Take the next message."""
        match arrival.message:
            case Segment() as segment:
                self.segments[segment.id] = segment
                self._note(segment, segment.speaker, arrival.at_s)
            case Speaker() as news if news.segment in self.segments:
                old = self.segments[news.segment]
                self.revisions += old.speaker is not None and news.speaker != old.speaker
                self._note(old, news.speaker, arrival.at_s)
                self.segments[news.segment] = with_fields(old, speaker=news.speaker)

    def _note(self, segment: Segment, speaker: int | None, at_s: float) -> None:
        for index in range(segment.first_word, segment.first_word + len(segment.words)):
            history = self.said.setdefault(index, [])
            if not history or history[-1][1] != speaker:
                history.append((at_s, speaker))


async def _played(url: str, recording: Recording, speed: float) -> tuple[Log, Playback]:
    """Play one recording; comes again where a server that is still busy with the last one refuses it."""
    data = recording.pcm.tobytes()
    start = Start(language=recording.language, options=Options(speakers=True))
    for left in reversed(range(REFUSED)):
        log, playback = Log(), Playback(recording.name)
        pieces = (data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK))
        try:
            await play(playback, url, start, pieces, Pace(speed=speed), log.hear)
        except Refused as error:
            if not (error.retryable and left):
                raise
            await asyncio.sleep(AGAIN_S)
        else:
            return log, playback
    raise AssertionError("the last refusal is raised")


async def live(url: str, recording: Recording, speed: float) -> list[Scores]:
    """Play one recording and score what the server says: its words, and its RTTM."""
    log, playback = await _played(url, recording, speed)
    words = [
        Spoken(word.start_ms / 1000, word.end_ms / 1000, _name(segment.speaker), word.text)
        for segment in playback.captions.ordered()
        for word in segment.words
    ]
    turns = merged(words)
    found = scores(recording.name, "live", recording, turns)
    cp, plain = word_errors(recording.utterances, words, recording.language)
    mapping = counterparts(recording.turns, turns)
    wrong, judged, delays = _judge(recording, playback, log, mapping)
    ready = playback.captions.ready
    assert ready is not None, "it was played"
    heard = await transcript(url, ready, "rttm")
    said = [
        replace(turn, speaker=_name(None)) if turn.speaker == UNKNOWN else turn
        for turn in parse_rttm(heard, "the server's RTTM")
    ]
    found = replace(
        found,
        cp=cp if recording.utterances else None,
        plain=plain if recording.utterances else None,
        revisions=log.revisions,
        frozen_wrong=(wrong, judged),
        delays=tuple(delays) if speed == 1 else (),  # at another speed the clock is not the audio's
        faults=tuple(playback.faults()),
    )
    return [found, scores(recording.name, "rttm", recording, said)]


def _name(speaker: int | None) -> str:
    return "unknown" if speaker is None else str(speaker)


def merged(words: Sequence[Spoken]) -> list[Spoken]:
    """Words as turns."""
    turns: list[Spoken] = []
    for word in sorted(words, key=lambda word: (word.speaker, word.start_s)):
        last = turns[-1] if turns else None
        if last and last.speaker == word.speaker and word.start_s - last.end_s < GAP_S:
            turns[-1] = replace(last, end_s=max(last.end_s, word.end_s))
        else:
            turns.append(replace(word, text=""))
    return turns


def _judge(
    recording: Recording, playback: Playback, log: Log, mapping: dict[str, str]
) -> tuple[float, float, list[float]]:
    """Seconds of words finally given to the wrong one, of all judged words, and delays of the right ones."""
    wrong, judged, delays = 0.0, 0.0, []
    for segment in playback.captions.segments.values():
        for offset, word in enumerate(segment.words):
            start, end = word.start_ms / 1000, word.end_ms / 1000
            there = {t.speaker for t in recording.turns if t.start_s <= (start + end) / 2 < t.end_s}
            if len(there) != 1:
                continue  # nobody, or two: either answer would be right
            right = mapping.get(there.pop())
            judged += end - start
            history = log.said[segment.first_word + offset]
            if right is None or _name(history[-1][1]) != right:
                wrong += end - start
            else:
                delays.append(history[-1][0] - end)
    return wrong, judged, delays


async def direct(recording: Recording) -> list[Scores]:
    """The linker alone, live and with all evidence at once."""
    heard = await listen(as_float(recording.pcm), ListeningSettings())
    found = []
    for system, linked in (
        ("linker", link(heard, recording.seconds, LinkerSettings())),
        ("bound", whole(heard, recording.seconds, LinkerSettings())),
    ):
        made = scores(recording.name, system, recording, linked.turns)
        found.append(replace(made, revisions=linked.revisions, cpu_s=heard.cpu_s))
    return found


async def senko(python: Path, recordings: Sequence[Recording]) -> list[Scores]:
    """The offline diarizer, run by another Python; raises OSError where it cannot run."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.wav" for number, _ in enumerate(recordings)]
        for path, recording in zip(paths, recordings, strict=True):
            path.write_bytes(as_wav(recording.pcm.tobytes()))
        child = await asyncio.create_subprocess_exec(
            str(python),
            str(speakers_senko.__file__),
            *map(str, paths),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(child.communicate(), SENKO_S)
        except TimeoutError:
            child.kill()
            raise OSError(f"--senko {python}: no answer in {SENKO_S:g} s") from None
    if child.returncode:
        lines = err.decode(errors="replace").strip().splitlines() or ["no word"]
        raise OSError(f"--senko {python}: {lines[-1]}")
    told = json.loads(out)
    found = []
    for path, recording in zip(paths, recordings, strict=True):
        turns = [Spoken(start, end, speaker) for start, end, speaker in told[path]["turns"]]
        made = scores(recording.name, "senko", recording, turns)
        found.append(replace(made, cpu_s=told[path]["cpu_s"]))
    return found


async def run(
    url: str | None,
    recordings: Sequence[Recording],
    *,
    speed: float = 1.0,
    python: Path | None = None,
    tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr),
) -> list[Scores]:
    """All systems on all recordings; without `url` the live server is left out."""
    found: list[Scores] = []
    for recording in recordings:
        tell(f"{recording.name}: {recording.seconds:.0f} s")
        if url is not None:
            found += await live(url, recording, speed)
        found += await direct(recording)
    if python is not None:
        tell("senko")
        found += await senko(python, recordings)
    return found


@dataclass(frozen=True, slots=True)
class Total:
    """One system on all recordings; rates are of summed counts."""

    system: str
    strict: Der
    collar: Der
    mean_der: float
    """Mean of the recordings' rates (collar 0), each counting as much: those with 5 s of speech or more."""
    jer: float
    worst_count: int
    cp: Errors
    plain: Errors
    revisions_per_minute: float
    frozen_wrong: float | None
    delay: Summary
    cpu_s_per_audio_s: float | None


def totals(rows: Sequence[Scores], recordings: Sequence[Recording]) -> list[Total]:
    """Sum up by system."""
    seconds = {recording.name: recording.seconds for recording in recordings}
    found = []
    for system in dict.fromkeys(row.system for row in rows):
        mine = [row for row in rows if row.system == system]
        talked = [row for row in mine if row.strict.total >= 5]
        audio_s = sum(seconds[row.name] for row in mine)
        judged = sum(row.frozen_wrong[1] for row in mine)
        cpu = [row.cpu_s for row in mine if row.cpu_s is not None]
        found.append(
            Total(
                system=system,
                strict=sum((row.strict for row in mine), Der()),
                collar=sum((row.collar for row in mine), Der()),
                mean_der=sum(row.strict.rate for row in talked) / max(len(talked), 1),
                jer=sum(row.jer for row in talked) / max(len(talked), 1),
                worst_count=max((row.count_error for row in mine), key=abs),
                cp=sum((row.cp for row in mine if row.cp), Errors()),
                plain=sum((row.plain for row in mine if row.plain), Errors()),
                revisions_per_minute=60 * sum(row.revisions for row in mine) / audio_s,
                frozen_wrong=sum(row.frozen_wrong[0] for row in mine) / judged if judged else None,
                delay=summarize([delay for row in mine for delay in row.delays]),
                cpu_s_per_audio_s=sum(cpu) / audio_s if len(cpu) == len(mine) else None,
            )
        )
    return found
