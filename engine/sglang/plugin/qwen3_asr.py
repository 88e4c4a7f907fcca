"""Qwen3-ASR's front end: the audio as window-aligned items, each found again by the prefix cache.

Items of one size also batch: the stock front end makes items as long as their audio, and the model joins
the items of a batch as if they were equally long.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from sglang.srt.models.qwen3_asr import Qwen3ASRForConditionalGeneration
from sglang.srt.multimodal.processors.base_processor import BaseMultimodalProcessor
from sglang.srt.utils import load_audio

from engine.sglang.compat import audio_item, processor_output, sampling
from engine.sglang.payload import read_payload

from .logmel import LOG_FLOOR, log_energies, scaled_to
from .spans import HOP, audio_tokens, finished_windows, window_lengths

_THREADS = 8
SINGLE_ITEM = "SEAMSCRIBE_SINGLE_ITEM"
"""Environment variable, "1" for one item a clip, to compare with; `custom_params` has the same by request."""


class SeamscribeQwen3ASRProcessor(BaseMultimodalProcessor):
    """One prompt with one audio placeholder and PCM in; token ids and window items out."""

    models = (Qwen3ASRForConditionalGeneration,)

    def __init__(self, hf_config: Any, server_args: Any, _processor: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(hf_config, server_args, _processor, *args, **kwargs)
        self._text = self._processor.tokenizer
        thinker = hf_config.thinker_config
        audio = thinker.audio_config
        self._bins = int(audio.num_mel_bins)
        self._block = 2 * int(audio.n_window)
        self._window = int(audio.n_window_infer)
        dtype = getattr(hf_config, "torch_dtype", None) or getattr(hf_config, "dtype", None)
        # Features travel in the precision that the encoder turns them into anyway.
        self._dtype = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype), torch.float32)
        self._pad = self._id("<|audio_pad|>")
        self._ends = (self._id("<|audio_start|>"), self._id("<|audio_end|>"))
        self._single = os.environ.get(SINGLE_ITEM) == "1"
        self._pool = ThreadPoolExecutor(_THREADS, "log-mel", initializer=torch.set_num_threads, initargs=(1,))

    def _id(self, name: str) -> int:
        return int(self._text.convert_tokens_to_ids(name))

    async def process_mm_data_async(
        self, image_data: Any, audio_data: Any, input_text: Any, request_obj: Any, **kwargs: Any
    ) -> Any:
        """Raises `ValueError` for a prompt without exactly one placeholder and for empty audio."""
        if not audio_data:
            return None
        if len(audio_data) != 1:
            raise ValueError(f"one audio input a request, not {len(audio_data)}")
        prompt = self._prompt(input_text)
        loop = asyncio.get_running_loop()
        asked = (sampling(request_obj).get("custom_params") or {}).get("single_item")
        single = self._single if asked is None else bool(asked)
        windows = await loop.run_in_executor(self._pool, self._windows, audio_data[0], single)
        place = prompt.index(self._pad)
        total = sum(tokens for _, _, tokens, _ in windows)
        ids = prompt[:place] + [self._pad] * total + prompt[place + 1 :]
        items = []
        for feature, mask, tokens, digest in windows:
            items.append(
                audio_item(
                    feature, digest, offsets=[(place, place + tokens - 1)], feature_attention_mask=mask
                )
            )
            place += tokens
        positions = torch.arange(len(ids), dtype=torch.long).unsqueeze(0).expand(3, -1).clone()
        return processor_output(
            ids,
            items,
            audio_start_id=self._ends[0],
            audio_token_id=self._pad,
            audio_end_id=self._ends[1],
            mrope_positions=positions,
            mrope_position_delta=torch.tensor([0], dtype=torch.long),
        )

    def _prompt(self, source: Any) -> list[int]:
        ids = list(source) if isinstance(source, list) else list(self._text.encode(str(source or "")))
        if ids.count(self._pad) != 1:
            raise ValueError(f"the prompt must hold one audio placeholder, not {ids.count(self._pad)}")
        return ids

    def _windows(self, payload: Any, single: bool) -> list[tuple[torch.Tensor, torch.Tensor, int, int]]:
        """(features (1, bins, frames), mask (1, frames), tokens, hash) of each window."""
        samples = read_payload(payload)
        if samples is None:
            clip = torch.from_numpy(load_audio(payload)).float()
        else:
            clip = torch.from_numpy(samples.copy()).float() / 32768.0
        frames = len(clip) // HOP
        if frames < 1:
            raise ValueError("the audio is shorter than one frame")
        window = frames if single else self._window
        # Whole frames only, as the reference has it; behind the clip there is silence.
        padded = torch.nn.functional.pad(clip[: frames * HOP], (0, HOP * 4))
        energies = log_energies(padded.unsqueeze(0), self._bins)[0, :, :frames]
        out = []
        loudest = torch.tensor(float("-inf"))
        for index, length in enumerate(window_lengths(frames, window)):
            part = energies[:, index * window : index * window + length]
            loudest = torch.maximum(loudest, part.max())
            # The floor looks back and never ahead: a finished window keeps its features.
            feature = torch.full((self._bins, window), float(LOG_FLOOR))
            feature[:, :length] = scaled_to(part, loudest)
            out.append(
                self._item(feature.to(self._dtype), length, index < finished_windows(len(clip), window))
            )
        return out

    def _item(
        self, feature: torch.Tensor, length: int, finished: bool
    ) -> tuple[torch.Tensor, torch.Tensor, int, int]:
        mask = torch.zeros(1, feature.shape[1], dtype=torch.int32)
        mask[0, :length] = 1
        raw = feature.contiguous().view(torch.uint8).numpy().tobytes()
        # An unfinished window must not be taken for the finished one that it will become.
        digest = hashlib.blake2b(raw, digest_size=8, person=b"whole" if finished else b"open").digest()
        return feature.unsqueeze(0), mask, audio_tokens(length, self._block), int.from_bytes(digest, "big")
