"""The shell around the networks: threads, bounds, deadlines, what a window's voices are made of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from engine.contract import SAMPLE_RATE, Audio, EngineError, Span, SpeakerTask
from engine.speakers.encoder import Encoder
from engine.speakers.powerset import Floats
from engine.speakers.reader import EncoderSettings, Networks

S = SAMPLE_RATE
LEVELS = (0.0, 0.1, 0.2, 0.3, 0.5)
"""Amplitude of silence, of speakers 0, 1 and 2, and of 0 and 1 together: the classes in order."""


class Segmentation:
    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate = gate
        self.calls = 0
        self.threads: set[int] = set()

    def run(self, names: None, feeds: Mapping[str, Floats]) -> Sequence[Floats]:
        self.calls += 1
        self.threads.add(threading.get_ident())
        if self.gate is not None:
            assert self.gate.wait(20)
        audio = feeds["audio"][0, 0]
        frames = 1 + (len(audio) - 991) // 270
        level = np.abs(audio[495 + 270 * np.arange(frames)])
        nearest = np.abs(level[:, None] - np.array(LEVELS)).argmin(axis=1)
        return [np.where(np.eye(7)[nearest] == 1, 0.0, -20.0).astype(np.float32)[None]]


class Embedding:
    """Keeps the mean feature of each step, which says how loud it is."""

    def run(self, names: None, feeds: Mapping[str, Floats]) -> Sequence[Floats]:
        loud = feeds["features"][0].mean(axis=1)[::2]
        return [np.repeat(loud[None, None], 512, axis=1).astype(np.float32)]


class Pooling:
    def run(self, names: None, feeds: Mapping[str, Floats]) -> Sequence[Floats]:
        mean = feeds["masks"] @ feeds["voiced"][0, 0] / feeds["masks"].sum(axis=1)
        found = np.zeros((len(mean), 192), np.float32)
        found[:, 0], found[:, 1] = np.cos(mean), np.sin(mean)
        return [found]


def encoder(segmentation: Segmentation | None = None, settings: EncoderSettings | None = None) -> Encoder:
    return Encoder(Networks(segmentation or Segmentation(), Embedding(), Pooling()), settings)


def sound(*parts: tuple[int, float]) -> Audio:
    """(class, seconds) one after the other, as a square wave of that class's level."""
    pieces = [np.full(round(seconds * S), LEVELS[number]) for number, seconds in parts]
    audio = np.concatenate(pieces).astype(np.float32)
    audio[np.arange(len(audio)) % 16 < 8] *= -1
    return audio


def task(audio: Audio, start: int = 0, tags: tuple[tuple[Span, ...], ...] | None = None) -> SpeakerTask:
    return SpeakerTask("t", "s", audio, start, tags)


async def test_voices_have_spans_on_the_session_clock_and_overlap() -> None:
    async with asyncio.timeout(20):
        made = encoder()
        window = await made.voices(task(sound((1, 2.0), (4, 1.0), (2, 3.0), (0, 1.0)), start=5 * S))
        await made.close()
    assert (window.start, window.end) == (5 * S, 12 * S)
    second, first = window.speakers
    assert np.abs(np.array(first.active) - [[5 * S, 8 * S]]).max() < 0.03 * S
    assert np.abs(np.array(second.active) - [[7 * S, 11 * S]]).max() < 0.03 * S
    assert abs(first.alone - 2 * S) < 0.05 * S
    assert abs(second.alone - 3 * S) < 0.05 * S
    for voice in window.speakers:
        assert voice.vector is not None
        assert np.linalg.norm(voice.vector) == pytest.approx(1.0, abs=1e-5)
        assert not voice.vector.flags.writeable


async def test_a_voice_with_too_little_alone_has_no_vector() -> None:
    async with asyncio.timeout(20):
        made = encoder()
        window = await made.voices(task(sound((1, 3.0), (4, 1.0), (2, 0.4), (0, 1.0))))
        await made.close()
    assert [voice.vector is None for voice in window.speakers] == [False, True]
    assert 0 < window.speakers[1].alone < 0.5 * S


async def test_silence_and_short_audio_have_no_voices() -> None:
    async with asyncio.timeout(20):
        made = encoder()
        for length in (0, 1, 399, 1_600, S):
            assert (await made.voices(task(np.zeros(length, np.float32)))).speakers == ()
        assert await made.embed(np.zeros(3 * S, np.float32)) is None
        assert await made.embed(sound((1, 0.7), (0, 2.0))) is None
        await made.close()


async def test_tags_keep_their_order_and_only_their_spans_count() -> None:
    segmentation = Segmentation()
    spans = (((2 * S, 4 * S),), ((S, 2 * S), (5 * S, 9 * S)), ((S, S + 100),), ())
    async with asyncio.timeout(20):
        made = encoder(segmentation)
        window = await made.voices(task(sound((1, 1.0), (2, 2.0), (1, 3.0)), start=S, tags=spans))
        await made.close()
    assert [voice.active for voice in window.speakers] == [
        spans[0],
        (spans[1][0], (5 * S, 7 * S)),
        spans[2],
        (),
    ]
    assert [voice.vector is None for voice in window.speakers] == [False, False, True, True]
    assert segmentation.calls == 0


