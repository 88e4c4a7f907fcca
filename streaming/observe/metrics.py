"""What is measured, as values, and their text for Prometheus. Times in seconds.

Delays are counted from when the server received the sample to when it had the words, so they hold for
live audio; a client that sends faster than real time sees larger ones.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TypeVar

from streaming.core.hunger import Repair

DELAYS = (
    *(0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1.0, 1.2, 1.4, 1.7, 2.0, 2.4, 2.8, 3.3, 4.0),
    *(5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 60.0),
)
SHARES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)
SHORT = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

MOST_SERIES = 100
"""Values of one metric at most; what has other labels is counted together, as `OTHER`."""

OTHER = "other"

GAPS = ("length", "loop", "no_text", "deadline", "finish_deadline", "engine", "lost")
"""Causes of gaps that are seen most."""

Labels = tuple[tuple[str, str], ...]


class Metric:
    """Values by combinations of labels, of which there are `MOST_SERIES` at most and one of `OTHER`."""

    kind = "untyped"

    def __init__(self, **known: tuple[str, ...]) -> None:
        """The labels' names, each with values that are shown from the start, so that the first event of a
        kind is a change like any other; none where they cannot be told before."""
        self.labels = tuple(known)
        self._values: dict[Labels, float] = {}

    @property
    def series(self) -> Mapping[Labels, float]:
        """What it holds now."""
        return self._values

    def value(self, **labels: str) -> float:
        return self._values.get(tuple((name, labels[name]) for name in self.labels), 0.0)

    def lines(self, name: str) -> Iterator[str]:
        for labels, value in sorted(self._values.items()):
            yield f"{name}{_braces(labels)} {_number(value)}"

    def _key(self, labels: Mapping[str, str]) -> Labels:
        assert labels.keys() == set(self.labels), f"{sorted(labels)} are not the labels {self.labels}"
        key = tuple((name, labels[name]) for name in self.labels)
        if key in self._values or len(self._values) < MOST_SERIES:
            return key
        return tuple((name, OTHER) for name in self.labels)


class Counter(Metric):
    """Only grows."""

    kind = "counter"

    def __init__(self, **known: tuple[str, ...]) -> None:
        super().__init__(**known)
        for values in product(*known.values()):
            self._values[tuple(zip(self.labels, values, strict=True))] = 0.0

    def add(self, amount: float = 1.0, **labels: str) -> None:
        key = self._key(labels)
        self._values[key] = self._values.get(key, 0.0) + amount


class Mirror(Metric):
    """Counts that somebody else keeps, as they stand, by one label."""

    kind = "counter"

    def show(self, counts: Mapping[str, float]) -> None:
        (label,) = self.labels
        self._values = {}
        for name, value in counts.items():
            key = self._key({label: name})
            self._values[key] = self._values.get(key, 0.0) + value


class Gauge(Metric):
    """The newest value; none until there is one."""

    kind = "gauge"

    def set(self, value: float, **labels: str) -> None:
        self._values[self._key(labels)] = value


class Histogram:
    """Counts by upper bound, with sum and number."""

    kind = "histogram"
    labels: tuple[str, ...] = ()

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    @property
    def counts(self) -> tuple[int, ...]:
        """How many fell between one bound and the next, above the last one at the end."""
        return tuple(self._counts)

    def quantile(self, share: float, counts: Sequence[int]) -> float:
        """The value that `share` of these `counts` are below, evenly spread between bounds; 0 for none."""
        wanted, below = share * sum(counts), 0.0
        for low, high, count in zip((0.0, *self._bounds), self._bounds, counts, strict=False):
            if count and below + count >= wanted:
                return low + (high - low) * (wanted - below) / count
            below += count
        return self._bounds[-1] if below < wanted else 0.0

    @property
    def count(self) -> int:
        return sum(self._counts)

    @property
    def sum(self) -> float:
        return self._sum

    def lines(self, name: str) -> Iterator[str]:
        total = 0
        for bound, count in zip((*map(_number, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {_number(self._sum)}"
        yield f"{name}_count {total}"


_Metric = TypeVar("_Metric", bound="Metric | Histogram")


class Metrics:
    """All of one process."""

    def __init__(self) -> None:
        self._help: dict[str, tuple[str, Metric | Histogram]] = {}
        # What admission judges by: recordings take what is left and do not count.
        self.live_audio_s = self.live_engine_s = 0.0
        new = self._new
        self.first_partial = new(
            "first_partial_seconds", "From the start of speech to its first words.", Histogram(DELAYS)
        )
        self.commit_delay = new(
            "commit_delay_seconds", "From the end of a word to its being committed.", Histogram(DELAYS)
        )
        self.final_delay = new(
            "final_delay_seconds", "From the end of a segment to its being final.", Histogram(DELAYS)
        )
        self.engine_time = new("engine_seconds", "Engine time of one decode.", Histogram(SHORT))
        self.queue_time = new("queue_seconds", "Wait of one decode for the engine.", Histogram(SHORT))
        self.speaker_time = new(
            "speaker_window_seconds", "From asking for a window's voices to having them.", Histogram(SHORT)
        )
        self.decodes = new(
            "decodes_total",
            "Decodes by priority and how they ended: `loop`, stopped by a guard; `length`, out of tokens.",
            Counter(priority=("final", "first", "refresh"), finish=("stop", "length", "loop")),
        )
        self.retries = new(
            "retries_total", "Final decodes that failed and were tried again.", Counter(cause=())
        )
        self.decoded_audio = new("decoded_audio_seconds_total", "Audio given to the engine.", Counter())
        self.engine_counts = new(
            "engine_counts_total",
            "What the engine counts itself: guards' alarms, tokens and others.",
            Mirror(count=()),
        )
        self.unheard = new(
            "windows_unheard_total", "Windows whose voices could not be told apart.", Counter(cause=())
        )
        self.starved = new(
            "starved_total",
            "Times speech brought no text for long, by what decoding again brought.",
            Counter(outcome=tuple(Repair)),
        )
        self.echo = new(
            "echo_seconds_total",
            "Speech left out of a track, for another one carries it too, and louder.",
            Counter(),
        )
        self._count_recordings()
        self._count_sessions()
        self._count_journal()
        self._show_load()

    def _count_recordings(self) -> None:
        """What they take of the engine is kept apart from what is live: one number of both says nothing."""
        new = self._new
        self.recording_queue_time = new(
            "recording_queue_seconds", "Wait of one decode of a recording for the engine.", Histogram(DELAYS)
        )
        self.rtf = new(
            "decode_realtime_ratio",
            "Engine time of one live decode, of its audio's length.",
            Histogram(SHARES),
        )
        self.recording_rtf = new(
            "recording_realtime_ratio",
            "Engine time of one decode of a recording, of its audio's length.",
            Histogram(SHARES),
        )
        self.recording_audio = new(
            "recording_audio_seconds_total",
            "Of the audio given to the engine, that of recordings.",
            Counter(),
        )

    def _count_sessions(self) -> None:
        new = self._new
        self.sessions = new("sessions_active", "Live sessions.", Gauge())
        self.started = new("sessions_total", "Sessions started.", Counter())
        self.closed = new(
            "sessions_closed_total",
            "Sessions ended, by close code and reason.",
            Counter(code=(), reason=()),
        )
        self.refused = new(
            "refusals_total",
            "Clients refused before a session, by reason.",
            Counter(reason=("overloaded", "restarting", "unauthorized", "forbidden")),
        )
        self.ignored = new(
            "ignored_fields_total",
            "Fields of other protocols that mean nothing here.",
            Counter(protocol=()),
        )
        self.parted = new(
            "connections_lost_total",
            "Connections that ended before their session, by reason.",
            Counter(reason=("lost", "left", "replaced", "slow_reader", "internal")),
        )
        self.resumed = new("resumes_total", "Sessions that went on over another connection.", Counter())
        self.readers = new("readers_total", "Readers let in.", Counter())
        self.received = new("received_seconds_total", "Audio received.", Counter())
        self.broken = new(
            "demuxer_restarts_total",
            "Recordings that broke and were taken up again, by why.",
            Counter(why=()),
        )
        self.covered = new(
            "covered_seconds_total",
            "Audio of ended sessions, by what became of it.",
            Counter(cover=("text", "silence", "gap")),
        )
        self.words = new("words_committed_total", "Words committed.", Counter())
        self.gaps = new("gaps_total", "Declared gaps, by cause.", Counter(cause=GAPS))
        self.gap_audio = new("gap_seconds_total", "Audio in declared gaps, by cause.", Counter(cause=GAPS))
        self.paused = new(
            "read_pauses_total",
            "Times a socket was not read for a while, by reason.",
            Counter(reason=("client", "engine", "flush")),
        )

    def _count_journal(self) -> None:
        new = self._new
        self.journal_ok = new("journal_ok", "Whether the journal can be written.", Gauge())
        self.journal_writes = new("journal_writes_total", "Groups written to the journal.", Counter())
        self.journal_errors = new(
            "journal_errors_total",
            "Groups that could not be written, by cause.",
            Counter(cause=("full", "locked", "read_only", "io", "other")),
        )
        self.journal_late = new(
            "journal_late_total", "Messages sent before they were in the journal.", Counter()
        )
        self.journal_lost = new(
            "journal_lost_sessions_total", "Sessions no longer kept: too much waited.", Counter()
        )
        self.webhooks = new(
            "webhook_deliveries_total",
            "Tries to deliver, by outcome.",
            Counter(outcome=("delivered", "failed", "given_up", "dropped")),
        )
        self.kept_audio = new(
            "kept_audio_seconds_total",
            "Audio kept, by outcome.",
            Counter(outcome=("kept", "failed", "dropped")),
        )

    def _show_load(self) -> None:
        new = self._new
        self.build = new(
            "build_info", "1, of this version, engine and model.", Gauge(version=(), engine=(), model=())
        )
        self.waiting = new("queue_depth", "Decodes waiting.", Gauge())
        self.running = new("engine_running", "Decodes running.", Gauge())
        self.utilisation = new("engine_utilisation_ratio", "Share of engine time in use.", Gauge())
        self.stretch = new("refresh_stretch_ratio", "What refresh intervals are multiplied by.", Gauge())
        self.brief = new("refresh_brief", "Whether refreshes hear less of what is committed.", Gauge())
        self.open = new("admission_open", "Whether a new session would be taken.", Gauge())
        self.used = new(
            "capacity_used_ratio", "Load and what was let in lately, of what may be used.", Gauge()
        )
        self.demand = new(
            "engine_demand_ratio", "Share of engine time that unstretched refreshes would use.", Gauge()
        )
        self.memory = new("resident_memory_bytes", "Memory of this process.", Gauge())
        self.most_memory = new(
            "memory_limit_bytes", "Memory of this process from which no new session begins.", Gauge()
        )
        # What is to be as it was once nobody is connected: a leak shows here.
        self.tasks = new("tasks", "Tasks of the event loop.", Gauge())
        self.threads = new("threads", "Python's threads, but for the pool's, which stay.", Gauge())
        self.blocks = new("memory_blocks", "Blocks of memory that Python's objects take.", Gauge())

    def _new(self, name: str, help: str, metric: _Metric) -> _Metric:
        self._help[f"seamscribe_{name}"] = (help, metric)
        return metric

    @property
    def all(self) -> Mapping[str, Metric | Histogram]:
        """By name."""
        return {name: metric for name, (_, metric) in self._help.items()}

    def look(self, *, idle: bool) -> None:
        """What the process holds now; for the loop's thread. Where it is `idle`, garbage is collected first:
        by itself that is left until it is a quarter of all, and would hide or feign a leak."""
        if idle:
            gc.collect()
        self.tasks.set(len(asyncio.all_tasks()))
        self.threads.set(sum(not t.name.startswith("asyncio_") for t in threading.enumerate()))
        self.blocks.set(sys.getallocatedblocks())

    def exposition(self) -> str:
        """Prometheus text, format 0.0.4."""
        lines: list[str] = []
        for name, (help, metric) in self._help.items():
            lines += [f"# HELP {name} {help}", f"# TYPE {name} {metric.kind}", *metric.lines(name)]
        return "\n".join(lines) + "\n"


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{k}="{_escaped(v)}"' for k, v in labels) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
