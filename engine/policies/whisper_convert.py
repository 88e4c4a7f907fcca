"""CTranslate2 Whisper folders -> Hugging Face folders (safetensors, tokenizer, configs).

The packaged weights come in CTranslate2's own format, which SGLang and transformers do not read. The
conversion only renames and splits: every number stays bit for bit, in the precision it came in. numpy and
the standard library only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]

_BINARY_VERSION = 6
_TYPES: dict[int, str] = {0: "<f4", 1: "|i1", 2: "<i2", 3: "<i4", 4: "<f2"}
_SAFE_NAMES = {"float32": "F32", "float16": "F16"}
_MAX_NAME = 4096
MULTILINGUAL_VOCABULARY = 51_865
"""Smallest vocabulary of the models that know languages; the English-only ones list them too, untrained."""


class ConversionError(ValueError):
    """The source folder does not hold what it should; the message names it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one Whisper model, read off its weights."""

    width: int
    mel_bins: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_ffn: int
    decoder_ffn: int
    vocabulary: int
    audio_positions: int
    text_positions: int


def convert(source: Path, target: Path, *, model: Path | None = None) -> Shape:
    """Write `source` (a CTranslate2 Whisper folder) to `target` as a Hugging Face folder.

    `model` overrides `source/model.bin` for weights that come in parts elsewhere. An existing target is
    overwritten file by file. Raises `ConversionError` for anything that is not an unquantised Whisper,
    `OSError` for what cannot be read or written.
    """
    with open(model or source / "model.bin", "rb") as file:
        variables = read_variables(file)
    tensors = dict(_renamed(variables))
    shape = _shape(variables)
    tokenizer = json.loads((source / "tokenizer.json").read_text("utf-8"))
    config = json.loads((source / "config.json").read_text("utf-8"))
    names = {token["content"]: int(token["id"]) for token in tokenizer["added_tokens"]}
    _add_time_marks(tokenizer, names, shape.vocabulary)
    target.mkdir(parents=True, exist_ok=True)
    write_safetensors(target / "model.safetensors", tensors)
    dtype = str(tensors["model.decoder.embed_tokens.weight"].dtype)
    _dump(target / "tokenizer.json", tokenizer)
    _dump(target / "config.json", _model_config(shape, names, dtype))
    _dump(target / "generation_config.json", _generation_config(config, names, shape))
    _dump(target / "preprocessor_config.json", _extractor_config(shape))
    _dump(target / "tokenizer_config.json", _tokenizer_config(shape))
    return shape


def read_variables(file: BinaryIO) -> dict[str, Tensor]:
    """All tensors of a CTranslate2 model file by name; aliases are left out."""
    version, spec = _number(file, "<I"), _name(file)
    if version != _BINARY_VERSION or spec != "WhisperSpec":
        raise ConversionError(f"not a Whisper model this can read: format {version}, {spec!r}")
    _number(file, "<I")  # the spec's own revision: names and layouts have not changed with it
    found: dict[str, Tensor] = {}
    for _ in range(_number(file, "<I")):
        name = _name(file)
        rank = _number(file, "<B")
        dims = struct.unpack(f"<{rank}I", _exactly(file, 4 * rank))
        kind = _number(file, "<B")
        data = _exactly(file, _number(file, "<I"))
        if kind not in _TYPES:
            raise ConversionError(f"{name} has an unknown number type {kind}")
        found[name] = np.frombuffer(data, _TYPES[kind]).reshape(dims)
    return found


def write_safetensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write `tensors` (float16 or float32) in the safetensors format, in name order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        header[name] = {
            "dtype": _SAFE_NAMES[str(tensor.dtype)],
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(np.ascontiguousarray(tensors[name]).tobytes())


def _renamed(variables: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, tensor in variables.items():
        side, _, rest = name.partition("/")
        if rest in ("num_heads", "alignment_heads", "alignment_layer") or tensor.ndim == 0:
            continue
        if tensor.dtype.kind != "f":
            raise ConversionError(f"{name} is quantised ({tensor.dtype}): convert an unquantised model")
        parts = rest.split("/")
        if parts[0].startswith("layer_") and parts[0] != "layer_norm":
            layer = f"model.{side}.layers.{parts[0].removeprefix('layer_')}"
            yield from _layer(layer, parts[1:], tensor)
        else:
            yield f"model.{side}.{_top(parts)}", tensor


def _top(parts: list[str]) -> str:
    match parts:
        case ["embeddings", "weight"]:
            return "embed_tokens.weight"
        case ["position_encodings", "encodings"]:
            return "embed_positions.weight"
        case ["layer_norm", kind]:
            return f"layer_norm.{_norm(kind)}"
        case [("conv1" | "conv2") as conv, ("weight" | "bias") as kind]:
            return f"{conv}.{kind}"
    raise ConversionError(f"unexpected tensor {'/'.join(parts)}")


def _layer(layer: str, parts: list[str], tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    block, inner, kind = parts
    attention = {"self_attention": "self_attn", "attention": "encoder_attn"}.get(block)
    if inner == "layer_norm":
        name = f"{attention}_layer_norm" if attention else "final_layer_norm"
        yield f"{layer}.{name}.{_norm(kind)}", tensor
    elif attention is None:
        yield f"{layer}.{'fc1' if inner == 'linear_0' else 'fc2'}.{kind}", tensor
    else:
        roles = _ROLES[attention][int(inner.removeprefix("linear_"))]
        # One fused matrix holds query, key and value in a row. Where a bias is fused, the key's part is
        # zeros, and it is written out on purpose: SGLang fuses the three with one bias again.
        for role, part in zip(roles, np.split(tensor, len(roles)), strict=True):
            yield f"{layer}.{attention}.{role}.{kind}", part


_ROLES = {
    "self_attn": (("q_proj", "k_proj", "v_proj"), ("out_proj",)),
    "encoder_attn": (("q_proj",), ("k_proj", "v_proj"), ("out_proj",)),
}


def _norm(kind: str) -> str:
    return {"gamma": "weight", "beta": "bias"}[kind]


def _shape(variables: dict[str, Tensor]) -> Shape:
    def layers(side: str) -> int:
        return sum(1 for name in variables if name.startswith(side) and name.endswith("ffn/linear_0/weight"))

    try:
        conv = variables["encoder/conv1/weight"]
        return Shape(
            width=conv.shape[0],
            mel_bins=conv.shape[1],
            encoder_layers=layers("encoder/"),
            decoder_layers=layers("decoder/"),
            encoder_heads=int(variables["encoder/num_heads"]),
            decoder_heads=int(variables["decoder/num_heads"]),
            encoder_ffn=variables["encoder/layer_0/ffn/linear_0/weight"].shape[0],
            decoder_ffn=variables["decoder/layer_0/ffn/linear_0/weight"].shape[0],
            vocabulary=variables["decoder/embeddings/weight"].shape[0],
            audio_positions=variables["encoder/position_encodings/encodings"].shape[0],
            text_positions=variables["decoder/position_encodings/encodings"].shape[0],
        )
    except KeyError as error:
        raise ConversionError(f"the model has no {error.args[0]}") from None


def _add_time_marks(tokenizer: dict[str, Any], names: dict[str, int], vocabulary: int) -> None:
    """Name the time marks, which end the vocabulary: packaged tokenizers leave them out."""
    first = names["<|notimestamps|>"] + 1
    for rank in range(vocabulary - first):
        name = f"<|{rank * 0.02:.2f}|>"
        if name not in names:
            names[name] = first + rank
            tokenizer["added_tokens"].append(
                {
                    "id": first + rank,
                    "content": name,
                    "single_word": False,
                    "lstrip": False,
                    "rstrip": False,
                    "normalized": False,
                    "special": True,
                }
            )


def _model_config(shape: Shape, names: dict[str, int], dtype: str) -> dict[str, Any]:
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "is_encoder_decoder": True,
        "activation_function": "gelu",
        "d_model": shape.width,
        "num_mel_bins": shape.mel_bins,
        "encoder_layers": shape.encoder_layers,
        "encoder_attention_heads": shape.encoder_heads,
        "encoder_ffn_dim": shape.encoder_ffn,
        "decoder_layers": shape.decoder_layers,
        "decoder_attention_heads": shape.decoder_heads,
        "decoder_ffn_dim": shape.decoder_ffn,
        "num_hidden_layers": shape.encoder_layers,
        "vocab_size": shape.vocabulary,
        "max_source_positions": shape.audio_positions,
        "max_target_positions": shape.text_positions,
        "decoder_start_token_id": names["<|startoftranscript|>"],
        "bos_token_id": names["<|endoftext|>"],
        "eos_token_id": names["<|endoftext|>"],
        "pad_token_id": names["<|endoftext|>"],
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "torch_dtype": dtype,
    }


def _generation_config(config: dict[str, Any], names: dict[str, int], shape: Shape) -> dict[str, Any]:
    languages = {name: i for name, i in names.items() if i in set(config.get("lang_ids", ()))}
    multilingual = shape.vocabulary >= MULTILINGUAL_VOCABULARY
    found: dict[str, Any] = {
        "alignment_heads": config.get("alignment_heads"),
        "begin_suppress_tokens": config.get("suppress_ids_begin"),
        "suppress_tokens": config.get("suppress_ids"),
        "decoder_start_token_id": names["<|startoftranscript|>"],
        "bos_token_id": names["<|endoftext|>"],
        "eos_token_id": names["<|endoftext|>"],
        "pad_token_id": names["<|endoftext|>"],
        "prev_sot_token_id": names["<|startofprev|>"],
        "no_timestamps_token_id": names["<|notimestamps|>"],
        "max_length": shape.text_positions,
        "max_initial_timestamp_index": 50,
        "is_multilingual": multilingual,
        "return_timestamps": False,
    }
    if multilingual:
        found["lang_to_id"] = languages
        found["task_to_id"] = {"transcribe": names["<|transcribe|>"], "translate": names["<|translate|>"]}
    return found


def _extractor_config(shape: Shape) -> dict[str, Any]:
    return {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": shape.mel_bins,
        "sampling_rate": 16000,
        "hop_length": 160,
        "n_fft": 400,
        "chunk_length": 30,
        "n_samples": 480000,
        "nb_max_frames": 3000,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": False,
    }


def _tokenizer_config(shape: Shape) -> dict[str, Any]:
    end = "<|endoftext|>"
    return {
        "tokenizer_class": "WhisperTokenizer",
        "processor_class": "WhisperProcessor",
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": end,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": shape.text_positions,
    }


def _dump(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) != size:
        raise ConversionError("the model file ends too early")
    return data


def _number(file: BinaryIO, layout: str) -> int:
    value: int = struct.unpack(layout, _exactly(file, struct.calcsize(layout)))[0]
    return value


def _name(file: BinaryIO) -> str:
    size = _number(file, "<H")
    if size > _MAX_NAME:
        raise ConversionError("the model file is not in this format")
    return _exactly(file, size).rstrip(b"\0").decode("utf-8")
