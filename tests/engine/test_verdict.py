"""Broken outputs under every policy, from the token stream to the session: stopped, asked again otherwise,
counted, and at last a gap."""

from __future__ import annotations

import numpy as np
import pytest

from engine.contract import Finish, Hypothesis, Priority, RecognitionTask, Word, join
from engine.guards import Alarm
from engine.policies.serving import Reply
from engine.policies.verdict import before_loop, judged
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.transport import Part

from .adapters import MODELS, encoded, tokens
from .real import needs_weights
from .sglang.scripted import MemoryTransport
from .traces import Speaker, Trace, play

pytestmark = needs_weights("base")  # its vocabulary
RATE = 16_000
LAUGHTER = "so " + "ha " * 400
SENTENCE = "Good morning to all of you and welcome."
every = pytest.mark.parametrize("model", MODELS)


def noise(seconds: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return (np.random.default_rng(7).standard_normal(round(seconds * RATE)) * 0.1).astype(np.float32)


def task(seconds: float = 9.7, **changes: object) -> RecognitionTask:
    values: dict[str, object] = {
        "id": "t",
        "session": "s",
        "audio": noise(seconds),
        "start": 0,
        "priority": Priority.FINAL,
        "language": "en",
    }
    return RecognitionTask(**values | changes)  # type: ignore[arg-type]


def trace(text: str, finish: str = "stop", step: int = 8) -> list[Part]:
    """The parts of an output, token by token of a real vocabulary."""
    ids = encoded(text.encode())
    pieces = [tokens().piece(token) for token in ids]
    ends = [*range(step, len(ids), step), len(ids)]
    return [
        Part(
            tuple(ids[:end]),
            b"".join(pieces[:end]).decode("utf-8", "replace"),
            finish if end == len(ids) else None,
        )
        for end in ends
    ]


def recognizer(model: str, parts: list[Part]) -> tuple[SglangRecognizer, MemoryTransport]:
    transport = MemoryTransport(parts)
    return SglangRecognizer(transport, MODELS[model].policy(), ClientSettings(model="m")), transport


@every
async def test_the_laughter_loop_is_aborted_and_asked_for_again_otherwise(model: str) -> None:
    engine, transport = recognizer(model, trace(LAUGHTER, "length"))
    for attempt in range(3):
        found = await engine.recognize(task(attempt=attempt, context="Earlier words.", hotwords=("Ann",)))
        assert found.finish is Finish.LOOP
        assert join(found.words) == "so ha", "no more of it than its first round is text"
    assert transport.aborted == [request.rid for request in transport.requests]
    first, *others = transport.requests
    asked = [(r.text, r.input_ids, r.sampling["temperature"]) for r in transport.requests]
    assert len(set(asked)) == 3, "every rung asks otherwise"
    assert first.sampling["temperature"] == 0.0
    assert others[-1].sampling["temperature"] in (0.1, 0.2)
    assert engine.counters["alarm_loop"] == engine.counters["finish_loop"] == 3
    assert engine.counters["rung_1"] == engine.counters["rung_2"] == 1


@every
async def test_a_loop_that_stays_is_a_gap_and_no_text(model: str) -> None:
    engine, transport = recognizer(model, trace(LAUGHTER, "length"))
    heard = await play(engine, Speaker(Trace("laughter", SENTENCE, 9.7)))
    assert (heard.words, heard.gaps) == ([], {"loop"})
    assert len(transport.aborted) == len(transport.requests)
    assert engine.counters["rung_2"] >= 1


@every
async def test_silent_truncation_leaves_its_audio_without_words(model: str) -> None:
    # One sentence out of 25 s of sound, and the engine says "stop".
    text = f"[0.00][S01]{SENTENCE}[3.00]" if model == "moss_td" else SENTENCE
    engine, _ = recognizer(model, trace(text))
    found = await engine.recognize(task(25.0))
    assert join(found.words) == SENTENCE
    assert found.words[-1].end < 10 * RATE
    assert engine.counters["alarm_short"] == 1


@every
async def test_a_whole_output_raises_no_alarm(model: str) -> None:
    text = f"[0.00][S01]{SENTENCE}[3.00]" if model == "moss_td" else SENTENCE
    engine, _ = recognizer(model, trace(text))
    found = await engine.recognize(task(3.0))
    assert (join(found.words), found.finish) == (SENTENCE, Finish.STOP)
    assert not [word for word in engine.counters if word.startswith(("alarm", "error"))]


@every
async def test_text_out_of_digital_silence_is_left_out(model: str) -> None:
    engine, _ = recognizer(model, trace("Thank you for watching."))
    found = await engine.recognize(task(audio=np.zeros(4 * RATE, np.float32)))
    assert (found.words, found.finish) == ((), Finish.STOP)


@every
async def test_an_output_at_its_budget_is_a_cut_one(model: str) -> None:
    engine, _ = recognizer(model, trace(SENTENCE, "length"))
    assert (await engine.recognize(task(3.0))).finish is Finish.LENGTH
    assert engine.counters["alarm_length"] == 1


def test_a_recording_that_ends_early_is_a_cut_one() -> None:
    # Seed 1: 38.7 minutes came back with a third of their text, as a success.
    heard = Hypothesis((Word("so", 0, 856 * RATE),))
    long = task(0.1, audio=np.tile(noise(10.0), 232))
    found, alarm = judged(long, Reply((), "so"), heard)
    assert (found.finish, alarm) == (Finish.LENGTH, Alarm.SHORT)
    whole = Hypothesis((Word("so", 0, 2319 * RATE),))
    assert judged(long, Reply((), "so"), whole) == (whole, None)


def test_a_long_output_that_loops_keeps_what_it_said_before() -> None:
    def said(text: str) -> tuple[Word, ...]:
        return tuple(Word(w, i * 8_000, i * 8_000 + 8_000) for i, w in enumerate(text.split()))

    loop = said("and so it began ha ha ha ha ha ha")
    assert before_loop(loop) == loop[:5]
    assert before_loop(said("we go and come and go")) == ()
    phrase = said("first " + "i said no " * 5)
    assert before_loop(phrase) == phrase[:4]
    minutes = RecognitionTask("t", "s", np.ones(120 * 16_000, np.float32), 0, Priority.FINAL)
    judgement, alarm = judged(minutes, Reply((), "", alarm=Alarm.LOOP), Hypothesis(loop))
    assert (judgement.words, judgement.finish, alarm) == (loop[:5], Finish.LENGTH, Alarm.LOOP)
    short = RecognitionTask("t", "s", minutes.audio[: 20 * 16_000], 0, Priority.FINAL)
    assert judged(short, Reply((), "", alarm=Alarm.LOOP), Hypothesis(loop))[0].finish is Finish.LOOP
