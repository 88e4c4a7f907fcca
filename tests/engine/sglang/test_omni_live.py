"""What the measurement of live streams makes of its files, and that its outputs have a fixed length."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from engine.contract import Finish, Priority, RecognitionTask, Word
from engine.guards import TokenGuard
from engine.policies.serving import Reply
from engine.policies.verdict import judged
from engine.sglang.bench.omni.engines import cache
from engine.sglang.bench.omni.fixed import SPLIT, VARIABLE, FixedServing
from engine.sglang.bench.omni.live import Case, classes, line, output
from engine.sglang.bench.omni.recording import compared, loud
from engine.sglang.bench.omni.tuned import with_factory
from engine.sglang.omni import versions


def test_delays_go_by_kind_and_what_failed_is_counted_apart() -> None:
    rows = [{"kind": "refresh", "took": t / 100, "audio_s": 8.0, "cause": None} for t in range(1, 101)]
    rows += [{"kind": "refresh", "took": 9.0, "audio_s": 8.0, "cause": "CancelledError"}]
    rows += [{"kind": "final", "took": 2.0, "audio_s": 24.0, "cause": "deadline"}]
    found = classes(rows)
    assert found["refresh"]["count"] == 100
    assert found["refresh"]["failed"] == {"CancelledError": 1}
    assert (found["refresh"]["p50"], found["refresh"]["p99"]) == pytest.approx((0.505, 0.99), abs=0.011)
    assert (found["final"]["count"], found["final"]["p95"]) == (0, None)


def test_the_cache_is_compared_with_the_formula(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("KV Cache is allocated. #tokens: 668980, K size: 35.73 GB, V size: 35.73 GB\n", "utf-8")
    found = cache(log, {"fraction": 0.6, "memory_gib": 122.14})
    assert found is not None
    assert found["positions"] == 668_980
    assert found["share"] == pytest.approx(1.015, abs=0.001)
    assert found["bytes_per_position"] == pytest.approx(114_697, abs=10)


def test_cases_and_lines() -> None:
    assert Case.parse("30:150:5400") == Case(30, 150.0, 5400.0)
    with pytest.raises(ValueError, match=re.escape("streams[:seconds[:recording]]")):
        Case.parse("1:2:3:4")
    decodes = {"refresh": {"p50": 0.1, "p95": 0.2, "p99": 0.3, "count": 5, "failed": {}}}
    row = {"case": {"streams": 2}, "decodes": decodes, "recording": None, "live_audio_s_per_s": 3.2, "gpu": 7}
    assert "| 0.10 / 0.20 / 0.30 | - / - / - |" in line(row)


def test_outputs_fill_their_budget_and_are_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "6.45:2:/dev/null")
    audio = np.full(16_000 * 10, 0.1, np.float32)
    audio[:16_000] = 0.0
    known = (Word("w2", 16_000, 24_000),)
    task = RecognitionTask("t", "s", audio, 0, Priority.FINAL, prefix=known)
    policy = FixedServing()
    ask = policy.ask(task, None)
    assert ask.max_new_tokens == 65
    assert (
        policy.ask(RecognitionTask("t", "s", np.tile(audio, 9), 0, Priority.BATCH), None).max_new_tokens
        == 180
    )
    text = "abcd " * 65
    assert TokenGuard(ask.guard).feed((), text) is None
    heard, alarm = judged(task, Reply((), text), policy.read(task, ask, Reply((), text)))
    assert (heard.finish, alarm) == (Finish.STOP, None)
    assert [word.text for word in heard.words] == [f"w{slot}" for slot in range(3, 20)]


def test_a_recording_is_split_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert FixedServing().facts.recording_s == 5400.0
    monkeypatch.setenv(SPLIT, "1")
    assert FixedServing().facts.recording_s is None


def test_words_of_a_recording_are_looked_for_one_by_one() -> None:
    pcm = np.zeros(16_000 * 3, "<i2")
    pcm[8_000:16_000] = pcm[24_000:32_000] = 3_000
    assert loud(pcm.tobytes()) == [1, 3]
    assert compared("w1 w3", pcm.tobytes()) == {"words": 2, "due": 2, "missing": 0, "twice": 0}
    found = compared("w1 w1 w2", pcm.tobytes())
    assert (found["missing"], found["twice"], found["first_missing"]) == (1, 1, ["w3"])


def test_output_is_what_the_engine_counted_by_the_audio_it_counted() -> None:
    common = {"kind": "refresh", "took": 1.0, "cause": None, "chars": 5, "asked": 65, "audio_s": 10.0}
    rows: list[dict[str, object]] = [
        {**common, "pid": 1, "output_tokens": 65},
        {**common, "pid": 1, "output_tokens": 130},
        {**common, "pid": 2, "output_tokens": 65},
        {**common, "pid": 2, "output_tokens": 65, "cause": "CancelledError"},
        {**common, "kind": "batch", "asked": 2_000, "audio_s": 1_000.0, "pid": 2, "output_tokens": 65},
    ]
    found = output(rows)
    assert found["tokens_per_audio_s"] == pytest.approx(6.5)
    assert [one["asked"] for one in found["recording"]] == [2_000]


@pytest.mark.parametrize("version", versions.PINS)
def test_other_settings_of_the_stage_reach_its_factory(version: versions.Version) -> None:
    plain = versions.config(version, "P", "/m", versions.Stage(8))
    made = with_factory(plain, {"request_build_max_workers": 3})
    whole = (
        made["runtime_overrides"]["asr"]
        if version < versions.STAGES_IN_FILE
        else made["stages"]["asr"]["factory"]
    )
    assert whole["request_build_max_workers"] == 3
    assert whole["request_build_max_pending"] == 16
    assert "request_build_max_workers" not in str(plain)
