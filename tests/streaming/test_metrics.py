"""Values and their Prometheus text; delays from events."""

from __future__ import annotations

import collections
import re
from dataclasses import replace

from starlette.requests import Request

from engine.contract import Capabilities, Hypothesis, RecognitionTask, Word
from engine.fake import FakeRecognizer
from streaming.app import counts_of, narrowed
from streaming.core.events import Cover, Covered, Ended, GapDeclared, Receipt, SegmentUpdated
from streaming.observe.metrics import MOST_SERIES, OTHER, Counter, Histogram, Metrics, Mirror
from streaming.sessions.delays import DelayMeter
from streaming.web.server import Routes
from tests.support.world import World, serving

LINE = re.compile(
    r'^[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? (\d+(\.\d+)?(e-?\d+)?)$'
)


def test_the_exposition_is_well_formed() -> None:
    metrics = Metrics()
    metrics.gaps.add(cause='a "quoted"\\ cause\n')
    metrics.commit_delay.observe(0.25)
    names = set()
    for line in metrics.exposition().splitlines():
        if line.startswith("# TYPE "):
            names.add(line.split()[2])
        elif not line.startswith("#"):
            assert LINE.match(line), line
            assert any(line.startswith(name) for name in names)
    assert {"seamscribe_first_partial_seconds", "seamscribe_commit_delay_seconds"} <= names
    assert {
        "seamscribe_final_delay_seconds",
        "seamscribe_engine_seconds",
        "seamscribe_queue_seconds",
    } <= names


def test_histogram_buckets_are_cumulative() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 5.0):
        histogram.observe(value)
    assert list(histogram.lines("x")) == [
        'x_bucket{le="0.1"} 2',
        'x_bucket{le="1"} 3',
        'x_bucket{le="+Inf"} 4',
        "x_sum 5.65",
        "x_count 4",
    ]


def test_counters_by_label() -> None:
    counter = Counter(cause=())
    counter.add(cause="a")
    counter.add(2, cause="b")
    assert (counter.value(cause="a"), counter.value(cause="b"), counter.value(cause="c")) == (1, 2, 0)


def segment(revision: int, words: int, *, final: bool = False) -> SegmentUpdated:
    said = tuple(Word(f"w{i}", i * 8000, i * 8000 + 8000) for i in range(words))
    return SegmentUpdated(1, revision, 0, 0, max(1, words) * 8000, said, (), final)


def test_delays_count_from_arrival() -> None:
    metrics = Metrics()
    meter = DelayMeter(metrics)
    for step in range(1, 21):  # two seconds, 0.1 s at a time, on a clock that started at 100
        meter.received(step * 1600, 100 + step / 10)
    meter.observe(segment(1, 0), 100.6)
    meter.observe(segment(2, 2), 102.0)
    meter.observe(segment(3, 3, final=True), 102.5)
    assert metrics.first_partial.count == 1
    assert abs(metrics.first_partial.sum - 0.5) < 1e-6
    # Words end at 0.5, 1.0 and 1.5 s.
    assert metrics.commit_delay.count == 3
    assert abs(metrics.commit_delay.sum - (1.5 + 1.0 + 1.0)) < 1e-6
    assert abs(metrics.final_delay.sum - 1.0) < 1e-6
    assert metrics.words.value() == 3


def test_gaps_and_coverage_are_counted() -> None:
    metrics = Metrics()
    meter = DelayMeter(metrics)
    meter.observe(GapDeclared(0, 16_000, "loop"), 0.0)
    spans = (Covered(0, 16_000, Cover.GAP, "loop"), Covered(16_000, 48_000, Cover.TEXT))
    meter.observe(Ended(Receipt(48_000, 9, spans)), 1.0)
    assert metrics.gap_audio.value(cause="loop") == 1.0
    assert [metrics.covered.value(cover=cover) for cover in ("text", "silence", "gap")] == [2.0, 0.0, 1.0]


def test_what_can_happen_is_shown_before_it_does() -> None:
    text = Metrics().exposition()
    assert 'seamscribe_journal_errors_total{cause="full"} 0' in text
    assert "seamscribe_words_committed_total 0" in text
    # A gauge that nobody set says nothing: a server without a journal has none that fails.
    assert not re.search(r"^seamscribe_journal_ok ", text, re.MULTILINE)


def test_a_metric_has_a_bounded_number_of_series() -> None:
    counter, mirror = Counter(cause=("known",)), Mirror(count=())
    for number in range(10_000):
        counter.add(cause=f"of a client's making {number}")
    counter.add(cause="known")
    mirror.show({str(number): 1.0 for number in range(10_000)})
    for metric in (counter, mirror):
        assert len(metric.series) == MOST_SERIES + 1
        assert sum(metric.series.values()) in (10_000, 10_001)
    assert counter.value(cause="known") == 1
    assert counter.value(cause=OTHER) > 9_000


def test_names_follow_the_fields_conventions() -> None:
    """Base units and their suffixes; counters, and they alone, end in _total."""
    for name, metric in Metrics().all.items():
        assert re.fullmatch(r"seamscribe_[a-z]+(_[a-z]+)*", name)
        assert name.endswith("_total") == (metric.kind == "counter"), name
        assert not re.search(r"_(ms|milliseconds|minutes|mib|percent|count|sum|bucket)(_|$)", name), name
        assert metric.kind != "histogram" or name.endswith(("_seconds", "_ratio")), name
        assert not {"le", "quantile", "job", "instance"} & set(metric.labels), name
        assert all(re.fullmatch(r"[a-z]+", label) for label in metric.labels)
    # `x` and `x_total` beside each other would be one name in OpenMetrics.
    families = [name.removesuffix("_total") for name in Metrics().all]
    assert len(families) == len(set(families))


class Counting:
    """An engine that counts."""

    def __init__(self) -> None:
        self.counters = collections.Counter(alarm_loop=2, prompt_tokens=70)

    @property
    def capabilities(self) -> Capabilities:
        return FakeRecognizer().capabilities

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        raise AssertionError

    async def close(self) -> None: ...


def test_what_the_engine_counts_is_exposed() -> None:
    assert counts_of(FakeRecognizer()) == {}
    for engine in (Counting(), narrowed(Counting(), 10.0)):
        assert counts_of(engine) == {"alarm_loop": 2, "prompt_tokens": 70}

    async def body(world: World) -> None:
        counts = {"alarm_loop": 2}
        routes = Routes(replace(world.services, engine_counts=lambda: counts))
        for times in (2, 3):
            counts["alarm_loop"] = times
            lines = bytes((await routes.metrics(Request({"type": "http"}))).body).decode().splitlines()
            assert f'seamscribe_engine_counts_total{{count="alarm_loop"}} {times}' in lines
            assert all(LINE.match(line) for line in lines if not line.startswith("#"))

    serving(body)
