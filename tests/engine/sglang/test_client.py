"""The recognizer over a scripted transport: what it sends, what it makes of what comes back."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from engine.contract import (
    Audio,
    EngineError,
    Finish,
    Hypothesis,
    Priority,
    RecognitionTask,
    Word,
    join,
)
from engine.policies.serving import Ask
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.halves import joined
from engine.sglang.transport import Part
from tests.support.waiting import until

from .scripted import MemoryTransport, PlainPolicy, growing, task


def recognizer(
    transport: MemoryTransport, policy: PlainPolicy | None = None, **more: object
) -> SglangRecognizer:
    settings = ClientSettings(model="m", **more)  # type: ignore[arg-type]
    return SglangRecognizer(transport, policy or PlainPolicy(), settings)


async def test_words_come_back_and_everything_needed_is_sent() -> None:
    transport = MemoryTransport(growing("Good morning all."))
    found = await recognizer(transport).recognize(task(language="en"))
    assert join(found.words) == "Good morning all."
    assert found.finish is Finish.STOP
    sent = transport.requests[0]
    assert sent.sampling["max_new_tokens"] == 64
    assert sent.sampling["temperature"] == 0.0
    assert (sent.text, sent.priority, sent.stream) == ("in en", 30, True)
    assert transport.aborted == []


async def test_priorities_keep_their_order_on_the_engine() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    for number, kind in enumerate(Priority):
        await engine.recognize(task(number, priority=kind))
    sent = [request.priority for request in transport.requests]
    assert sent == sorted(sent, reverse=True)  # type: ignore[type-var]
    assert len(set(sent)) == len(Priority)


async def test_no_request_id_begins_another() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    for number in range(120):
        await engine.recognize(task(number))
    ids = [request.rid for request in transport.requests]
    assert len({len(rid) for rid in ids}) == 1
    assert len(set(ids)) == 120


async def test_a_loop_is_aborted_while_it_runs() -> None:
    transport = MemoryTransport(growing("so " + "ha " * 400))
    engine = recognizer(transport)
    found = await engine.recognize(task())
    assert found.finish is Finish.LOOP
    assert transport.aborted == [transport.requests[0].rid]
    assert len(join(found.words)) < 100
    assert engine.counters["alarm_loop"] == 1


async def test_how_it_ended_is_always_looked_at() -> None:
    cut = await recognizer(MemoryTransport(growing("the end is miss", "length"))).recognize(task())
    assert cut.finish is Finish.LENGTH
    with pytest.raises(EngineError) as aborted:
        await recognizer(MemoryTransport([Part((1,), "hal", "abort", "out of memory")])).recognize(task())
    assert (aborted.value.cause, aborted.value.retryable) == ("aborted", True)
    assert "out of memory" in str(aborted.value)
    with pytest.raises(EngineError) as ended:
        await recognizer(MemoryTransport([Part((1,), "hal", None)])).recognize(task())
    assert ended.value.cause == "garbage"


async def test_a_cancelled_task_is_aborted_in_the_engine() -> None:
    transport = MemoryTransport([Part((1,), "a", None)], hang=True)
    running = asyncio.create_task(recognizer(transport).recognize(task()))
    await until(lambda: bool(transport.requests))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert transport.aborted == [transport.requests[0].rid]


async def test_a_stalled_engine_ends_at_the_deadline() -> None:
    transport = MemoryTransport([], hang=True)
    with pytest.raises(EngineError) as late:
        await recognizer(transport, deadline_s=0.02).recognize(task())
    assert (late.value.cause, late.value.retryable) == ("deadline", True)
    assert transport.aborted == [transport.requests[0].rid]


async def test_what_the_model_cannot_take_is_refused_before_it_is_sent() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    for bad, cause in (
        (task(audio=np.zeros(31 * 16_000, np.float32)), "audio"),
        (task(audio=np.array([np.nan], np.float32)), "audio"),
        (task(language="xx"), "request"),
    ):
        with pytest.raises(EngineError) as refused:
            await engine.recognize(bad)
        assert (refused.value.cause, refused.value.retryable) == (cause, False)
    assert transport.requests == []


async def test_silence_is_not_sent() -> None:
    transport = MemoryTransport(growing("Thank you."))
    engine = recognizer(transport)
    for audio in (np.zeros(48_000, np.float32), np.zeros(0, np.float32)):
        found = await engine.recognize(task(audio=audio))
        assert (found.words, found.no_speech) == ((), 1.0)
    assert transport.requests == []


async def test_a_session_is_asked_for_its_language_once() -> None:
    transport = MemoryTransport(growing("zh"))
    engine = recognizer(transport, PlainPolicy(detects=True))
    await engine.recognize(task(1))
    await engine.recognize(task(2))
    assert [request.text for request in transport.requests] == ["which?", "in zh", "in zh"]
    assert engine.counters["detection"] == 1


async def test_a_reply_that_went_astray_is_asked_for_again() -> None:
    transport = MemoryTransport(growing("elsewhere", step=20))
    await recognizer(transport).recognize(task())
    assert [request.text for request in transport.requests] == ["in None", "in en"]


async def test_short_outputs_are_not_streamed() -> None:
    transport = MemoryTransport(growing("x"))
    await recognizer(transport, PlainPolicy(budget=20)).recognize(task())
    assert transport.requests[0].stream is False
    assert "stream_interval" not in transport.requests[0].sampling


async def test_closing_refuses_new_work() -> None:
    transport = MemoryTransport(growing("x"))
    engine = recognizer(transport)
    await engine.close()
    await engine.close()
    assert transport.closed
    with pytest.raises(EngineError, match="shut down"):
        await engine.recognize(task())
    assert not await engine.healthy()


def noise(seconds: float) -> Audio:
    return np.random.default_rng(3).uniform(-0.3, 0.3, round(16_000 * seconds)).astype(np.float32)


class FollowedPolicy(PlainPolicy):
    """Outputs begin with how many seconds they have behind them, a digit each."""

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        return replace(super().ask(task, language), follow=Digits, split=task.attempt >= 2)


class Digits:
    def reached(self, text: str) -> float | None:
        digits = [int(char) for char in text if char.isdigit()]
        return float(sum(digits)) if digits else None


async def test_how_far_an_output_has_come_is_told_while_it_grows() -> None:
    told: list[int] = []
    engine = recognizer(MemoryTransport(growing("so 1 and 2 it went on", step=2)), FollowedPolicy())
    await engine.recognize(task(audio=noise(4.0), start=8_000, progress=told.append))
    assert (told[0], told[-1]) == (8_000 + 16_000, 8_000 + 48_000)
    assert told == sorted(told)


async def test_times_far_behind_the_audio_stop_an_output() -> None:
    engine = recognizer(MemoryTransport(growing("a9b9c9d9e9 and more", step=1)), FollowedPolicy())
    found = await engine.recognize(task(audio=noise(4.0)))
    assert found.finish is Finish.LOOP
    assert engine.counters["alarm_flood"] == 1


async def test_a_terminal_text_other_than_the_stream_counts_and_is_counted() -> None:
    parts = [Part((), "Good mor", None), Part((), "Gute Nacht", "stop", told=False)]
    engine = recognizer(MemoryTransport(parts))
    assert join((await engine.recognize(task())).words) == "Gute Nacht"
    assert engine.counters["reconciled"] == 1


async def test_long_audio_has_a_longer_deadline() -> None:
    transport = MemoryTransport([Part((1,), "a", None)], hang=True)
    engine = recognizer(transport, deadline_s=0.02, deadline_per_audio_s=0.01)
    with pytest.raises(EngineError, match=r"within 0\.04 s"):
        await engine.recognize(task(audio=noise(4.0)))


async def test_the_last_step_decodes_both_halves_by_themselves() -> None:
    audio = noise(6.0)
    audio[46_000:50_000] = 0.0
    transport = MemoryTransport(growing("all said"))
    engine = recognizer(transport, FollowedPolicy())
    known = (Word("committed", 16_000, 24_000), Word("later", 70_000, 75_000))
    found = await engine.recognize(task(audio=audio, start=16_000, attempt=2, prefix=known))
    assert [word.text for word in found.words] == ["all", "said", "all", "said"]
    first, second = transport.requests
    # Cut inside the silence, nothing left out.
    assert 46_000 <= len(first.pcm) // 2 <= 50_000
    assert len(first.pcm) + len(second.pcm) == 2 * len(audio)
    assert found.words[2].start >= 75_000
    assert engine.counters["split"] == 1


def test_of_two_halves_what_is_good_stands() -> None:
    word = Word("a", 0, 8_000, tag="S01")
    good, cut = Hypothesis((word,)), Hypothesis((word,), Finish.LENGTH)
    loop = Hypothesis((), Finish.LOOP)
    assert [w.tag for w in joined(good, good).words] == ["S01", "S01b"]
    assert joined(good, cut).finish is Finish.LENGTH
    assert (joined(good, loop).words, joined(good, loop).finish) == ((word,), Finish.LENGTH)
    assert joined(loop, good) is loop
