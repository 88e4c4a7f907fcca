"""Real weights and real speech on SGLang itself, on the CPU: the same words as the other engine's.

Runs in SGLang's own environment (`engine/sglang/install_cpu.sh`), a few minutes: `pytest -m sglang`.
"""

from __future__ import annotations

import asyncio
import csv
import signal
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soxr

from engine.contract import UNREACHABLE, Audio, Priority, RecognitionTask, Word, join
from engine.local.recognizer import open_recognizer
from engine.sglang.bench.clips import distance, words
from engine.sglang.client import SglangRecognizer
from engine.sglang.folders import serving_folder
from engine.sglang.http import HttpTransport
from engine.sglang.http1 import Endpoint
from streaming.app import running as running_services
from streaming.settings import EngineSettings, Settings
from tests.engine import conformance as conform
from tests.support.data import DATA, needs_data
from tests.support.server import listening
from tests.support.waiting import until

from .sglang_sessions import in_two_halves, sessions_agree
from .sglang_site import Child, client, command, engine, server

pytestmark = [
    pytest.mark.sglang,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("sglang") is None, reason="SGLang has its own environment"),
    needs_data,
]

ENGLISH = 8
JFK = (
    "And so my fellow Americans, ask not what your country can do for you,"
    " ask what you can do for your country."
)
CHINESE = ("zh-funasr-asr_example.wav", "zh-funasr-sample.wav", "zh-aishell-BAC009S0724W0121.wav")


def read(path: Path) -> Audio:
    soundfile = import_module("soundfile")
    samples, rate = soundfile.read(path, dtype="float32")
    mono = samples if samples.ndim == 1 else samples.mean(axis=1)
    return np.asarray(soxr.resample(mono, rate, 16_000), np.float32)


def english(count: int = ENGLISH) -> list[tuple[Audio, str]]:
    with open(DATA / "MANIFEST.tsv", newline="", encoding="utf-8") as file:
        rows = [
            row
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if row["path"].startswith("utterances_en/librispeech")
        ]
    return [(read(DATA / row["path"]), row["ref_text"]) for row in rows[::2][:count]]


def task(number: int, audio: Audio, **more: object) -> RecognitionTask:
    values: dict[str, object] = {
        "id": f"t{number}",
        "session": f"s{number}",
        "audio": audio,
        "start": 8_000,
        "priority": Priority.FINAL,
    }
    return RecognitionTask(**values | more)  # type: ignore[arg-type]


async def heard(recognizer: SglangRecognizer, clips: Iterable[Audio], **more: object) -> list[str]:
    found = await asyncio.gather(
        *(recognizer.recognize(task(number, clip, **more)) for number, clip in enumerate(clips))
    )
    return [join(hypothesis.words) for hypothesis in found]


def by_the_library(folder: Path, clips: Iterable[Audio], **told: str) -> list[str]:
    """What transformers makes of the clips: the same weights, 32-bit, the full window, greedy."""
    library, torch = import_module("transformers"), import_module("torch")
    model = library.WhisperForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    processor = library.WhisperProcessor.from_pretrained(folder)
    found: list[str] = []
    for clip in clips:
        features = processor(clip, sampling_rate=16_000, return_tensors="pt").input_features
        ids = model.generate(features, max_new_tokens=100, **told)
        found.append(processor.batch_decode(ids, skip_special_tokens=True)[0].strip())
    return found


def reference(model: str, clips: Iterable[Audio], **more: object) -> list[str]:
    other = open_recognizer(model, 1)
    return [join(other.decode(task(number, clip, **more)).words) for number, clip in enumerate(clips)]


def errors(expected: list[str], found: list[str]) -> float:
    """Word errors in percent, over all texts."""
    wrong = sum(distance(words(a), words(b)) for a, b in zip(expected, found, strict=True))
    return 100.0 * wrong / sum(len(words(text)) for text in expected)


