"""A small model's function in a large model's shape: real words at a large model's cost. numpy alone.

    python -m engine.sglang.bench.widened SMALL TARGET [--times 3] [--layers 40]

Each number of the residual stream stands in it `times` times, so that layer normalisation sees what it saw.
What reads it has its weights split into random parts that add up; what writes it writes every copy. Added
heads, feed-forward units and encoder layers compute with random weights, and write so little that it is
lost in rounding. So no matrix is empty, and none computes less than one of a trained model would.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.policies.whisper_convert import write_safetensors

Tensor = npt.NDArray[Any]

_TYPES = {"F16": "<f2", "F32": "<f4"}
_HUSH = 2e-6
"""Size of weights that write next to nothing; 16-bit numbers go down to 6e-8."""
_STRANGER = 0.03
"""Size of random weights that compute."""


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file by name."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    found: dict[str, Tensor] = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            low, high = (8 + size + at for at in entry["data_offsets"])
            found[name] = np.frombuffer(data[low:high], _TYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


class Widener:
    """Makes the tensors of the large model; `times` copies of each number of the residual stream."""

    def __init__(self, times: int, seed: int = 1) -> None:
        self._times = times
        self._noise = np.random.default_rng(seed).standard_normal(1 << 20).astype(np.float32)
        self._at = 0

    def noise(self, shape: tuple[int, ...], size: float) -> Tensor:
        """Random numbers, each time from another place of one long row of them."""
        count = int(np.prod(shape))
        self._at = (self._at + 7919) % len(self._noise)
        return np.resize(np.roll(self._noise, self._at), count).reshape(shape) * np.float32(size)

    def copies(self, tensor: Tensor, axis: int = 0) -> Tensor:
        """The same once for each copy."""
        return np.concatenate([tensor] * self._times, axis)

    def reads(self, weight: Tensor, axis: int = 1) -> Tensor:
        """Weights that read all copies and come to the same: random parts and what is missing to the sum."""
        size = float(weight.astype(np.float32).std())
        parts = [self.noise(weight.shape, size) for _ in range(self._times - 1)]
        return np.concatenate([weight.astype(np.float32) - sum(parts), *parts], axis)

    def inner(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Reads the residual stream; its units first, then strangers."""
        real = self.reads(weight)
        more = (self._times - 1) * len(weight)
        strange = self.noise((more, real.shape[1]), _STRANGER)
        return np.concatenate([real, strange]), np.concatenate([bias, np.zeros(more, bias.dtype)])

    def outer(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Writes the residual stream: every copy what it was, and of the strangers next to nothing."""
        real = self.copies(weight).astype(np.float32)
        hushed = self.noise((len(real), (self._times - 1) * weight.shape[1]), _HUSH)
        return np.concatenate([real, hushed], 1), self.copies(bias)

    def layer(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """One layer of either side, names without the layer's own."""
        found: dict[str, Tensor] = {}
        for name in {name.rpartition(".")[0] for name in tensors}:
            weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
            match name.rpartition(".")[2]:
                case "q_proj" | "k_proj" | "v_proj" | "fc1":
                    made = self.inner(weight, bias)
                case "out_proj" | "fc2":
                    made = self.outer(weight, bias)
                case _:
                    made = self.copies(weight), self.copies(bias)
            found[f"{name}.weight"], found[f"{name}.bias"] = made
        return found

    def idle(self, like: dict[str, Tensor]) -> dict[str, Tensor]:
        """A layer of the same shape that reads, computes and changes nothing to speak of."""
        found: dict[str, Tensor] = {}
        for name, tensor in like.items():
            last = name.split(".")[-2]
            if tensor.ndim == 2:
                found[name] = self.noise(tensor.shape, _HUSH if last in ("out_proj", "fc2") else _STRANGER)
            else:
                norm = "layer_norm" in name and name.endswith("weight")
                found[name] = np.ones_like(tensor) if norm else np.zeros_like(tensor)
        return found


def widened(small: Path, target: Path, *, times: int = 3, layers: int = 40) -> Path:
    """Write the folder `target`: the model in `small` (Hugging Face form), `times` as wide, with `layers`
    encoder layers. Raises `OSError`, and `ValueError` for fewer layers than there are."""
    config = json.loads((small / "config.json").read_text("utf-8"))
    known = int(config["encoder_layers"])
    if layers < known:
        raise ValueError(f"--layers {layers}: the small model has {known} already")
    tensors, make = read_safetensors(small / "model.safetensors"), Widener(times)
    wide: dict[str, Tensor] = {}
    for side in ("encoder", "decoder"):
        root = f"model.{side}.layers."
        count = int(config[f"{side}_layers"])
        for number in range(count):
            head = f"{root}{number}."
            mine = {name[len(head) :]: t for name, t in tensors.items() if name.startswith(head)}
            wide |= {head + name: t for name, t in make.layer(mine).items()}
    shape = {n.split(".", 4)[4]: t for n, t in wide.items() if n.startswith("model.encoder.layers.0.")}
    for number in range(known, layers):
        wide |= {f"model.encoder.layers.{number}.{name}": t for name, t in make.idle(shape).items()}
    for name, tensor in tensors.items():
        if ".layers." in name:
            continue
        if name.endswith("conv1.weight"):
            wide[name] = make.copies(tensor)
        elif name.endswith("conv2.weight"):
            wide[name] = make.copies(make.reads(tensor))
        elif "decoder.layer_norm" in name:
            # The words are read off all copies: each counts for a part.
            wide[name] = make.copies(tensor.astype(np.float32) / times)
        else:
            wide[name] = make.copies(tensor, tensor.ndim - 1)
    target.mkdir(parents=True, exist_ok=True)
    write_safetensors(target / "model.safetensors", {n: t.astype(np.float16) for n, t in wide.items()})
    for name in ("d_model", "encoder_attention_heads", "decoder_attention_heads"):
        config[name] = int(config[name]) * times
    config |= {f"{side}_ffn_dim": times * int(config[f"{side}_ffn_dim"]) for side in ("encoder", "decoder")}
    config |= {"encoder_layers": layers, "num_hidden_layers": layers, "torch_dtype": "float16"}
    (target / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    for file in small.iterdir():
        if file.suffix == ".json" and file.name != "config.json":
            shutil.copyfile(file, target / file.name)
    return target


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.sglang.bench.widened", description=__doc__)
    parser.add_argument("small", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--layers", type=int, default=40)
    options = parser.parse_args(argv)
    widened(options.small, options.target, times=options.times, layers=options.layers)


if __name__ == "__main__":
    main(sys.argv[1:])
