"""From a model's folder to its serving policy: the one place that reads which family it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.kv import bytes_per_token
from engine.tokens import FileTokens

from . import load_policy
from .serving import ServingPolicy

MULTILINGUAL_VOCABULARY = 51_865
"""Smallest vocabulary of the Whisper models that know languages."""

_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


OMNI = ("moss_td", "fun_asr")
"""Policies of models that SGLang-Omni serves: named instead of opened, since nothing of theirs is read."""
_OMNI = {
    "MossTranscribeDiarizeForConditionalGeneration": "moss_td",
    "FunAsrNanoForConditionalGeneration": "fun_asr",
    "FunASRNano": "fun_asr",
    "FunASRForConditionalGeneration": "fun_asr",
}
"""What their folders call them."""


def open_named(name: str) -> ServingPolicy:
    """The policy of a model that SGLang-Omni serves; raises `LookupError` for others."""
    if name not in OMNI:
        raise LookupError(f"{name!r} is not served by SGLang-Omni; those are: {', '.join(OMNI)}")
    policy: ServingPolicy = load_policy(name)()
    return policy


def named_of(folder: Path) -> str | None:
    """The policy of a Hugging Face folder that SGLang-Omni serves; None for any other folder, or none."""
    try:
        architectures = _read(folder / "config.json").get("architectures") or ()
    except ValueError:
        return None
    return next((_OMNI[name] for name in architectures if name in _OMNI), None)


def open_serving(folder: Path) -> ServingPolicy:
    """The policy for a Hugging Face folder; raises `ValueError` for one that no policy knows."""
    config = _read(folder / "config.json")
    family = str(config.get("model_type", ""))
    try:
        opener = _OPENERS[family]
    except KeyError:
        known = ", ".join(sorted(_OPENERS))
        raise ValueError(
            f"{folder.name}: no policy for models of type {family!r}; there are: {known}"
        ) from None
    return opener(folder, config)


def convert_packaged(source: Path, target: Path) -> None:
    """Write packaged weights (CTranslate2 format) to `target` as a Hugging Face folder.

    Raises `ValueError` for what no policy can convert, `OSError` for what cannot be written.
    """
    from .whisper_convert import convert

    convert(source, target)


def _whisper(folder: Path, config: dict[str, Any]) -> ServingPolicy:
    from .whisper import WhisperPolicy
    from .whisper_serving import WhisperServing

    tokens = FileTokens.open(folder / "tokenizer.json")
    multilingual = int(config["vocab_size"]) >= MULTILINGUAL_VOCABULARY
    # SGLang numbers its attention layers through encoder, decoder and cross-attention, and gives each a
    # place in the cache, the encoder's included although nothing is ever read from there.
    layers = int(config["encoder_layers"]) + 2 * int(config["decoder_layers"])
    heads = int(config["decoder_attention_heads"])
    each = bytes_per_token(layers, heads, int(config["d_model"]) // heads, width=_width(config))
    return WhisperServing(WhisperPolicy(tokens, multilingual=multilingual), kv_bytes_per_token=each)


def _qwen3_asr(folder: Path, config: dict[str, Any]) -> ServingPolicy:
    from .qwen3_asr import Qwen3AsrServing

    text = config["thinker_config"]["text_config"]
    head = int(text.get("head_dim") or int(text["hidden_size"]) // int(text["num_attention_heads"]))
    each = bytes_per_token(
        int(text["num_hidden_layers"]), int(text["num_key_value_heads"]), head, width=_width(config)
    )
    return Qwen3AsrServing(kv_bytes_per_token=each)


def _width(config: dict[str, Any]) -> int:
    return _BYTES.get(str(config.get("torch_dtype") or config.get("dtype")), 2)


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is no model configuration")
    return found


_OPENERS: dict[str, Callable[[Path, dict[str, Any]], ServingPolicy]] = {
    "whisper": _whisper,
    "qwen3_asr": _qwen3_asr,
}
