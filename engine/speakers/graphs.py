"""The two networks written as ONNX graphs from their tensors, once, at set-up: needs `onnx`, not torch.

Structure after the papers: SincNet (Ravanelli and Bengio, 2018) and powerset segmentation (Plaquet and
Bredin, 2023); CAM++ (Wang et al., 2023). Batch normalisation that follows a convolution is folded into
it, and the context mask of CAM++, which is one value a segment of `SEGMENT` frames, is computed once a
segment instead of once a frame.
Against torch on speech, largest difference: class probabilities 1.5e-5, their logarithms 5.9e-5, vectors of
unit length 9.7e-7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.graph import Graph, Shapes

Floats = npt.NDArray[np.float32]
Tensors = Mapping[str, npt.NDArray[Any]]

SEGMENT = 100
"""Frames (of 20 ms) that share one context in CAM++."""
_EPSILON = 1e-5
_BLOCKS = ((12, 1), (24, 2), (16, 2))
"""Layers and dilation of the dense blocks of CAM++."""
_LAYERS = 4
"""Of the segmentation's LSTM."""


def segmentation(tensors: Tensors) -> bytes:
    """`audio` (batch, 1, samples) -> `classes` (batch, frames, 7): log-probabilities of the powerset."""
    g = Graph()
    value = g.add("InstanceNormalization", "audio", *_pair(g, tensors, "sincnet.wav_norm1d"))
    for layer in range(3):
        name = f"sincnet.conv1d.{layer}"
        if layer == 0:
            value = g.add("Conv", value, g.constant(_sinc(tensors, f"{name}.filterbank")), strides=[10])
            value = g.add("Abs", value)
        else:
            value = g.add("Conv", value, *_pair(g, tensors, name))
        value = g.add("MaxPool", value, kernel_shape=[3], strides=[3])
        value = g.add("InstanceNormalization", value, *_pair(g, tensors, f"sincnet.norm1d.{layer}"))
        value = g.add("LeakyRelu", value, alpha=0.01)
    value = g.add("Transpose", value, perm=[2, 0, 1])
    for layer in range(_LAYERS):
        weights = [g.constant(w) for w in _lstm(tensors, layer)]
        value = g.add("LSTM", value, *weights, hidden_size=128, direction="bidirectional")
        value = g.add("Transpose", value, perm=[0, 2, 1, 3])
        value = g.add("Reshape", value, g.indices(0, 0, 256))
    for name in ("linear.0", "linear.1", "classifier"):
        value = g.add("MatMul", value, g.constant(tensors[f"{name}.weight"].T))
        value = g.add("Add", value, g.constant(tensors[f"{name}.bias"]))
        if name != "classifier":
            value = g.add("LeakyRelu", value, alpha=0.01)
    value = g.add("Transpose", g.add("LogSoftmax", value, axis=2), perm=[1, 0, 2])
    return g.model({"audio": ["batch", 1, "samples"]}, value, ("classes", ["batch", "frames", 7]))


def _pair(g: Graph, tensors: Tensors, name: str) -> tuple[str, str]:
    return g.constant(tensors[f"{name}.weight"]), g.constant(tensors[f"{name}.bias"])


def _sinc(tensors: Tensors, name: str, lowest: float = 50.0, narrowest: float = 50.0) -> Floats:
    """Band-pass filters (80, 1, 251): 40 even (cosine) ones, then their 40 odd (sine) partners."""
    # In single precision and this order, as the network was trained: the differences cancel digits.
    one = np.float32
    low = one(lowest) + np.abs(tensors[f"{name}.low_hz_"])
    high = np.clip(low + one(narrowest) + np.abs(tensors[f"{name}.band_hz_"]), one(lowest), one(8_000.0))
    window, time = tensors[f"{name}.window_"], tensors[f"{name}.n_"]
    even = (np.sin(high * time) - np.sin(low * time)) / (time / one(2.0)) * window
    odd = (np.cos(low * time) - np.cos(high * time)) / (time / one(2.0)) * window
    centre = one(2.0) * (high - low)
    whole = np.concatenate(
        [
            np.concatenate([even, centre, even[:, ::-1]], axis=1),
            np.concatenate([odd, np.zeros_like(centre), -odd[:, ::-1]], axis=1),
        ]
    )
    filters: Floats = (whole / np.concatenate([centre, centre]))[:, None, :]
    return filters


