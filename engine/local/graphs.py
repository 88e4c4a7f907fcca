"""The text half of a Whisper written as ONNX graphs from its tensors: what the embedded runtime lacks.

The runtime decodes words that are known already one after the other, as if they were not. These graphs take
a whole row of tokens at once, behind whatever was computed before. Structure after the paper (Radford et al.,
2022, arXiv:2212.04356).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.graph import RUNTIME, Graph

Tensors = Mapping[str, npt.NDArray[Any]]

BLOCK = 64
"""So many weights of a row share one scale where they are rounded to 8 bits; activations likewise."""
EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Sizes:
    """Read off the weights."""

    width: int
    heads: int
    layers: int
    vocabulary: int

    @classmethod
    def of(cls, tensors: Tensors) -> Sizes:
        """Raises KeyError for the tensor that is missing."""
        embeddings = tensors["decoder/embeddings/weight"]
        layers = sum(name.startswith("decoder/") and name.endswith("ffn/linear_0/weight") for name in tensors)
        return cls(embeddings.shape[1], int(tensors["decoder/num_heads"]), layers, embeddings.shape[0])

    @property
    def depth(self) -> int:
        """Width of one head."""
        return self.width // self.heads


class TextGraph(Graph):
    """Blocks of the network. `rounded`: matrices are kept in 8 bits."""

    def __init__(self, tensors: Tensors, *, rounded: bool) -> None:
        super().__init__()
        self._tensors = tensors
        self._rounded = rounded
        self.sizes = Sizes.of(tensors)

    def weight(self, name: str) -> npt.NDArray[np.float32]:
        """A tensor in single precision, whichever the file keeps."""
        found = self._tensors[name].astype(np.float32)
        scale = self._tensors.get(f"{name}_scale")
        return (
            found if scale is None else found / scale.astype(np.float32).reshape(-1, *[1] * (found.ndim - 1))
        )

    def norm(self, value: str, name: str) -> str:
        parts = (self.constant(self.weight(f"{name}/{part}")) for part in ("gamma", "beta"))
        return self.add("LayerNormalization", value, *parts, axis=-1, epsilon=EPSILON)

    def linear(self, value: str, name: str) -> str:
        """A matrix and its bias."""
        value = self.product(value, self.weight(f"{name}/weight"))
        return self.add("Add", value, self.constant(self.weight(f"{name}/bias")))

    def product(self, value: str, weight: npt.NDArray[np.float32]) -> str:
        """`value` (..., columns) times the transposed `weight` (rows, columns)."""
        rows, columns = weight.shape
        if not self._rounded:
            return self.add("MatMul", value, self.constant(weight.T))
        blocks = weight.reshape(rows, columns // BLOCK, BLOCK)
        scale = np.maximum(np.abs(blocks).max(axis=-1) / 127, 1e-12)
        whole = np.round(blocks / scale[..., None]) + 128
        return self.add(
            "MatMulNBits",
            value,
            self.constant(whole, np.uint8),
            self.constant(scale.reshape(-1)),
            domain=RUNTIME,
            K=columns,
            N=rows,
            bits=8,
            block_size=BLOCK,
            accuracy_level=4,  # activations in 8 bits too
        )

    def heads(self, value: str, *, key: bool = False) -> str:
        """(batch, n, width) by heads: (batch, heads, n, depth); a key's last two are exchanged."""
        value = self.add("Reshape", value, self.indices(0, -1, self.sizes.heads, self.sizes.depth))
        return self.add("Transpose", value, perm=[0, 2, 3, 1] if key else [0, 2, 1, 3])

    def joined(self, value: str) -> str:
        return self.add(
            "Reshape", self.add("Transpose", value, perm=[0, 2, 1, 3]), self.indices(0, -1, self.sizes.width)
        )

    def layer(self, value: str, layer: int) -> tuple[str, str, str, str]:
        """One layer over `value`: what comes out, its attention to audio, and all keys and values of text."""
        place = f"decoder/layer_{layer}"
        inner = self.linear(
            self.norm(value, f"{place}/self_attention/layer_norm"), f"{place}/self_attention/linear_0"
        )
        query, key, content = self.split("Split", 3, inner, axis=-1)
        key = self.add("Concat", f"past_key{layer}", self.heads(key, key=True), axis=3)
        content = self.add("Concat", f"past_value{layer}", self.heads(content), axis=2)
        weights = self.add("Add", self.add("MatMul", self.query(query), key), "mask")
        inner = self.joined(self.add("MatMul", self.add("Softmax", weights, axis=-1), content))
        value = self.add("Add", value, self.linear(inner, f"{place}/self_attention/linear_1"))
        inner = self.linear(self.norm(value, f"{place}/attention/layer_norm"), f"{place}/attention/linear_0")
        weights = self.add("Softmax", self.add("MatMul", self.query(inner), f"key{layer}"), axis=-1)
        inner = self.joined(self.add("MatMul", weights, f"value{layer}"))
        value = self.add("Add", value, self.linear(inner, f"{place}/attention/linear_2"))
        inner = self.linear(self.norm(value, f"{place}/ffn/layer_norm"), f"{place}/ffn/linear_0")
        inner = self.add("Gelu", inner, domain=RUNTIME)
        value = self.add("Add", value, self.linear(inner, f"{place}/ffn/linear_1"))
        return value, weights, key, content

    def answers(self, logits: str, suppressed: Sequence[int], first: Sequence[int]) -> tuple[str, str]:
        """The likeliest of what is allowed, and `scores`."""
        bars = np.zeros((2, self.sizes.vocabulary), np.float32)
        bars[:, list(suppressed)] = bars[1, list(first)] = -1e9
        allowed = self.add("Add", logits, self.add("Gather", self.constant(bars), "barred"))
        scores = [
            self.add("ReduceMax", allowed, axes=[-1]),
            self.add("ReduceLogSumExp", allowed, axes=[-1]),
            self.add("ReduceLogSumExp", logits, axes=[-1]),
        ]
        return self.add("ArgMax", allowed, axis=-1, keepdims=0), self.add("Concat", *scores, axis=-1)

    def query(self, value: str) -> str:
        return self.add("Mul", self.heads(value), self.constant(np.float32(self.sizes.depth**-0.5)))


