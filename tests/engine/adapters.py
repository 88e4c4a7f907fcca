"""Every engine adapter over one scripted model: SGLang in memory, over HTTP and in process, under each
policy; the embedded engine; the fake one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.contract import Capabilities, EngineError, Finish, Hypothesis, RecognitionTask, Recognizer
from engine.fake import FakeRecognizer, FakeScript
from engine.local import decoder as embedded
from engine.local.recognizer import LocalRecognizer
from engine.local.settings import DecodeSettings
from engine.policies.fun_asr import FunAsrServing
from engine.policies.moss_td import MossTdServing
from engine.policies.qwen3_asr import Qwen3AsrServing
from engine.policies.serving import ServingPolicy
from engine.policies.text_words import estimated_words
from engine.policies.whisper import WhisperPolicy
from engine.policies.whisper_serving import WhisperServing
from engine.sglang.client import ClientSettings, SglangRecognizer
from engine.sglang.http import HttpTransport
from engine.sglang.inproc import open_inproc
from engine.sglang.transport import Part, Request, Transport
from engine.tokens import FileTokens, TokenTable, byte_alphabet
from engine.weights import find_weights

from .sglang.scripted import event, message, respond, site, stream_parts
from .traces import RATE, Speaker

Writer = Callable[[Speaker], bytes]
"""What the model writes to the task that runs now."""


@lru_cache
def tokens() -> TokenTable:
    """A real vocabulary: signs and many characters take several tokens."""
    return FileTokens.open(find_weights("base") / "tokenizer.json")


def plain(speaker: Speaker) -> bytes:
    words, finish = speaker.says()
    data = "".join(f" {word.text}" if word.space else word.text for word in words).encode()
    # A budget knows nothing of characters.
    return data[:-1] if finish == "length" else data


def encoded(data: bytes) -> list[int]:
    """Tokens of an output, down to single bytes where it ends inside a character."""
    text = data.decode("utf-8", "ignore")
    table = tokens()
    return [*table.encode(text), *(byte_token(byte) for byte in data[len(text.encode()) :])]


def byte_token(byte: int) -> int:
    name = next(char for char, value in byte_alphabet().items() if value == byte)
    found = tokens().id(name)
    assert found is not None
    return found


def marked(speaker: Speaker) -> bytes:
    """With times and a speaker, as a model that tells speakers apart writes them."""
    words, _ = speaker.says()
    if not words or speaker.task is None:
        return b""
    start, end = ((place - speaker.task.start) / RATE for place in (words[0].start, words[-1].end))
    return f"[{start:.2f}][S01]".encode() + plain(speaker) + f"[{end:.2f}]".encode()


@dataclass(frozen=True)
class Model:
    policy: Callable[[], ServingPolicy]
    writes: Writer = plain
    continues: bool = True


MODELS = {
    "whisper": Model(lambda: WhisperServing(WhisperPolicy(tokens(), multilingual=True))),
    "qwen3_asr": Model(Qwen3AsrServing),
    "moss_td": Model(MossTdServing, marked, continues=False),
    "fun_asr": Model(FunAsrServing, continues=False),
}


def parts(writes: Writer, speaker: Speaker) -> list[Part]:
    """The output as it grows, a token at a time; a cut character looks as SGLang shows it."""
    ids, finish = encoded(writes(speaker)), speaker.says()[1]
    pieces = [tokens().piece(token) for token in ids]
    return [
        Part(
            tuple(ids[:end]),
            b"".join(pieces[:end]).decode("utf-8", "replace"),
            finish if end == len(ids) else None,
        )
        for end in range(1 if ids else 0, len(ids) + 1)
    ]


class Scripted:
    """A transport in memory."""

    def __init__(self, writes: Writer, speaker: Speaker) -> None:
        self._writes, self._speaker = writes, speaker

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        found = parts(self._writes, self._speaker)
        for part in found if request.stream else found[-1:]:
            yield part

    async def abort(self, rid: str) -> None:
        pass

    async def healthy(self) -> bool:
        return True

    async def close(self) -> None:
        pass


def recognizer(transport: Transport, policy: ServingPolicy) -> SglangRecognizer:
    return SglangRecognizer(transport, policy, ClientSettings(model="m"))


@asynccontextmanager
async def memory(model: Model, speaker: Speaker) -> AsyncIterator[Recognizer]:
    yield recognizer(Scripted(model.writes, speaker), model.policy())


@asynccontextmanager
async def over_http(model: Model, speaker: Speaker) -> AsyncIterator[Recognizer]:
    async def answer(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        found = parts(model.writes, speaker)
        if body["stream"]:
            await stream_parts(found, writer, cut=11)
        else:
            respond(writer, event(message(found[-1]))[6:].strip())

    async with site(answer) as server:
        engine = recognizer(HttpTransport([server.url]), model.policy())
        yield engine
        await engine.close()


@asynccontextmanager
async def in_process(model: Model, speaker: Speaker) -> AsyncIterator[Recognizer]:
    async def generate(**asked: Any) -> Any:
        found = [message(part) for part in parts(model.writes, speaker)]

        async def stream() -> AsyncGenerator[dict[str, Any], None]:
            for part in found:
                yield part

        return stream() if asked["stream"] else found[-1]

    def make(**_: Any) -> Any:
        return SimpleNamespace(async_generate=generate, shutdown=lambda: None)

    engine = recognizer(await asyncio.to_thread(open_inproc, {}, {}, make=make), model.policy())
    yield engine
    await engine.close()


TRANSPORTS: dict[str, Callable[[Model, Speaker], AbstractAsyncContextManager[Recognizer]]] = {
    "memory": memory,
    "http": over_http,
    "in process": in_process,
}


class Runtime:
    """What the embedded engine uses of its runtime, saying the trace after the forced tokens."""

    is_multilingual, n_mels = True, 80

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self.models = SimpleNamespace(Whisper=lambda *_, **__: self)
        self.StorageView = SimpleNamespace(from_array=lambda _: None)

    def encode(self, _: Any) -> None:
        return None

    def generate(self, _: Any, prompts: list[list[int]], *, max_length: int, **__: Any) -> list[Any]:
        (prompt,) = prompts
        marks = tokens().id("<|notimestamps|>")
        assert marks is not None
        prefix = prompt[len(prompt) - prompt[::-1].index(marks) :]
        if self._speaker.says()[1] == "abort":
            raise RuntimeError("aborted")
        fresh = encoded(plain(self._speaker))
        if self._speaker.says()[1] == "length":
            # Tokens that spell nothing fill the budget up.
            fresh += [marks] * max_length
        return [SimpleNamespace(sequences_ids=[prefix + fresh], scores=[-0.1], no_speech_prob=0.0)]

    def unload_model(self) -> None:
        pass


@asynccontextmanager
async def locally(speaker: Speaker, patch: pytest.MonkeyPatch) -> AsyncIterator[Recognizer]:
    """The embedded engine; its words' times are estimated, as SGLang's are."""
    patch.setattr(embedded, "_runtime", lambda: Runtime(speaker))
    patch.setattr(embedded, "FileTokens", SimpleNamespace(open=lambda _: tokens()))
    # The search for one hypothesis has weights of its own; a script has none, and answers a beam.
    patch.setattr(embedded, "GreedySearch", lambda *_, **__: None)
    settings = DecodeSettings(align=False, quick_beam=2)
    engine = LocalRecognizer(
        embedded.LocalDecoder(Path(), name="m", threads=1, settings=settings), deadline_s=60.0
    )
    yield engine
    await engine.close()


class Fake(FakeRecognizer):
    """The scripted engine, saying the trace."""

    def __init__(self, speaker: Speaker, capabilities: Capabilities) -> None:
        super().__init__(FakeScript(says=lambda task: self._says(task)))
        self._speaker, self._capabilities = speaker, capabilities

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def _says(self, task: RecognitionTask) -> Hypothesis:
        text, finish = plain(self._speaker).decode("utf-8", "ignore"), self._speaker.says()[1]
        if finish == "abort":
            raise EngineError("aborted", "the script says so", retryable=True)
        return Hypothesis(tuple(estimated_words(text, task)), Finish(finish))