def _lstm(tensors: Tensors, layer: int) -> list[Floats]:
    """Input and recurrent weights, biases; both directions. Gates: torch i f g o, ONNX i o f g."""

    def gates(kind: str, direction: str) -> Floats:
        i, f, g, o = np.split(tensors[f"lstm.{kind}_l{layer}{direction}"], 4)
        return np.concatenate([i, o, f, g])

    sides = ("", "_reverse")
    biases = [np.concatenate([gates("bias_ih", side), gates("bias_hh", side)]) for side in sides]
    return [
        np.stack([gates("weight_ih", side) for side in sides]),
        np.stack([gates("weight_hh", side) for side in sides]),
        np.stack(biases),
    ]


def embedding(tensors: Tensors) -> bytes:
    """`features` (1, frames, 80) -> `voiced` (1, 512, steps of two frames): all of CAM++ but its pooling."""
    g = _Dense(tensors)
    value = g.add("Unsqueeze", g.add("Transpose", "features", perm=[0, 2, 1]), g.indices(1))
    value = g.relu(g.conv(value, "head.conv1", "head.bn1", pads=[1, 1, 1, 1]))
    for layer, block in ((1, 0), (1, 1), (2, 0), (2, 1)):
        value = g.residual(value, f"head.layer{layer}.{block}", halved=block == 0)
    value = g.relu(g.conv(value, "head.conv2", "head.bn2", strides=[2, 1], pads=[1, 1, 1, 1]))
    value = g.add("Reshape", value, g.indices(0, 320, -1))
    value = g.relu(
        g.conv(value, "xvector.tdnn.linear", "xvector.tdnn.nonlinear.batchnorm", strides=[2], pads=[2, 2])
    )
    g.segments(value)
    for block, (layers, dilation) in enumerate(_BLOCKS, 1):
        for layer in range(1, layers + 1):
            value = g.dense(value, f"xvector.block{block}.tdnnd{layer}", dilation)
        value = g.relu(g.norm(value, f"xvector.transit{block}.nonlinear.batchnorm"))
        after = "xvector.out_nonlinear.batchnorm" if block == len(_BLOCKS) else None
        value = g.conv(value, f"xvector.transit{block}.linear", after)
    return g.model({"features": [1, "frames", 80]}, g.relu(value), ("voiced", [1, 512, "steps"]))


def pooling(tensors: Tensors) -> bytes:
    """`voiced` (1, 512, steps) and `masks` (voices, steps) of 0 and 1 -> `vectors` (voices, 192).

    Made of the mean and the unbiased deviation of what a mask lets through (two steps at least), not unit.
    """
    g = Graph()
    rows = g.add("Transpose", g.add("Squeeze", "voiced", g.indices(0)), perm=[1, 0])
    count = g.add("ReduceSum", "masks", g.indices(1))
    mean = g.add("Div", g.add("MatMul", "masks", rows), count)
    power = g.add("Div", g.add("MatMul", "masks", g.add("Mul", rows, rows)), count)
    spread = g.add("Relu", g.add("Sub", power, g.add("Mul", mean, mean)))
    unbiased = g.add("Div", count, g.add("Sub", count, g.constant(1.0)))
    deviation = g.add("Sqrt", g.add("Mul", spread, unbiased))
    weight, bias = folded(tensors, "xvector.dense.linear", "xvector.dense.nonlinear.batchnorm")
    value = g.add("Concat", mean, deviation, axis=1)
    value = g.add("Gemm", value, g.constant(weight[:, :, 0]), g.constant(bias), transB=1)
    shapes: Shapes = {"voiced": [1, 512, "steps"], "masks": ["voices", "steps"]}
    return g.model(shapes, value, ("vectors", ["voices", 192]))


