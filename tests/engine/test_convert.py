"""Packaged weights as a Hugging Face folder: names, shapes and every number, without either library."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.policies.whisper_convert import ConversionError, convert

WIDTH, FFN, WORDS, MARKS = 4, 8, 10, 5
CODES = {"float32": 0, "int8": 1, "int16": 2, "float16": 4}
CONTROL = ("<|endoftext|>", "<|startoftranscript|>", "<|startofprev|>", "<|notimestamps|>")


def variables() -> dict[str, np.ndarray[Any, Any]]:
    """A model of one layer a side, every tensor different."""
    random = np.random.default_rng(4)

    def tensor(*shape: int) -> np.ndarray[Any, Any]:
        return random.standard_normal(shape).astype(np.float16)

    found: dict[str, np.ndarray[Any, Any]] = {
        "encoder/conv1/weight": tensor(WIDTH, 80, 3),
        "encoder/conv1/bias": tensor(WIDTH),
        "encoder/position_encodings/encodings": tensor(6, WIDTH),
        "decoder/position_encodings/encodings": tensor(7, WIDTH),
        "decoder/embeddings/weight": tensor(WORDS + len(CONTROL) + MARKS, WIDTH),
        "encoder/num_heads": np.array(2, np.int16),
        "decoder/num_heads": np.array(2, np.int16),
        "decoder/scale_embeddings": np.array(0, np.int8),
        "decoder/alignment_heads": np.array(1, np.int16),
    }
    for side in ("encoder", "decoder"):
        found[f"{side}/layer_norm/gamma"] = tensor(WIDTH)
        found[f"{side}/layer_norm/beta"] = tensor(WIDTH)
        at = f"{side}/layer_0"
        found |= {
            f"{at}/self_attention/linear_0/weight": tensor(3 * WIDTH, WIDTH),
            f"{at}/self_attention/linear_0/bias": tensor(3 * WIDTH),
            f"{at}/self_attention/linear_1/weight": tensor(WIDTH, WIDTH),
            f"{at}/self_attention/layer_norm/gamma": tensor(WIDTH),
            f"{at}/ffn/linear_0/weight": tensor(FFN, WIDTH),
            f"{at}/ffn/linear_1/weight": tensor(WIDTH, FFN),
            f"{at}/ffn/layer_norm/beta": tensor(WIDTH),
        }
    found |= {
        "decoder/layer_0/attention/linear_0/weight": tensor(WIDTH, WIDTH),
        "decoder/layer_0/attention/linear_1/weight": tensor(2 * WIDTH, WIDTH),
        "decoder/layer_0/attention/linear_1/bias": tensor(2 * WIDTH),
        "decoder/layer_0/attention/linear_2/bias": tensor(WIDTH),
        "decoder/layer_0/attention/layer_norm/gamma": tensor(WIDTH),
    }
    return found


def write(
    path: Path, found: dict[str, np.ndarray[Any, Any]], spec: str = "WhisperSpec", version: int = 6
) -> None:
    def named(text: str) -> bytes:
        return struct.pack("<H", len(text) + 1) + text.encode() + b"\0"

    data = struct.pack("<I", version) + named(spec) + struct.pack("<II", 3, len(found))
    for name, tensor in found.items():
        data += named(name) + struct.pack("<B", tensor.ndim) + struct.pack(f"<{tensor.ndim}I", *tensor.shape)
        data += struct.pack("<BI", CODES[str(tensor.dtype)], tensor.nbytes) + tensor.tobytes()
    path.write_bytes(data + struct.pack("<I", 0))


def folder(root: Path, found: dict[str, np.ndarray[Any, Any]] | None = None) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    write(root / "model.bin", variables() if found is None else found)
    tokens = [{"id": WORDS + rank, "content": name, "special": True} for rank, name in enumerate(CONTROL)]
    (root / "tokenizer.json").write_text(json.dumps({"added_tokens": tokens}))
    (root / "config.json").write_text(json.dumps({"suppress_ids": [1, 2], "lang_ids": []}))
    return root


def read_safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    kinds = {"F16": "<f2", "F32": "<f4"}
    return {
        name: np.frombuffer(body[slice(*entry["data_offsets"])], kinds[entry["dtype"]]).reshape(
            entry["shape"]
        )
        for name, entry in header.items()
        if name != "__metadata__"
    }


def test_every_number_arrives_under_its_name(tmp_path: Path) -> None:
    source = variables()
    shape = convert(folder(tmp_path / "from", source), tmp_path / "to")
    found = read_safetensors(tmp_path / "to" / "model.safetensors")
    fused = source["encoder/layer_0/self_attention/linear_0/weight"]
    cross = source["decoder/layer_0/attention/linear_1/weight"]
    expected = {
        "model.encoder.conv1.weight": source["encoder/conv1/weight"],
        "model.decoder.embed_tokens.weight": source["decoder/embeddings/weight"],
        "model.decoder.embed_positions.weight": source["decoder/position_encodings/encodings"],
        "model.decoder.layer_norm.bias": source["decoder/layer_norm/beta"],
        "model.encoder.layers.0.self_attn.q_proj.weight": fused[:WIDTH],
        "model.encoder.layers.0.self_attn.v_proj.weight": fused[2 * WIDTH :],
        "model.decoder.layers.0.encoder_attn.k_proj.weight": cross[:WIDTH],
        "model.decoder.layers.0.encoder_attn.out_proj.bias": source[
            "decoder/layer_0/attention/linear_2/bias"
        ],
        "model.decoder.layers.0.encoder_attn_layer_norm.weight": source[
            "decoder/layer_0/attention/layer_norm/gamma"
        ],
        "model.decoder.layers.0.fc2.weight": source["decoder/layer_0/ffn/linear_1/weight"],
        "model.encoder.layers.0.final_layer_norm.bias": source["encoder/layer_0/ffn/layer_norm/beta"],
    }
    for name, tensor in expected.items():
        assert np.array_equal(found[name], tensor), name
    assert "model.decoder.layers.0.encoder_attn.k_proj.bias" in found
    assert (shape.width, shape.encoder_layers, shape.decoder_heads) == (WIDTH, 1, 2)


def test_time_marks_get_their_names(tmp_path: Path) -> None:
    convert(folder(tmp_path / "from"), tmp_path / "to")
    tokens = json.loads((tmp_path / "to" / "tokenizer.json").read_text())["added_tokens"]
    marks = {token["content"]: token["id"] for token in tokens[len(CONTROL) :]}
    first = WORDS + len(CONTROL)
    assert marks == {f"<|{rank * 0.02:.2f}|>": first + rank for rank in range(MARKS)}


def test_what_is_no_such_model_is_refused(tmp_path: Path) -> None:
    source = folder(tmp_path / "from")
    quantised = variables() | {"decoder/embeddings/weight": np.zeros((3, WIDTH), np.int8)}
    write(source / "model.bin", quantised)
    with pytest.raises(ConversionError, match="quantised"):
        convert(source, tmp_path / "to")
    write(source / "model.bin", variables(), spec="TransformerSpec")
    with pytest.raises(ConversionError, match="TransformerSpec"):
        convert(source, tmp_path / "to")
    data = (source / "model.bin").read_bytes()
    for size in (0, 5, 40, len(data) // 2):
        (source / "model.bin").write_bytes(data[:size])
        with pytest.raises(ConversionError):
            convert(source, tmp_path / "to")
    rest = variables()
    del rest["encoder/num_heads"]
    write(source / "model.bin", rest)
    with pytest.raises(ConversionError, match="num_heads"):
        convert(source, tmp_path / "to")