async def test_english_over_http() -> None:
    """One server for everything; at the end it is killed, and a session waits for the next one."""
    clips = english()
    folder = serving_folder("tiny.en")
    async with server(folder) as child:
        recognizer = client(HttpTransport([child.url]), folder)
        await conforms(recognizer)
        found = await heard(recognizer, [audio for audio, _ in clips])
        await forced_words_are_continued(recognizer, clips[0][0])
        await speech_behind_known_words_is_heard(recognizer, [audio for audio, _ in clips[4:7]])
        await a_disconnect_reaches_the_engine(recognizer, lambda: counted(child.url), clips[0][0])
        await sessions_agree(recognizer, "tiny.en", "en", [audio for audio, _ in clips[:5]])
        await recognizer.close()
        await a_killed_engine_costs_a_session_nothing(child)
    texts = [text for _, text in clips]
    ours, other = errors(texts, found), errors(texts, reference("tiny.en", [audio for audio, _ in clips]))
    assert abs(ours - other) <= 2.0, (ours, other)


async def conforms(recognizer: SglangRecognizer, *, every: int = 7) -> None:
    """What every engine must do, on real speech."""
    audio = read(DATA / "formats" / "jfk-44k1-stereo-24bit.flac")
    whole = await conform.hears(recognizer, audio, JFK, most_errors=0.05)
    await conform.continues_a_prefix(recognizer, audio, whole, every=every)
    await conform.obeys_a_prefix_that_is_not_what_it_would_say(recognizer, audio, whole)
    await conform.is_silent_on(recognizer, np.zeros(4 * 16_000, np.float32))
    await conform.is_silent_on(recognizer, np.zeros(0, np.float32))
    await conform.refuses_what_it_cannot_do(recognizer, audio)
    await conform.goes_on_after_a_cancelled_task(recognizer, audio)


async def a_disconnect_reaches_the_engine(
    recognizer: SglangRecognizer, count: Callable[[], Awaitable[float]], audio: Audio
) -> None:
    """The engine's own counter of aborted requests grows when a caller leaves."""
    before = await count()
    running = asyncio.create_task(recognizer.recognize(task(99, np.tile(audio, 3)[: 29 * 16_000])))
    await asyncio.sleep(0.4)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    async with asyncio.timeout(30):
        while await count() == before:  # noqa: ASYNC110 - another process counts
            await asyncio.sleep(0.2)


async def a_killed_engine_costs_a_session_nothing(child: Child) -> None:
    """SIGKILL in the middle of a session, another engine once it has asked in vain: the same words."""
    audio = read(DATA / "formats" / "jfk-44k1-stereo-24bit.flac")
    settings = Settings(engine=EngineSettings(kind="sglang", model="tiny.en", servers=(child.url,)))
    async with running_services(settings) as services, listening(services) as place:

        async def again() -> None:
            await until(lambda: services.metrics.retries.value(cause=UNREACHABLE) >= 6)
            await child.start()

        undisturbed = await in_two_halves(place.address, audio)
        disturbed = await in_two_halves(place.address, audio, lambda: child.end(signal.SIGKILL), again)
    assert disturbed == undisturbed


