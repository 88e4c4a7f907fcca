"""A small decoder-only checkpoint with random weights on SGLang itself, on the CPU.

It says nothing sensible; it shows that prefill is cut into pieces between which live streams go on, that
finished windows are found again in the cache, and that half characters never come out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from engine.contract import Audio, Priority, RecognitionTask, join
from engine.policies.qwen3_asr import prompt
from engine.sglang.inproc import InprocTransport
from engine.sglang.payload import to_pcm16
from engine.sglang.plugin.spans import audio_tokens, finished_windows
from engine.sglang.transport import Part, Request
from tests.support.random_weights import responsive_checkpoint
from tests.support.waiting import until

from .sglang_site import client, engine

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang has its own environment"),
]


BEFORE, BEHIND = 9, 9
"""Tokens of the empty system turn and the start of the user's, and of what follows the audio to `<asr_text>`,
in the published vocabulary."""


def sound(seconds: float) -> Audio:
    """Noise whose loudness changes, the loudest part first: no later window changes an earlier one."""
    count = round(seconds * 16_000)
    random = np.random.default_rng(2)
    shape = 0.1 + 0.05 * np.sin(np.arange(count) / 5000.0)
    audio = random.standard_normal(count) * shape
    audio[:2000] *= 4.0
    return np.clip(audio, -1, 1).astype(np.float32)


def request(rid: str, audio: Audio, tokens: int, **more: object) -> Request:
    task = RecognitionTask(rid, "s", audio, 0, Priority.FINAL, language="en")
    sampling = {"max_new_tokens": tokens, "temperature": 0.0, "ignore_eos": True, "stream_interval": 1} | more
    return Request(rid, to_pcm16(audio), sampling, text=prompt(task, "en"), logprobs=True, priority=10)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return responsive_checkpoint(tmp_path_factory.mktemp("model"))


async def last(parts: AsyncIterator[Part]) -> Part:
    found = [part async for part in parts]
    return found[-1]


async def test_decoder_only(folder: Path) -> None:
    # One engine for everything: its start is most of the time that this takes.
    transport = await asyncio.to_thread(engine, folder)
    try:
        await finished_windows_are_found_again(transport)
        await windows_say_what_one_item_says(transport)
        await a_long_prefill_lets_live_streams_go_on(transport)
        await half_characters_never_come_out(transport, folder)
    finally:
        await transport.close()


async def finished_windows_are_found_again(transport: InprocTransport) -> None:
    """A refresh finds every window the one before had finished: from 40 s on three quarters of its prompt,
    with the text around the audio counted as the published vocabulary counts it (here a byte is a token)."""
    turn = sound(58)
    for seconds in range(30, 59):
        part = await last(transport.generate(request(f"grow{seconds:04d}.", turn[: seconds * 16_000], 2)))
        if seconds == 30:
            continue
        finished = finished_windows((seconds - 1) * 16_000, 800) * audio_tokens(800, 100)
        assert part.cached_tokens >= finished, (seconds, part)
        share = (finished + BEFORE) / (audio_tokens(seconds * 100, 100) + BEFORE + BEHIND)
        assert seconds < 40 or share >= 0.75, (seconds, share)


async def windows_say_what_one_item_says(transport: InprocTransport) -> None:
    """Log-probabilities of both forms agree within rounding, at every length of the last window."""
    outputs = set()
    for number, seconds in enumerate((3.3, 8.0, 12.7, 16.0, 17.1)):
        audio = sound(20)[: round(seconds * 16_000)]
        windows = await last(transport.generate(request(f"win{number:04d}.", audio, 5)))
        whole = request(f"one{number:04d}.", audio, 5, custom_params={"single_item": True})
        single = await last(transport.generate(whole))
        assert windows.prompt_tokens == single.prompt_tokens
        assert windows.ids == single.ids
        assert np.allclose(windows.logprobs, single.logprobs, atol=1e-3), (seconds, windows, single)
        outputs.add(windows.logprobs)
    # The weights react to what they hear, or all of this would show nothing.
    assert len(outputs) == 5


async def a_long_prefill_lets_live_streams_go_on(transport: InprocTransport) -> None:
    """While 300 s of audio are prefilled in pieces, running streams get token after token."""
    seen: dict[str, int] = {}

    async def listen(rid: str) -> None:
        async for part in transport.generate(request(rid, sound(4), 400)):
            seen[rid] = len(part.ids)

    names = [f"live{number:04d}." for number in range(3)]
    live = [asyncio.create_task(listen(name)) for name in names]
    await until(lambda: len(seen) >= 3)
    before = dict(seen)
    long = transport.generate(request("long0000.", sound(300), 2))
    first = await anext(long)
    during = {name: seen[name] - before[name] for name in names}
    await long.aclose()
    assert first.prompt_tokens > 3900
    # 3,900 tokens are 16 pieces of 256.
    assert min(during.values()) >= 8, during
    await asyncio.gather(*live)


async def half_characters_never_come_out(transport: InprocTransport, folder: Path) -> None:
    """One token is one byte here, so any output is full of broken characters."""
    recognizer = client(transport, folder)
    for number, language in enumerate(("zh", "en", None)):
        task = RecognitionTask(f"u{number}", f"u{number}", sound(9), 0, Priority.FINAL, language=language)
        found = await recognizer.recognize(task)
        text = join(found.words)
        assert "\N{REPLACEMENT CHARACTER}" not in text
        assert text.encode("utf-8").decode("utf-8") == text
