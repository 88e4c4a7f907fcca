"""Flags follow from a model's facts; sets known to crash are refused with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from engine.policies.qwen3_asr import Qwen3AsrServing
from engine.policies.serving import ModelFacts
from engine.sglang.compat import DECODE_ROUNDS, adapt_flags, hold_prefill
from engine.sglang.flags import (
    LaunchSettings,
    Machine,
    as_arguments,
    environment,
    parse_arguments,
    plan_flags,
    refuse,
)

WHOLE = ModelFacts(
    native_s=30.0,
    audio_tokens_per_s=50.0,
    context_tokens=448,
    kv_bytes_per_token=18_432,
    chunked_prefill=False,
    prefix_cache=False,
)
PIECES = Qwen3AsrServing(kv_bytes_per_token=114_688).facts
GPU = Machine(memory_gib=139.0, flash_attention=False)


def test_prompts_that_must_stay_whole() -> None:
    flags = plan_flags(WHOLE, GPU, LaunchSettings())
    assert flags["chunked_prefill_size"] == -1
    assert flags["disable_radix_cache"] is True
    assert "enable_mixed_chunk" not in flags
    assert refuse(WHOLE, flags) == []


def test_prompts_that_may_be_cut() -> None:
    flags = plan_flags(PIECES, GPU, LaunchSettings(chunk=1024, mixed_chunk=True))
    assert flags["chunked_prefill_size"] == 1024
    assert flags["enable_mixed_chunk"] is True
    assert "disable_radix_cache" not in flags
    assert flags["attention_backend"] == "flashinfer"
    assert refuse(PIECES, flags) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"chunked_prefill_size": "2048"}, "assertion"),
        ({"chunked_prefill_size": None}, "default"),
        ({"enable_mixed_chunk": True}, "mixed"),
        ({"disable_radix_cache": False}, "prefix cache"),
        ({"context_length": "2048"}, "448"),
        ({"skip_tokenizer_init": True}, "text"),
        ({"device": "cpu", "mem_fraction_static": None}, "CPU"),
    ],
)
def test_sets_that_crash_are_refused(change: dict[str, object], word: str) -> None:
    reasons = refuse(WHOLE, plan_flags(WHOLE, GPU, LaunchSettings()) | change)
    assert len(reasons) == 1
    assert word in reasons[0]


def test_a_cpu_gets_what_it_needs() -> None:
    flags = plan_flags(WHOLE, Machine(), LaunchSettings())
    assert flags["device"] == "cpu"
    assert flags["mem_fraction_static"] > 0
    assert refuse(WHOLE, flags) == []
    assert environment(WHOLE, LaunchSettings(), Machine())["OMP_NUM_THREADS"] == "1"


def test_our_model_package_is_loaded_for_variable_windows_and_for_windows_as_items() -> None:
    loaded = environment(WHOLE, LaunchSettings(), GPU)
    plain = environment(WHOLE, LaunchSettings(variable_window=False), GPU)
    assert "SGLANG_EXTERNAL_MODEL_PACKAGE" in loaded
    assert "SGLANG_EXTERNAL_MODEL_PACKAGE" not in plain
    # Its front end hands over arrays, which only our model takes.
    pieces = environment(PIECES, LaunchSettings(variable_window=False), GPU)
    assert "SGLANG_EXTERNAL_MODEL_PACKAGE" in pieces
    assert "SGLANG_EXTERNAL_MM_PROCESSOR_PACKAGE" in plain


def test_several_schedulers_share_one_memory() -> None:
    one = plan_flags(PIECES, GPU, LaunchSettings())
    two = plan_flags(PIECES, GPU, LaunchSettings(schedulers=2, memory_fraction=0.5))
    assert "dp_size" not in one
    assert two["dp_size"] == 2
    assert PIECES.kv_bytes_per_token is not None
    assert GPU.memory_gib is not None
    held = 2 * two["max_total_tokens"] * PIECES.kv_bytes_per_token / (GPU.memory_gib * 2**30)
    assert held == pytest.approx(0.5, abs=1e-3)


def test_flags_travel_as_arguments_and_back() -> None:
    arguments = as_arguments({"port": 3, "enable_metrics": True, "stream": False, "log_level": "info"})
    assert arguments == ["--port", "3", "--enable-metrics", "--log-level", "info"]
    assert parse_arguments([*arguments, "--mem-fraction-static=0.5"]) == {
        "port": "3",
        "enable_metrics": True,
        "log_level": "info",
        "mem_fraction_static": "0.5",
    }
    assert parse_arguments(["--served-name=", "--port", "3"]) == {"served_name": "", "port": "3"}
    with pytest.raises(ValueError, match="'x' is not a flag"):
        parse_arguments(["--served-name=", "x"])
    with pytest.raises(ValueError, match="not a flag"):
        parse_arguments(["loose"])


def test_older_versions_are_not_given_flags_they_do_not_know() -> None:
    flags = {"prefill_decode_interval": 2, "chunked_prefill_size": 512}
    assert adapt_flags(flags, (0, 5, 17)) == {"chunked_prefill_size": 512}
    assert adapt_flags(flags, (0, 5, 23)) == flags
    assert adapt_flags(flags, None) == flags


def test_priorities_are_a_setting() -> None:
    on, off = (plan_flags(PIECES, GPU, LaunchSettings(priorities=value)) for value in (True, False))
    assert on["enable_priority_scheduling"] is True
    assert "enable_priority_scheduling" not in off


def test_facts_are_values() -> None:
    assert replace(WHOLE, native_s=20.0).native_s == 20.0


@dataclass
class _Batch:
    requests: int

    def is_empty(self) -> bool:
        return self.requests == 0


@dataclass
class _Plan:
    batch_to_run: str | None
    running_batch: _Batch


def test_decode_steps_between_two_prefill_batches() -> None:
    class Scheduler:
        waiting = 3

        def get_new_batch_prefill(self, running_batch: _Batch) -> _Plan:
            self.waiting -= 1
            return _Plan("prefill" if self.waiting >= 0 else None, running_batch)

    hold_prefill(Scheduler, 2, _Plan)
    scheduler, other = Scheduler(), Scheduler()

    def steps(of: Scheduler, running: int, count: int) -> list[str | None]:
        return [of.get_new_batch_prefill(_Batch(running)).batch_to_run for _ in range(count)]

    # None: nothing to prefill in this step, so the scheduler decodes.
    assert steps(scheduler, 7, 5) == ["prefill", None, None, "prefill", None]
    assert steps(scheduler, 0, 1) == ["prefill"], "with nothing to decode nobody is kept waiting"
    assert steps(other, 7, 2) == ["prefill", None], "each scheduler counts its own steps"
    assert other.waiting == 2, "what waits is not looked at while it is held"


@pytest.mark.parametrize("facts", [WHOLE, PIECES])
def test_live_streams_decode_while_others_come_in(facts: ModelFacts) -> None:
    settings = LaunchSettings(decode_rounds=4)
    flags = plan_flags(facts, GPU, settings)
    assert flags["prefill_decode_interval"] == 4
    assert flags["prefill_decode_interval_min_bs"] == 1
    # What an old SGLang does not know by flag its schedulers learn by the environment.
    assert environment(facts, settings, GPU)[DECODE_ROUNDS] == "4"
    assert "prefill_decode_interval" not in plan_flags(facts, GPU, LaunchSettings(decode_rounds=0))