async def forced_words_are_continued(recognizer: SglangRecognizer, audio: Audio) -> None:
    """The reply to a task with a prefix holds only what comes after it."""
    whole = (await recognizer.recognize(task(100, audio))).words
    prefix = whole[: len(whole) // 2]
    rest = (await recognizer.recognize(task(101, audio, prefix=prefix))).words
    assert join([*prefix, *rest]) == join(whole)
    assert rest[0].start >= prefix[-1].end
    wrong = (Word("Quite", 8_000, 9_000), Word("different", 9_000, 12_000))
    other = (await recognizer.recognize(task(102, audio, prefix=wrong))).words
    # Whatever it says after words that nobody said, it does not say them again.
    assert not join(other).startswith(("Quite", "different"))


async def speech_behind_known_words_is_heard(recognizer: SglangRecognizer, clips: list[Audio]) -> None:
    """The model ends where the known sentence does, unless it is told that somebody goes on; all are asked at
    once, so that those that are told share a batch with those that are not."""
    asked = []
    for number, (audio, behind) in enumerate(pairwise(clips)):
        before = audio[-5 * 16_000 :]
        known = (await recognizer.recognize(task(110 + number, before))).words
        both = np.concatenate([before, np.zeros(16_000, np.float32), behind[: round(1.2 * 16_000)]])
        asked += [
            task(120 + 10 * number + bool(voiced), both, prefix=known, voiced=voiced, priority=Priority.FIRST)
            for voiced in (0, 16_000)
        ]
    found = await asyncio.gather(*map(recognizer.recognize, asked))
    assert [bool(reply.words) for reply in found] == [False, True, False, True]
    assert join(found[-1].words).startswith("Then said")


async def counted(url: str) -> float:
    """Requests that the engine itself says it has aborted."""
    endpoint = Endpoint(url)
    _, body = await endpoint.fetch("GET", "/metrics")
    endpoint.close()
    lines = [line for line in body.decode().splitlines() if line.startswith("sglang:num_aborted_requests")]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


async def counted_here() -> float:
    """The same where the engine is in this process."""
    prometheus = import_module("prometheus_client")
    registry = prometheus.CollectorRegistry()
    import_module("prometheus_client.multiprocess").MultiProcessCollector(registry)
    return sum(
        float(sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith("sglang:num_aborted_requests")
    )


async def test_two_languages_in_one_process() -> None:
    folder = serving_folder("base")
    transport = await asyncio.to_thread(engine, folder, enable_metrics=True)
    recognizer = client(transport, folder)
    try:
        await conforms(recognizer, every=11)
        chinese = [read(DATA / "languages" / name) for name in CHINESE]
        told = await heard(recognizer, chinese, language="zh")
        guessed = [await recognizer.recognize(task(number, clip)) for number, clip in enumerate(chinese)]
        one = guessed[0]
        again = await recognizer.recognize(task(7, chinese[0], session="fresh", prefix=one.words[:4]))
        detections = recognizer.counters["detection"]
        spanish = [read(DATA / "languages" / "es-leopard.wav")]
        translated = await heard(recognizer, spanish, translate=True)
        await a_disconnect_reaches_the_engine(recognizer, counted_here, chinese[0])
        await sessions_agree(recognizer, "base", "en", [audio for audio, _ in english(3)])
        await sessions_agree(recognizer, "base", "zh", chinese, characters=True)
    finally:
        await recognizer.close()
    assert [found.language for found in guessed] == ["zh"] * len(chinese)
    assert all(found.language_probability > 0.5 for found in guessed)
    assert [join(found.words) for found in guessed] == told
    assert join([*one.words[:4], *again.words]) == told[0]
    assert detections == 1
    in_english = by_the_library(folder, spanish, language="es", task="translate")
    assert {"sand", "white", "grain"} <= set(words(translated[0]))
    assert errors(in_english, translated) <= 20.0, (in_english, translated)
    # The other engine rounds its weights, which tells in three short clips: so the reference library here.
    other = by_the_library(folder, chinese, language="zh")
    wrong = sum(distance(list(a), list(b)) for a, b in zip(other, told, strict=True))
    assert wrong <= 0.02 * sum(map(len, other)), (told, other)


async def test_the_command_and_the_death_of_the_engine_inside_it() -> None:
    """`seamscribe serve --engine sglang`: its engine's worker is killed in the middle of a session, another
    one started by the service itself; the session says everything, and the service ends in order."""
    audio = read(DATA / "formats" / "jfk-44k1-stereo-24bit.flac")
    async with command("--engine", "sglang", "--model", "tiny.en") as (address, process):
        undisturbed = await in_two_halves(address, audio)
        disturbed = await in_two_halves(address, audio, lambda: kill_workers(process.pid))
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, 60) == 0
    assert disturbed == undisturbed


async def kill_workers(pid: int) -> None:
    """SIGKILL for what computes in the engine of a process."""
    psutil = import_module("psutil")
    children = psutil.Process(pid).children(recursive=True)
    workers = [child for child in children if "scheduler" in child.name() + " ".join(child.cmdline())]
    assert workers, [child.cmdline() for child in children]
    for worker in workers:
        worker.kill()
