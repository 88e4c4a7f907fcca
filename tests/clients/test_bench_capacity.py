"""How many streams are held: which count, and what they are compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clients.audio import RATE
from clients.bench.capacity import Step, numbers, open_door, row, unhurried
from clients.bench.corpus import Clip
from clients.bench.load import Plan, script
from clients.bench.load_report import Figures
from clients.bench.scoring import Errors
from clients.stats import Summary, summarize

CLIPS = [Clip(f"clip {n}", np.zeros(RATE * n, np.int16), f"word{n}", "en") for n in (2, 3, 5)]


def figures(p95: float = 3.0, **more: object) -> Figures:
    made = Figures(
        streams=4,
        processes=1,
        steady_s=60.0,
        audio_s=240.0,
        words=500,
        commit=Summary(500, 1.0, 1.0, p95, 4.5, 5.0),
        commit_all=summarize([1.0]),
        first_text=summarize([0.5]),
        final=summarize([0.5]),
        errors=Errors(10, 0, 0, 100),
        revised=0,
        coverage=1.0,
        updates_per_s=1.0,
        lag=summarize([0.0]),
        resumes=0,
        faults=0,
        cpu_s_per_audio_s=0.05,
        bench_cpu_s_per_audio_s=0.01,
        rss_max_mib=300.0,
    )
    return replace(made, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "faults", "held"),
    [
        (figures(), [], True),
        (figures(4.0), [], True),
        (figures(4.01), [], False),
        (figures(commit=Summary()), [], False),
        (figures(revised=1), [], False),
        (figures(coverage=0.99), [], False),
        (figures(), ["stream 2: lost"], False),
    ],
)
def test_a_stream_is_held_that_is_served_whole_and_in_time(
    found: Figures, faults: list[str], held: bool
) -> None:
    step = Step(found, None, faults)
    assert step.holds(4.0) is held
    assert row(step, 4.0)[-1] == ("yes" if held else "no")
    assert step.worse is None


def test_offline_errors_count_as_often_as_a_clip_is_spoken() -> None:
    plan = Plan("", 3, 20.0, 5.0)
    read = {clip.name: Errors(substitutions=index, length=10) for index, clip in enumerate(CLIPS)}
    found = unhurried(plan, CLIPS, read)
    said = [clip.name for number in range(3) for _, clip in script(CLIPS, number, plan).turns]
    assert found.length == 10 * len(said)
    assert found.count == said.count("clip 3") + 2 * said.count("clip 5")
    step = Step(figures(), found, [])
    assert step.worse == pytest.approx(0.1 - found.rate)


def test_numbers_of_streams() -> None:
    assert numbers("30,1,8,8") == [1, 8, 30]
    for wrong in ("", "0,2", "1,x", "-3"):
        with pytest.raises(ValueError, match="--streams"):
            numbers(wrong)


def test_the_server_lets_everybody_in() -> None:
    with open_door(["--no-speakers"], 30) as served:
        assert served[:1] == ["--no-speakers"]
        with open(served[-1], encoding="utf-8") as file:
            text = file.read()
    assert "on = false" in text
    assert "max_sessions = 31" in text
