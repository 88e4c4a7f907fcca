"""The promises that the pure core keeps, for any speech, any packets, any delays, any mishearing."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import Capabilities, Hypothesis
from streaming.core.events import Cover
from streaming.core.session import Session

from .oracle import SECOND, Oracle, Reader, Run, Truth, truth

seeds = st.integers(0, 2**32)


def listen(said: Truth, seed: int, **options: float) -> Run:
    oracle = Oracle(said, random.Random(seed), **options)  # type: ignore[arg-type]
    return Run(said, oracle)


def texts(reader: Reader) -> list[str]:
    return [word.text for word in reader.words]


def tiles(reader: Reader, samples: int) -> None:
    assert reader.receipt is not None
    at = 0
    for span in reader.receipt.spans:
        assert span.start == at
        assert span.end > span.start
        at = span.end
    assert at == reader.receipt.samples == samples


@given(
    seeds,
    st.integers(1, 60),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.booleans(),
    st.sampled_from([0, 4800, 8000]),
)
@settings(max_examples=60)
def test_no_word_is_lost_doubled_or_changed(
    seed: int, words: int, pauses: float, spaced: bool, delay: int
) -> None:
    """P1 and P5: the transcript is what was said, in order, once (Reader checks that it only grows)."""
    said = truth(seed, words, pauses=pauses, spaced=spaced)
    run = listen(said, seed)
    run.delay = delay
    reader = run.play()
    assert texts(reader) == [w.text for w in said.words]
    assert all(s.final for s in reader.shown.values())
    tiles(reader, said.samples)
    assert not reader.gaps
    assert reader.receipt is not None
    spans = [s for s in reader.receipt.spans if s.cover is Cover.TEXT]
    starts = [w.start for w in said.words]
    pad = SECOND // 5 + 320
    assert all(any(0 <= start - s.start <= pad for start in starts) for s in spans), "silence sold as text"


@given(seeds, st.integers(20, 80), st.sampled_from([3.0, 6.0, 8.0, 10.0]))
@settings(max_examples=40)
def test_cuts_without_pauses_cost_no_word(seed: int, words: int, window: float) -> None:
    """P5: a model with a short window and a speaker who never pauses: seams lie in the gaps of words."""
    said = truth(seed, words, pauses=0.0)
    run = listen(said, seed, noise=0.0)
    run.delay = 8 * SECOND  # replies so late that windows outgrow the model
    reader = run.play(capabilities=Capabilities("oracle", "oracle", max_window_s=window))
    assert texts(reader) == [w.text for w in said.words]
    tiles(reader, said.samples)
    assert all(len(t.audio) <= window * SECOND for t in run.oracle.tasks)
    assert len(run.oracle.tasks) <= 4 + 8 * said.samples / (window * SECOND), "every cut moves the window on"


@given(seeds, st.integers(1, 40), st.sampled_from([0.2, 0.5]))
@settings(max_examples=40)
def test_a_model_that_stops_early_costs_no_word(seed: int, words: int, pauses: float) -> None:
    """P5, P7: what a final reply leaves out is decoded by itself (words shorter than half a second apart)."""
    said = truth(seed, words, pauses=pauses, shortest=SECOND * 11 // 20)
    run = listen(said, seed, noise=0.0, early=0.9)
    run.delay = 4 * SECOND  # so late that finals cover several segments, and few refreshes serve as final
    reader = run.play()
    assert texts(reader) == [w.text for w in said.words]
    tiles(reader, said.samples)
    assert not reader.gaps


@given(seeds, st.integers(0, 40), st.sampled_from([0.1, 0.6]))
@settings(max_examples=60)
def test_every_sample_is_accounted_for_whatever_fails(seed: int, words: int, failures: float) -> None:
    """P4: with failing tasks the receipt still tiles the clock, and what is lost is a declared gap."""
    said = truth(seed, words, pauses=0.3)
    reader = listen(said, seed, failures=failures).play()
    tiles(reader, said.samples)
    assert reader.receipt is not None
    declared = [(s.start, s.end) for s in reader.receipt.spans if s.cover is Cover.GAP]
    assert sum(e - s for s, e in declared) == sum(g.end - g.start for g in reader.gaps)
    heard = set(texts(reader))
    for word in said.words:
        middle = (word.start + word.end) // 2
        assert word.text in heard or any(s <= middle < e for s, e in declared), f"{word} vanished silently"


@given(seeds, st.integers(1, 40), seeds)
@settings(max_examples=40)
def test_packets_make_no_difference(seed: int, words: int, packets: int) -> None:
    """The same audio in any packets gives the same tasks and the same transcript."""
    said = truth(seed, words, pauses=0.3)
    one, other = listen(said, seed), listen(said, seed)
    first, second = one.play(), other.play(random.Random(packets))
    assert first.words == second.words
    assert first.receipt == second.receipt
    assert [(t.id, t.start, t.end) for t in one.oracle.tasks] == [
        (t.id, t.start, t.end) for t in other.oracle.tasks
    ]


@given(seeds, st.integers(5, 60), st.sampled_from([0.0, 0.2]), st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=40)
def test_every_word_is_committed_in_time(seed: int, words: int, pauses: float, noise: float) -> None:
    """P2: pauses or not, agreement or not, within `max_delay` while replies take 0.3 s."""
    said = truth(seed, words, pauses=pauses)
    run = listen(said, seed, noise=noise, settle=60 * SECOND)
    reader = run.play()
    late = [now - w.end for w, now in zip(reader.words, reader.committed_at, strict=True)]
    assert max(late) <= run.settings.max_delay_s * SECOND + SECOND // 10


@given(seeds, st.integers(1, 40), st.integers(1, 40).map(lambda n: 5 * n))
@settings(max_examples=40)
def test_flushes_are_answered_in_order_once_everything_before_is_final(
    seed: int, words: int, every: int
) -> None:
    """A flush at any moment is answered with its sample (Reader checks that all before it is final)."""
    said = truth(seed, words, pauses=0.3)
    run = listen(said, seed)
    run.flush_every = every
    reader = run.play()
    samples = [f.sample for f, _ in reader.flushed]
    for flushed, known in reader.flushed:
        assert known >= sum(w.end <= flushed.sample for w in said.words), (
            "answered before its words were final"
        )
    assert samples == sorted(samples)
    assert len(samples) == len(said.voices()) // every
    tiles(reader, said.samples)


def test_a_stale_reply_changes_nothing() -> None:
    """A reply to a task that was cancelled, answered or never made."""
    said = truth(3, 10, pauses=0.0)
    run = listen(said, 3)
    reader = run.play()
    before = list(reader.words)
    for task in list(run.oracle.tasks):
        run.session.receive_hypothesis(task.id, Hypothesis(said.words))
        run.session.receive_failure(task.id, "late", retryable=False)
    run.session.receive_hypothesis("nobody", Hypothesis(said.words))
    assert run.session.events_to_send() == []
    assert reader.words == before


def test_silence_makes_no_task_and_no_text() -> None:
    """An hour without a voice costs no decode and little memory."""
    said = Truth((), 3600 * SECOND)
    run = listen(said, 1)
    reader = run.play()
    assert run.oracle.tasks == []
    assert reader.receipt is not None
    assert [s.cover for s in reader.receipt.spans] == [Cover.SILENCE]
    assert isinstance(run.session, Session)
    assert run.session.kept < 10 * SECOND
