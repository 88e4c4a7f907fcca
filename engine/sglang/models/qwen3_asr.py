"""Qwen3-ASR with features that come as numpy arrays, joined and moved to the GPU in one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sglang.srt.models import qwen3_asr as stock

from engine.sglang.plugin.arrays import as_tensor
from engine.sglang.plugin.pauses import settle


class Qwen3ASRForConditionalGeneration(stock.Qwen3ASRForConditionalGeneration):
    """Replaces the stock class of the same name; weights load as before."""

    def get_audio_feature(self, items: list[Any]) -> torch.Tensor:
        """Encoder outputs of the items' windows, flat, in their order."""
        settle()
        weight = self.audio_tower.conv2d1.weight
        frames = [int(item.frames) for item in items]
        # Only what is audio: choosing it on the GPU would wait for all that runs there.
        joined = np.concatenate([item.feature[:, :n] for item, n in zip(items, frames, strict=True)], axis=1)
        features = as_tensor(joined).to(weight.device).to(weight.dtype)
        lengths = torch.tensor(frames, dtype=torch.long, device=weight.device)
        output: torch.Tensor = self.audio_tower(features, feature_lens=lengths).last_hidden_state
        return output


EntryClass = Qwen3ASRForConditionalGeneration