async def test_enrolment_joins_windows() -> None:
    async with asyncio.timeout(20):
        made = encoder()
        found = await made.embed(sound((0, 9.0), (1, 14.0)))
        await made.close()
    assert found is not None
    assert np.linalg.norm(found) == pytest.approx(1.0, abs=1e-5)


async def test_a_window_over_the_limit_is_refused() -> None:
    made = encoder()
    with pytest.raises(EngineError, match="cut it") as caught:
        await made.voices(task(np.zeros(10 * S + 1, np.float32)))
    assert (caught.value.cause, caught.value.retryable) == ("rejected", False)
    await made.close()


async def test_work_is_off_the_loop_and_its_cost_is_counted() -> None:
    segmentation = Segmentation()
    made = encoder(segmentation)
    async with asyncio.timeout(20):
        await asyncio.gather(*(made.voices(task(sound((1, 2.0)))) for _ in range(3)))
        await made.close()
    assert threading.get_ident() not in segmentation.threads
    assert made.counters["speaker_windows"] == 3
    assert made.counters["speaker_audio_s"] == 6.0
    assert made.counters["speaker_cpu_s"] > 0.0


async def test_a_full_queue_refuses_and_a_late_task_is_given_up() -> None:
    gate = threading.Event()
    made = encoder(Segmentation(gate), EncoderSettings(queue=2, deadline_s=0.2))
    async with asyncio.timeout(20):
        waiting = [asyncio.create_task(made.voices(task(sound((1, 1.0))))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(EngineError) as full:
            await made.voices(task(sound((1, 1.0))))
        late = await asyncio.gather(*waiting, return_exceptions=True)
        gate.set()
        await made.close()
    assert (full.value.cause, full.value.retryable) == ("overloaded", True)
    assert [e.cause for e in late if isinstance(e, EngineError)] == ["deadline", "deadline"]
    assert (made.counters["speaker_refused"], made.counters["speaker_late"]) == (1, 2)


async def test_given_up_tasks_hold_their_place_until_the_thread_is_free() -> None:
    gate = threading.Event()
    made = encoder(Segmentation(gate), EncoderSettings(queue=1, deadline_s=0.05))
    async with asyncio.timeout(20):
        with pytest.raises(EngineError, match="no voices within"):
            await made.voices(task(sound((1, 1.0))))
        with pytest.raises(EngineError) as full:
            await made.voices(task(sound((1, 1.0))))
        gate.set()
        await made.close()
    assert full.value.cause == "overloaded"


async def test_a_failure_of_the_runtime_is_an_engine_error() -> None:
    class Broken(Segmentation):
        def run(self, names: None, feeds: Mapping[str, Floats]) -> Sequence[Floats]:
            raise RuntimeError("out of memory")

    made = encoder(Broken())
    with pytest.raises(EngineError, match="out of memory") as caught:
        await made.voices(task(sound((1, 1.0))))
    assert caught.value.cause == "speakers"
    await made.close()


async def test_after_close_nothing_is_started_and_what_waits_fails() -> None:
    gate = threading.Event()
    made = encoder(Segmentation(gate))
    async with asyncio.timeout(20):
        work = [asyncio.create_task(made.voices(task(sound((1, 1.0))))) for _ in range(2)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(made.close())
        await asyncio.sleep(0)
        gate.set()
        first, second = await asyncio.gather(*work, return_exceptions=True)
        await closing
        await made.close()
        with pytest.raises(EngineError) as caught:
            await made.voices(task(sound((1, 1.0))))
    assert not isinstance(first, BaseException)
    assert isinstance(second, EngineError)
    assert second.cause == caught.value.cause == "closed"


@pytest.mark.parametrize("bad", [{"window_s": 0.0}, {"deadline_s": -1.0}, {"threads": 0}, {"queue": 0}])
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="speakers: "):
        EncoderSettings(**bad)  # type: ignore[arg-type]


class Listening(Embedding):
    """Tells how long what it heard was, seconds."""

    def __init__(self) -> None:
        self.heard: list[float] = []

    def run(self, names: None, feeds: Mapping[str, Floats]) -> Sequence[Floats]:
        self.heard.append(round(feeds["features"].shape[1] / 100, 1))
        return super().run(names, feeds)


async def test_tags_tell_the_voices_of_windows_of_any_length() -> None:
    """Each is heard where it speaks alone, its longest stretches, no more at once than the networks know."""
    embedding = Listening()
    made = Encoder(Networks(Segmentation(), embedding, Pooling()))
    audio = sound((1, 20.0), (2, 3.0), (1, 1.0), (0, 16.0))
    tags = (((0, 20 * S), (23 * S, 24 * S)), ((20 * S, 23 * S),), ((19 * S, 20 * S),), ())
    async with asyncio.timeout(20):
        window = await made.voices(task(audio, tags=tags))
        with pytest.raises(EngineError, match="longer than"):
            await made.voices(task(audio))
        await made.close()
    assert [voice.vector is None for voice in window.speakers] == [False, False, True, True]
    assert embedding.heard == [10.0, 3.0]
    # The overlap of two tags is nobody's.
    assert abs(window.speakers[0].alone - 20 * S) < 0.05 * S