def heard(tensors: Tensors, *, rounded: bool) -> bytes:
    """`states` of the encoder (1, frames, width) -> `key0`, `value0`, ... of each layer: all that the text
    half asks of them, once a window."""
    g = TextGraph(tensors, rounded=rounded)
    sizes, values, shapes = g.sizes, dict[str, str](), dict[str, Sequence[str | int]]()
    for layer in range(sizes.layers):
        both = g.linear("states", f"decoder/layer_{layer}/attention/linear_1")
        key, value = g.split("Split", 2, both, axis=-1)
        values |= {f"key{layer}": g.heads(key, key=True), f"value{layer}": g.heads(value)}
        shapes |= _memory(sizes, layer, "", "frames")
    return g.models({"states": [1, "frames", sizes.width]}, values, shapes)


def spoken(
    tensors: Tensors,
    heads: Sequence[tuple[int, int]],
    suppressed: Sequence[int],
    first: Sequence[int],
    *,
    rounded: bool,
) -> bytes:
    """Tokens and what was heard -> what comes next, and how sure that is.

    In: `tokens` (1, n) and their `positions` (n,); `mask` (n, past + n), added to attention; `asked` (m,),
    indices of the tokens after which something is asked, and `barred` (m,), 1 where `first` is suppressed
    too; `key0`... and `value0`... of `heard`; `past_key0`... of the tokens before.
    Out: `best` (1, m), the likeliest token; `scores` (1, m, 3): its logit, and the logarithm of the sum over
    all that are allowed, and over all; `logits` (1, m, vocabulary), none suppressed; `attention` (1, heads,
    n, frames), of the (layer, head) pairs `heads`; `new_key0`..., for the next call.
    """
    g = TextGraph(tensors, rounded=rounded)
    sizes = g.sizes
    embeddings = g.weight("decoder/embeddings/weight")
    inputs: dict[str, Sequence[str | int]] = {
        "tokens": [1, "n"],
        "positions": ["n"],
        "mask": ["n", "all"],
        "asked": ["m"],
        "barred": ["m"],
    }
    values, outputs = dict[str, str](), dict[str, Sequence[str | int]]()
    where = g.add("Gather", g.constant(g.weight("decoder/position_encodings/encodings")), "positions")
    # In the half precision they come in: this copy serves look-ups only.
    rows = g.add("Gather", g.constant(embeddings, np.float16), "tokens")
    value = g.add("Add", g.add("Cast", rows, to=1), where)
    watched = []
    for layer in range(sizes.layers):
        inputs |= _memory(sizes, layer, "past_", "past") | _memory(sizes, layer, "", "frames")
        outputs |= _memory(sizes, layer, "new_", "all")
        value, weights, values[f"new_key{layer}"], values[f"new_value{layer}"] = g.layer(value, layer)
        if mine := [head for at, head in heads if at == layer]:
            watched.append(g.add("Gather", weights, g.indices(*mine), axis=1))
    value = g.norm(g.add("Gather", value, "asked", axis=1), "decoder/layer_norm")
    logits = g.product(value, embeddings)
    best, scores = g.answers(logits, suppressed, first)
    values |= {
        "best": best,
        "scores": scores,
        "logits": logits,
        "attention": g.add("Concat", *watched, axis=1),
    }
    outputs |= {
        "best": [1, "m"],
        "scores": [1, "m", 3],
        "logits": [1, "m", sizes.vocabulary],
        "attention": [1, len(heads), "n", "frames"],
    }
    return g.models(inputs, values, outputs, frozenset({"tokens", "positions", "asked", "barred", "best"}))


def _memory(sizes: Sizes, layer: int, prefix: str, length: str) -> dict[str, Sequence[str | int]]:
    return {
        f"{prefix}key{layer}": [1, sizes.heads, sizes.depth, length],
        f"{prefix}value{layer}": [1, sizes.heads, length, sizes.depth],
    }