class _Dense(Graph):
    """The parts of CAM++."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__()
        self._tensors = tensors
        self._mean = self._spread = ""

    def relu(self, value: str) -> str:
        return self.add("Relu", value)

    def conv(self, value: str, name: str, norm: str | None = None, **attributes: Any) -> str:
        """A convolution with the normalisation after it."""
        weight, bias = folded(self._tensors, name, norm)
        return self.add("Conv", value, self.constant(weight), self.constant(bias), **attributes)

    def norm(self, value: str, name: str) -> str:
        """A normalisation that follows no convolution."""
        parts = ("weight", "bias", "running_mean", "running_var")
        constants = [self.constant(self._tensors[f"{name}.{part}"]) for part in parts]
        return self.add("BatchNormalization", value, *constants, epsilon=_EPSILON)

    def residual(self, value: str, name: str, *, halved: bool) -> str:
        strides = [2 if halved else 1, 1]
        inner = self.conv(value, f"{name}.conv1", f"{name}.bn1", strides=strides, pads=[1, 1, 1, 1])
        inner = self.conv(self.relu(inner), f"{name}.conv2", f"{name}.bn2", pads=[1, 1, 1, 1])
        if halved:
            value = self.conv(value, f"{name}.shortcut.0", f"{name}.shortcut.1", strides=strides)
        return self.relu(self.add("Add", inner, value))

    def segments(self, value: str) -> None:
        """Make the matrix that averages frames into segments and adds the mean of all frames (frames,
        segments), and the one that spreads values of segments over frames (segments, frames)."""
        zero, one, length = (self.constant(n, np.int64) for n in (0, 1, SEGMENT))
        frames = self.add("Gather", self.add("Shape", value), self.constant(2, np.int64))
        segment_of = self.add("Div", self.add("Range", zero, frames, one), length)
        count = self.add("Div", self.add("Add", frames, self.constant(SEGMENT - 1, np.int64)), length)
        numbers = self.add("Unsqueeze", self.add("Range", zero, count, one), self.indices(1))
        same = self.add("Equal", numbers, self.add("Unsqueeze", segment_of, self.indices(0)))
        self._spread = self.add("Cast", same, to=1)
        sizes = self.add("ReduceSum", self._spread, self.indices(1))
        share = self.add("Div", self.constant(1.0), self.add("Cast", frames, to=1))
        means = self.add("Add", self.add("Div", self._spread, sizes), share)
        self._mean = self.add("Transpose", means, perm=[1, 0])

    def dense(self, value: str, name: str, dilation: int) -> str:
        """One densely connected layer: its 32 new channels under `value`'s."""
        inner = self.relu(self.norm(value, f"{name}.nonlinear1.batchnorm"))
        inner = self.relu(self.conv(inner, f"{name}.linear1", f"{name}.nonlinear2.batchnorm"))
        cam = f"{name}.cam_layer"
        local = self.conv(inner, f"{cam}.linear_local", dilations=[dilation], pads=[dilation, dilation])
        context = self.relu(self.conv(self.add("MatMul", inner, self._mean), f"{cam}.linear1"))
        mask = self.add("Sigmoid", self.conv(context, f"{cam}.linear2"))
        masked = self.add("Mul", local, self.add("MatMul", mask, self._spread))
        return self.add("Concat", value, masked, axis=1)


def folded(tensors: Tensors, name: str, norm: str | None) -> tuple[Floats, Floats]:
    """Weight and bias of a convolution and of the normalisation after it as one."""
    weight = tensors[f"{name}.weight"].astype(np.float64)
    given = tensors.get(f"{name}.bias")
    bias = np.zeros(len(weight)) if given is None else given.astype(np.float64)
    if norm is not None:
        scale = 1.0 / np.sqrt(tensors[f"{norm}.running_var"].astype(np.float64) + _EPSILON)
        scale = scale * tensors.get(f"{norm}.weight", np.ones(1))
        weight = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
        bias = (bias - tensors[f"{norm}.running_mean"]) * scale + tensors.get(f"{norm}.bias", np.zeros(1))
    return weight.astype(np.float32), bias.astype(np.float32)
