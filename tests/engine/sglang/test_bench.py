"""What the GPU bench measures with: a small model made large, an engine without a model, cases."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.policies.whisper_convert import write_safetensors
from engine.sglang.bench.kinds import KINDS, OTHERS, between, kind_of, processes
from engine.sglang.bench.standin import WORDS_PER_S, Asked, answer
from engine.sglang.bench.streams import Case, engine_command
from engine.sglang.bench.widened import read_safetensors, widened

Tensor = npt.NDArray[Any]
WIDTH, HEADS, INNER, MELS, WORDS = 8, 2, 16, 4, 11


def tensors() -> Iterator[tuple[str, Tensor]]:
    dice = np.random.default_rng(3)

    def made(*shape: int) -> Tensor:
        return dice.standard_normal(shape).astype(np.float16)

    def linear(name: str, out: int, into: int) -> Iterator[tuple[str, Tensor]]:
        yield f"{name}.weight", made(out, into)
        yield f"{name}.bias", made(out)

    for side in ("encoder", "decoder"):
        at = f"model.{side}.layers.0."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield from linear(f"{at}self_attn.{name}", WIDTH, WIDTH)
        yield from linear(f"{at}fc1", INNER, WIDTH)
        yield from linear(f"{at}fc2", WIDTH, INNER)
        for name in (f"{at}final_layer_norm", f"model.{side}.layer_norm"):
            yield f"{name}.weight", made(WIDTH)
            yield f"{name}.bias", made(WIDTH)
        yield f"model.{side}.embed_positions.weight", made(5, WIDTH)
    for number, into in ((1, MELS), (2, WIDTH)):
        yield f"model.encoder.conv{number}.weight", made(WIDTH, into, 3)
        yield f"model.encoder.conv{number}.bias", made(WIDTH)
    yield "model.decoder.embed_tokens.weight", made(WORDS, WIDTH)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], dict[str, Tensor], Any]:
    small = tmp_path_factory.mktemp("small")
    write_safetensors(small / "model.safetensors", dict(tensors()))
    config = {"d_model": WIDTH, "encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    config |= {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER}
    (small / "config.json").write_text(json.dumps(config))
    (small / "tokenizer.json").write_text("{}")
    large = widened(small, small / "large", times=3, layers=4)
    assert (large / "tokenizer.json").is_file()
    found = [read_safetensors(folder / "model.safetensors") for folder in (small, large)]
    return found[0], found[1], json.loads((large / "config.json").read_text())


def test_the_large_model_has_its_shape(models: Any) -> None:
    _, large, config = models
    assert config["d_model"] == 3 * WIDTH
    assert config["encoder_layers"] == 4
    assert config["encoder_ffn_dim"] == 3 * INNER
    assert config["decoder_attention_heads"] == 3 * HEADS
    assert large["model.encoder.layers.3.fc1.weight"].shape == (3 * INNER, 3 * WIDTH)
    assert large["model.decoder.embed_tokens.weight"].shape == (WORDS, 3 * WIDTH)
    assert large["model.encoder.conv2.weight"].shape == (3 * WIDTH, 3 * WIDTH, 3)
    assert not any("decoder.layers.1" in name for name in large)
    assert all(np.count_nonzero(t) > t.size / 2 for t in large.values() if t.ndim == 2)


@pytest.mark.parametrize("name", ["encoder.layers.0.self_attn.q_proj", "decoder.layers.0.fc1"])
def test_what_reads_the_copies_reads_what_it_read(models: Any, name: str) -> None:
    small, large, _ = models
    stream = np.random.default_rng(5).standard_normal((7, WIDTH)).astype(np.float32)
    copies = np.tile(stream, 3)
    real = len(small[f"model.{name}.weight"])
    for read in (stream @ small[f"model.{name}.weight"].T.astype(np.float32),):
        made = copies @ large[f"model.{name}.weight"].T.astype(np.float32)
        assert np.allclose(made[:, :real], read, atol=0.02)


@pytest.mark.parametrize("name", ["encoder.layers.0.self_attn.out_proj", "decoder.layers.0.fc2"])
def test_what_writes_writes_every_copy_and_nothing_of_strangers(models: Any, name: str) -> None:
    small, large, _ = models
    weight = small[f"model.{name}.weight"].astype(np.float32)
    units = np.random.default_rng(5).standard_normal((7, weight.shape[1])).astype(np.float32)
    strange = np.concatenate([units, np.full((7, 2 * weight.shape[1]), 5.0, np.float32)], 1)
    made = strange @ large[f"model.{name}.weight"].T.astype(np.float32)
    assert np.allclose(made, np.tile(units @ weight.T, 3), atol=0.01)


def test_words_are_read_off_all_copies_as_off_one(models: Any) -> None:
    small, large, _ = models
    stream = np.random.default_rng(5).standard_normal((7, WIDTH)).astype(np.float32)
    logits = []
    for model, times in ((small, 1), (large, 3)):
        scale, shift = (model[f"model.decoder.layer_norm.{n}"].astype(np.float32) for n in ("weight", "bias"))
        normed = np.tile(stream, times) * scale + shift
        logits.append(normed @ model["model.decoder.embed_tokens.weight"].T.astype(np.float32))
    assert np.allclose(logits[0], logits[1], atol=0.02)


def test_added_layers_change_nothing_to_speak_of(models: Any) -> None:
    _, large, _ = models
    for name in ("self_attn.out_proj", "fc2"):
        assert np.abs(large[f"model.encoder.layers.2.{name}.weight"]).max() < 2e-5
        assert not large[f"model.encoder.layers.2.{name}.bias"].any()


def test_a_model_is_not_made_shallower(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"encoder_layers": 4}))
    with pytest.raises(ValueError, match="--layers 2"):
        widened(tmp_path, tmp_path / "large", layers=2)


def asked(seconds: float, prompt: list[int]) -> Asked:
    return Asked("r", "x" * round(64 + seconds * 32_000 * 4 / 3), prompt)


def test_the_stand_in_goes_on_after_what_was_forced() -> None:
    words = list(range(100, 200))
    places = {id: place for place, id in enumerate(words)}
    first, prompt = answer(asked(4.0, [1, 2]), words, places)
    assert first == words[: round(4 * WORDS_PER_S)]
    assert prompt == 2
    more, _ = answer(asked(6.0, [1, 2, *first]), words, places)
    assert more == words[10:15]
    # A new window after earlier text: nothing is forced in it, but the text goes on.
    fresh, _ = answer(asked(2.0, [3, *words[:7], 1, 2]), words, places)
    assert fresh == words[7:12]


def test_cases_say_what_they_are_or_are_refused() -> None:
    assert Case.parse("tiny:1000:10:16") == Case("tiny", 1000, 10, 16)
    assert Case.parse("large:400:8:8:25").seconds == 25.0
    with pytest.raises(ValueError, match="model:streams:fronts"):
        Case.parse("tiny:1000")
    with pytest.raises(ValueError, match="speak longer"):
        Case.parse("tiny:4:1:0:8")
    varied = Case.parse("tiny:1000:12:0:40+session.max_delay_s=2.6+engines=2+packet_ms=200+stacks=1")
    assert (varied.engines, varied.packet_ms, varied.stacks) == (2, 200, 1)
    assert varied.settings == {"session.max_delay_s": "2.6"}
    assert varied.name == "tiny-1000-12-0-engines=2-packet_ms=200-max_delay_s=2.6"
    with pytest.raises(ValueError, match="fronts is no setting"):
        Case.parse("tiny:4:1:0:9+fronts=3")
    with pytest.raises(ValueError, match="name=value"):
        Case.parse("tiny:4:1:0:9+stacks")


def test_processes_are_told_apart_by_their_command_lines() -> None:
    lines = {
        b"sglang::scheduler\0": "scheduler",
        b"python3\0-m\0sglang.launch_server\0--model-path\0m\0": "tokenizer",
        b"python3\0-m\0streaming\0serve\0--processes\x002\0--inherit\x005\0": "front",
        b"python3\0-m\0streaming\0serve\0--processes\x002\0": "others",
        b"python3\0-c\0from multiprocessing.spawn import spawn_main; ...\0": "speakers",
        b"": "others",
    }
    assert {line: kind_of(line) for line in lines} == lines


def test_cores_are_those_of_the_time_between_two_looks() -> None:
    before = {1: ("front", 4.0), 2: ("front", 1.0), 3: ("scheduler", 7.0)}
    after = {1: ("front", 5.0), 2: ("front", 3.0), 4: ("tokenizer", 0.5)}
    found = between(before, after, 2.0, 10.0)
    assert found.all == {"front": 1.5, "tokenizer": 0.25}
    assert found.most == {"front": 1.0, "tokenizer": 0.25}
    assert str(found) == "1.8 cores at 10 s: front 1.5 (one 1.00), tokenizer 0.2 (one 0.25)"


def test_this_process_is_among_those_seen() -> None:
    kind, spent = processes()[os.getpid()]
    assert kind in {kind for kind, _ in KINDS} | {OTHERS}
    assert spent > 0


def test_engines_are_started_as_an_operator_starts_them() -> None:
    options = argparse.Namespace(standin=False, running=96, tokenizers=2, positions=1000)
    command = engine_command("tiny", Path("m"), 31000, options)
    assert command[1:5] == ["-m", "streaming", "engine", "m"]
    assert command[command.index("--") + 1 :] == [
        "--log-level",
        "info",
        "--log-level-http",
        "warning",
        "--max-total-tokens",
        "1000",
        "--mem-fraction-static",
        "0.9",
    ]
