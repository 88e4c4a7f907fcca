"""Random weights that react to their input, for the tiny checkpoint of the decoder-only policy.

SGLang's own dummy weights are so small that every audio gives the same output.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from engine.policies.whisper_convert import Tensor, write_safetensors
from engine.sglang.bench.checkpoints import decoder_only


def responsive_checkpoint(folder: Path, seed: int = 11) -> Path:
    """Write a tiny decoder-only checkpoint with weights to `folder`."""
    decoder_only(folder, tiny=True)
    thinker = json.loads((folder / "config.json").read_text("utf-8"))["thinker_config"]
    random = np.random.default_rng(seed)

    def matrix(*shape: int) -> Tensor:
        fan = int(np.prod(shape[1:]))
        drawn: Tensor = (random.standard_normal(shape) / np.sqrt(fan) * 1.5).astype(np.float32)
        return drawn

    tensors = _text(thinker["text_config"], matrix) | _audio(thinker["audio_config"], matrix)
    write_safetensors(folder / "model.safetensors", {f"thinker.{name}": t for name, t in tensors.items()})
    return folder


def _text(config: dict[str, int], make: Callable[..., Tensor]) -> dict[str, Tensor]:
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    found = {"model.embed_tokens.weight": make(config["vocab_size"], hidden)}
    ones = {"model.norm.weight": hidden}
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        found |= {
            f"{at}.self_attn.q_proj.weight": make(queries, hidden),
            f"{at}.self_attn.k_proj.weight": make(keys, hidden),
            f"{at}.self_attn.v_proj.weight": make(keys, hidden),
            f"{at}.self_attn.o_proj.weight": make(hidden, queries),
            f"{at}.mlp.gate_proj.weight": make(config["intermediate_size"], hidden),
            f"{at}.mlp.up_proj.weight": make(config["intermediate_size"], hidden),
            f"{at}.mlp.down_proj.weight": make(hidden, config["intermediate_size"]),
        }
        ones |= {
            f"{at}.input_layernorm.weight": hidden,
            f"{at}.post_attention_layernorm.weight": hidden,
            f"{at}.self_attn.q_norm.weight": head,
            f"{at}.self_attn.k_norm.weight": head,
        }
    return found | {name: np.ones(size, np.float32) for name, size in ones.items()}


def _audio(config: dict[str, int], make: Callable[..., Tensor]) -> dict[str, Tensor]:
    width, down, ffn = config["d_model"], config["downsample_hidden_size"], config["encoder_ffn_dim"]
    bands = ((config["num_mel_bins"] + 1) // 2 + 1) // 2
    found = {
        "conv2d1.weight": make(down, 1, 3, 3),
        "conv2d2.weight": make(down, down, 3, 3),
        "conv2d3.weight": make(down, down, 3, 3),
        "conv_out.weight": make(width, down * ((bands + 1) // 2)),
        "proj1.weight": make(width, width),
        "proj2.weight": make(config["output_dim"], width),
        "ln_post.weight": np.ones(width, np.float32),
    }
    biases = {
        "conv2d1.bias": down,
        "conv2d2.bias": down,
        "conv2d3.bias": down,
        "proj1.bias": width,
        "proj2.bias": config["output_dim"],
        "ln_post.bias": width,
    }
    for layer in range(config["encoder_layers"]):
        at = f"layers.{layer}"
        found |= {f"{at}.self_attn.{role}_proj.weight": make(width, width) for role in ("q", "k", "v", "out")}
        found |= {f"{at}.fc1.weight": make(ffn, width), f"{at}.fc2.weight": make(width, ffn)}
        norms = (f"{at}.self_attn_layer_norm", f"{at}.final_layer_norm")
        found |= {f"{norm}.weight": np.ones(width, np.float32) for norm in norms}
        biases |= {f"{at}.self_attn.{role}_proj.bias": width for role in ("q", "k", "v", "out")}
        biases |= {f"{at}.fc1.bias": ffn, f"{at}.fc2.bias": width} | {f"{norm}.bias": width for norm in norms}
    found |= {name: np.zeros(size, np.float32) for name, size in biases.items()}
    return {f"audio_tower.{name}": tensor for name, tensor in found.items()}
