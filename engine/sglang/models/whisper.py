"""Whisper with a window as long as the audio needs, and features computed where the weights are.

Differences to the stock model: the encoder block of a request, and its place in the KV cache, is as long
as its own window; the item holds 16-bit samples instead of a megabyte of features; tokens that spell
sounds and notation are never generated, nor is the end where speech lies behind the forced words.
"""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sglang.srt.models import whisper as stock
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.sglang.plugin.logmel import log_mel
from engine.sglang.plugin.pauses import settle
from engine.sglang.windows import HOP

_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's, which PyTorch prefers on Hopper: it builds a plan for every number of clips and every length.
With 400 live streams of a tiny model these plans took 53 % of the scheduler's time, and the GPU idled."""


class WhisperForConditionalGeneration(stock.WhisperForConditionalGeneration):
    """Replaces the stock class of the same name; weights load as before."""

    def __init__(self, config: Any, quant_config: Any = None) -> None:
        super().__init__(config, quant_config)
        for name in ("conv1", "conv2"):
            setattr(self.encoder, name, _Conv1d.like(getattr(self.encoder, name)))
        banned = torch.tensor(suppressed(config), dtype=torch.int64)
        self.register_buffer("_banned", banned, persistent=False)

    def pad_input_ids(self, input_ids: array[int], mm_inputs: Any) -> array[int]:
        """Reserve the encoder's positions in front of the prompt: half of the window's frames."""
        length = int(mm_inputs.mm_items[0].frames) // 2
        mm_inputs.num_image_tokens = length
        return array("q", [0]) * length + input_ids

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, forward_batch: Any, **kwargs: Any
    ) -> Any:
        encoded = None if forward_batch.forward_mode.is_decode() else self._encode(forward_batch)
        hidden = self.decoder(input_ids, encoded, forward_batch, positions)
        output = self.logits_processor(
            input_ids=input_ids, lm_head=self.proj_out, hidden_states=hidden, logits_metadata=forward_batch
        )
        logits = output.next_token_logits
        if logits is not None:
            if len(self._banned):
                logits.index_fill_(-1, self._banned, float("-inf"))
            if rows := _going_on(forward_batch):
                # From pinned memory, or the copy would wait for all that the GPU has to do.
                places = torch.tensor(rows, pin_memory=logits.is_cuda).to(logits.device, non_blocking=True)
                logits[:, int(self.config.eos_token_id)].index_fill_(0, places, float("-inf"))
        return output

    def _encode(self, batch: Any) -> torch.Tensor | None:
        """Encoder states of the requests that have none yet, flat, in the batch's order."""
        waiting = [
            item.mm_items[0]
            for item, cached in zip(batch.mm_inputs or [], batch.encoder_cached or [], strict=False)
            if not cached and item is not None and item.mm_items
        ]
        if not waiting:
            return None
        settle()
        by_length: dict[int, list[int]] = defaultdict(list)
        for place, item in enumerate(waiting):
            by_length[int(item.frames)].append(place)
        states: list[torch.Tensor] = [torch.empty(0)] * len(waiting)
        for frames, places in by_length.items():
            features = self._features([waiting[place].feature for place in places], frames)
            marks = torch.arange(frames // 2, device=features.device)
            with sdpa_kernel(_ATTENTION):
                encoded = self.encoder(features, marks, batch)
            for place, state in zip(places, encoded, strict=True):
                states[place] = state
        return torch.cat(states) if len(states) > 1 else states[0]

    def _features(self, clips: list[npt.NDArray[np.int16]], frames: int) -> torch.Tensor:
        weight = self.encoder.conv1.weight
        rows = torch.zeros(len(clips), frames * HOP, dtype=torch.int16, pin_memory=weight.is_cuda)
        for row, clip in zip(rows.numpy(), clips, strict=True):
            row[: len(clip)] = clip
        samples = rows.to(weight.device, non_blocking=True).float() / 32768.0
        return log_mel(samples, int(self.config.num_mel_bins)).to(weight.dtype)


def _going_on(batch: Any) -> list[int]:
    """Requests of a prefill whose first token is not to be the end: speech lies behind their forced words."""
    if batch.forward_mode.is_decode():
        return []
    items, cached = batch.mm_inputs or [], batch.encoder_cached or []
    return [
        place
        for place, (item, known) in enumerate(zip(items, cached, strict=False))
        if not known and item is not None and item.mm_items and item.mm_items[0].goes_on
    ]


class _Conv1d(torch.nn.Conv1d):
    """The same convolution as one matrix product: cuDNN would plan it anew for every number of clips and
    every length."""

    @classmethod
    def like(cls, other: torch.nn.Conv1d) -> _Conv1d:
        size, stride, padding = other.kernel_size[0], other.stride[0], other.padding[0]
        made = cls(other.in_channels, other.out_channels, size, stride, int(padding))
        made.to(other.weight.device, other.weight.dtype)
        return made

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        reach = int(self.padding[0])
        taps = torch.nn.functional.pad(input, (reach, reach)).unfold(2, self.kernel_size[0], self.stride[0])
        columns = taps.transpose(1, 2).flatten(2)
        rows: torch.Tensor = torch.nn.functional.linear(columns, self.weight.flatten(1), self.bias)
        return rows.mT


def suppressed(config: Any) -> list[int]:
    """Text tokens that the checkpoint says must never be generated, and the translation task.

    Other control tokens stay allowed: language and task are generated where the language is to be found
    out, and the model would at times rather translate what it hears.
    """
    path = Path(getattr(config, "_name_or_path", "") or "") / "generation_config.json"
    if not path.is_file():
        return []
    found = json.loads(path.read_text("utf-8"))
    listed = [int(token) for token in found.get("suppress_tokens") or []]
    translate = (found.get("task_to_id") or {}).get("translate")
    banned = [token for token in listed if token < int(config.eos_token_id)]
    return banned if translate is None else [*banned, int(translate)]


EntryClass = WhisperForConditionalGeneration
