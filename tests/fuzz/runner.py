"""Runs one target's cases, each under a deadline of processor time and a bound on memory."""

from __future__ import annotations

import signal
import traceback
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from time import perf_counter, process_time
from types import FrameType
from zlib import crc32

from .mutate import TOKENS, mutate

DEADLINE_S = 1.0
"""Processor time of one case; a busy machine does not count."""
MEMORY = 16 << 20
"""Bytes that one case may take at once, above what its target has anyway."""
MOST_FINDINGS = 20


class Hang(BaseException):
    """A case ran out of time. No `Exception`, so that nothing under test takes it for one of its own."""


@dataclass(frozen=True)
class Target:
    """One decoder. `run` takes a case and a source of choices (where to cut, say); it returns where the case
    was taken, and raises one of `refusals` where it was refused. Its own promises it asserts."""

    name: str
    seeds: Sequence[bytes]
    run: Callable[[bytes, Random], object]
    refusals: tuple[type[Exception], ...]
    share: float = 1.0
    """Cases, as a multiple of what each target gets."""
    words: Sequence[bytes] = ()
    """What its language is made of, beside `TOKENS`."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A case that went wrong, and how."""

    case: bytes
    what: str


@dataclass(slots=True)
class Outcome:
    """What a target's cases came to."""

    name: str
    cases: int = 0
    taken: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    """Processor time."""
    peak: int = 0
    """Bytes."""
    findings: list[Finding] = field(default_factory=list)


def run(target: Target, cases: int, seed: int = 0, *, memory: bool = True) -> Outcome:
    """The same cases for the same seed. `memory` watches what they take, at a third of the speed."""
    rng, outcome = Random(seed ^ crc32(target.name.encode())), Outcome(target.name)
    words = (*TOKENS, *target.words)
    begin = perf_counter()
    with _deadlines(), _watched(memory):
        for _ in range(cases):
            case = mutate(rng.choice(target.seeds), rng, words)
            _try(target, case, Random(rng.getrandbits(32)), outcome)
            if len(outcome.findings) >= MOST_FINDINGS:
                break
    outcome.seconds = perf_counter() - begin
    return outcome


def _try(target: Target, case: bytes, choices: Random, outcome: Outcome) -> None:
    outcome.cases += 1
    before = _mark()
    started = process_time()
    signal.setitimer(signal.ITIMER_PROF, DEADLINE_S)
    try:
        target.run(case, choices)
        outcome.taken += 1
    except target.refusals:
        pass
    except Hang:
        outcome.findings.append(Finding(case, f"took over {DEADLINE_S:g} s"))
    except Exception as error:  # noqa: BLE001 - what is looked for
        outcome.findings.append(Finding(case, _short(error)))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    outcome.slowest_s = max(outcome.slowest_s, process_time() - started)
    took = _mark(reset=False) - before
    outcome.peak = max(outcome.peak, took)
    if took > MEMORY:
        outcome.findings.append(Finding(case, f"took {took >> 20} MiB"))


def _mark(*, reset: bool = True) -> int:
    """Bytes now, or with `reset=False` the most since the last mark."""
    if not tracemalloc.is_tracing():
        return 0
    now, peak = tracemalloc.get_traced_memory()
    if reset:
        tracemalloc.reset_peak()
        return now
    return peak


def _short(error: Exception) -> str:
    """The error and where it was raised."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({frame.filename.rsplit('/', 1)[-1]}:{frame.lineno})"[:400]


@contextmanager
def _deadlines() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, late)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)


@contextmanager
def _watched(memory: bool) -> Iterator[None]:
    ours = memory and not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    try:
        yield
    finally:
        if ours:
            tracemalloc.stop()
