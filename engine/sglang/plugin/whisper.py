"""Whisper's front end: our prompt, our features.

Stock SGLang replaces the prompt by one for multilingual models without context, and computes features on
one thread, 115 ms a request. Here the prompt is what the request says: token ids, or text in the model's
own notation (`<|startofprev|> earlier words<|startoftranscript|><|en|>...`). Audio is raw PCM or any file.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from sglang.srt.models.whisper import WhisperForConditionalGeneration
from sglang.srt.multimodal.processors.base_processor import BaseMultimodalProcessor
from sglang.srt.utils import load_audio

from engine.sglang.compat import audio_item, own_options, processor_output, sampling
from engine.sglang.payload import read_payload, to_pcm16
from engine.sglang.windows import DEVICE_FRONT_END, HOP, window_frames

from .logmel import log_mel_padded
from .pauses import settle

_DEFAULT_OUTPUT = 128
"""What SGLang generates where a request does not say."""
_THREADS = 8


class SeamscribeWhisperProcessor(BaseMultimodalProcessor):
    """Token ids and PCM in; `input_ids` and one audio item out."""

    models = (WhisperForConditionalGeneration,)

    def __init__(self, hf_config: Any, server_args: Any, _processor: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(hf_config, server_args, _processor, *args, **kwargs)
        self._config = hf_config
        self._text = self._processor.tokenizer
        self._pool = ThreadPoolExecutor(_THREADS, "log-mel", initializer=torch.set_num_threads, initargs=(1,))
        self._on_device = os.environ.get(DEVICE_FRONT_END) == "1"
        self._hashes = itertools.count(1)

    async def process_mm_data_async(
        self, image_data: Any, audio_data: Any, input_text: Any, request_obj: Any, **kwargs: Any
    ) -> Any:
        """Raises `ValueError`, which SGLang answers with 400, for what the model cannot take."""
        if not audio_data:
            return None
        settle()
        if len(audio_data) != 1:
            raise ValueError(f"one audio input a request, not {len(audio_data)}")
        options = sampling(request_obj)
        prompt = self._prompt(input_text)
        room = int(self._config.max_target_positions)
        wanted = int(options.get("max_new_tokens") or _DEFAULT_OUTPUT)
        if len(prompt) + wanted > room:
            raise ValueError(
                f"{len(prompt)} prompt tokens and {wanted} new ones exceed the {room} positions of this model"
            )
        own = own_options(request_obj, audio_data[0])
        loop = asyncio.get_running_loop()
        feature, frames = await loop.run_in_executor(
            self._pool, self._features, audio_data[0], own.get("window_s")
        )
        # Nothing is ever found again by its hash here (no prefix cache with encoder-decoder models), so a
        # number that does not repeat saves hashing a megabyte.
        item = audio_item(feature, next(self._hashes), frames=frames, goes_on=bool(own.get("goes_on")))
        return processor_output(prompt, [item])

    def _prompt(self, source: Any) -> list[int]:
        ids = list(source) if isinstance(source, list) else self._encode(str(source or ""))
        if not ids:
            raise ValueError("a prompt is needed, as token ids or in the model's notation")
        start = self._config.decoder_start_token_id
        if start not in ids:
            raise ValueError("the prompt lacks the start-of-transcript token")
        return ids

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._text(text, add_special_tokens=False)["input_ids"]
        return ids

    def _features(self, payload: Any, asked: float | None) -> tuple[Any, int]:
        """The audio item's feature and the window in mel frames.

        Samples go to the scheduler as a numpy array: pickling a tensor takes ten times as long.
        """
        pcm = read_payload(payload)
        if pcm is None:
            pcm = np.frombuffer(to_pcm16(load_audio(payload)), "<i2")
        most = 2 * int(self._config.max_source_positions)
        if len(pcm) > most * HOP:
            raise ValueError(
                f"{len(pcm) / 16000:.1f} s of audio exceed the model's {most * HOP / 16000:.0f} s"
            )
        if self._on_device:
            return pcm, window_frames(len(pcm), most, asked)
        samples = torch.from_numpy(pcm.astype(np.float32)) / 32768.0
        return log_mel_padded(samples, int(self._config.num_mel_bins), most), most
