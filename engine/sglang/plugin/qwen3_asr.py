"""Qwen3-ASR's front end: the audio as window-aligned items, each found again by the prefix cache.

Items of one size also batch: the stock front end makes items as long as their audio, and the model joins
the items of a batch as if they were equally long.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sglang.srt.models.qwen3_asr import Qwen3ASRForConditionalGeneration
from sglang.srt.multimodal.processors.base_processor import BaseMultimodalProcessor
from sglang.srt.utils import load_audio

from engine.sglang.compat import audio_item, own_options, processor_output
from engine.sglang.payload import read_payload, to_pcm16

from .arrays import as_array
from .logmel import LOG_FLOOR, log_energies, scaled_to
from .pauses import settle
from .spans import HOP, audio_tokens, finished_windows, window_lengths

_THREADS = 8
_BEFORE, _BEHIND = 3 * HOP, 4 * HOP
"""Samples around a window that are transformed with it: more than its first and last frames reach into."""
_KNOWN = 1024
"""Finished windows whose features are kept, 0.2 MB each: a growing turn is asked for again and again."""
SINGLE_ITEM = "SEAMSCRIBE_SINGLE_ITEM"
"""Environment variable, "1" for one item a clip, to compare with; a request's options have the same."""


@dataclass(frozen=True, slots=True, eq=False)
class _Window:
    """`feature` (bins, window) holds `frames` of audio, which become `tokens`; `loudest` up to its end."""

    feature: npt.NDArray[Any]
    frames: int
    tokens: int
    digest: int
    loudest: float


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
        self._known: dict[tuple[bytes, float], _Window] = {}
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(_THREADS, "log-mel", initializer=torch.set_num_threads, initargs=(1,))

    def _id(self, name: str) -> int:
        return int(self._text.convert_tokens_to_ids(name))

    async def process_mm_data_async(
        self, image_data: Any, audio_data: Any, input_text: Any, request_obj: Any, **kwargs: Any
    ) -> Any:
        """Raises `ValueError` for a prompt without exactly one placeholder and for empty audio."""
        if not audio_data:
            return None
        settle()
        if len(audio_data) != 1:
            raise ValueError(f"one audio input a request, not {len(audio_data)}")
        prompt = self._prompt(input_text)
        loop = asyncio.get_running_loop()
        asked = own_options(request_obj, audio_data[0]).get("single_item")
        single = self._single if asked is None else bool(asked)
        windows = await loop.run_in_executor(self._pool, self._windows, audio_data[0], single)
        place = prompt.index(self._pad)
        total = sum(window.tokens for window in windows)
        ids = prompt[:place] + [self._pad] * total + prompt[place + 1 :]
        items = []
        for window in windows:
            last = place + window.tokens - 1
            items.append(
                audio_item(window.feature, window.digest, offsets=[(place, last)], frames=window.frames)
            )
            place += window.tokens
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

    def _windows(self, payload: Any, single: bool) -> list[_Window]:
        samples = read_payload(payload)
        if samples is None:
            samples = np.frombuffer(to_pcm16(load_audio(payload)), "<i2")
        frames = len(samples) // HOP
        if frames < 1:
            raise ValueError("the audio is shorter than one frame")
        window = frames if single else self._window
        out: list[_Window] = []
        loudest = float("-inf")
        for index, length in enumerate(window_lengths(frames, window)):
            begin = index * window * HOP
            # Whole frames only, as the reference has it; behind the clip there is silence.
            near = samples[max(0, begin - _BEFORE) : min(begin + length * HOP + _BEHIND, frames * HOP)]
            finished = index < finished_windows(len(samples), window)
            key = (hashlib.blake2b(near.tobytes(), digest_size=16).digest(), loudest) if finished else None
            found = self._known.get(key) if key is not None else None
            if found is None:
                found = self._window_of(near, begin, length, window, loudest, finished)
                if key is not None:
                    self._remember(key, found)
            out.append(found)
            # The floor looks back and never ahead: a finished window keeps its features.
            loudest = found.loudest
        return out

    def _window_of(
        self,
        near: npt.NDArray[np.int16],
        begin: int,
        length: int,
        window: int,
        loudest: float,
        finished: bool,
    ) -> _Window:
        """One window's features from its samples and those its first and last frames reach into."""
        before = min(begin, _BEFORE)
        clip = torch.zeros(before + length * HOP + _BEHIND)
        clip[: len(near)] = torch.from_numpy(near.astype(np.float32)) / 32768.0
        skipped = before // HOP
        energies = log_energies(clip.unsqueeze(0), self._bins)[0, :, skipped : skipped + length]
        floor = max(loudest, float(energies.max()))
        feature = torch.full((self._bins, window), float(LOG_FLOOR))
        feature[:, :length] = scaled_to(energies, torch.tensor(floor))
        raw = as_array(feature.to(self._dtype))
        # An unfinished window must not be taken for the finished one that it will become.
        digest = hashlib.blake2b(raw.tobytes(), digest_size=8, person=b"whole" if finished else b"open")
        number = int.from_bytes(digest.digest(), "big")
        return _Window(raw, length, audio_tokens(length, self._block), number, floor)

    def _remember(self, key: tuple[bytes, float], window: _Window) -> None:
        with self._lock:
            self._known[key] = window
            if len(self._known) > _KNOWN:
                # The one that came first: turns end, and their windows are never asked for again.
                del self._known[next(iter(self._known))]
