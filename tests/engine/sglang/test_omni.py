"""Requests to SGLang-Omni over a real socket, to a server that takes them as its routes do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import uvicorn

from engine.contract import EngineError
from engine.sglang.bench.omni.standin import StandIn
from engine.sglang.http import HttpTransport
from engine.sglang.omni.form import Omni, growing
from engine.sglang.transport import Part, Request
from tests.support.waiting import until


def request(seconds: float = 20.0, **changes: Any) -> Request:
    sampling = {"max_new_tokens": 512, "temperature": 0.0, "repetition_penalty": 1.0, "stream_interval": 8}
    values = {"rid": "r-1", "pcm": b"\1\0" * round(16_000 * seconds), "sampling": sampling, "text": "转写"}
    return Request(**values | changes)


@asynccontextmanager
async def serving(made: StandIn, *, generates: bool = True) -> AsyncIterator[HttpTransport]:
    config = uvicorn.Config(made.app(), port=0, log_level="warning", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    transport = HttpTransport([f"http://127.0.0.1:{port}"], form=Omni(generates=generates))
    try:
        yield transport
    finally:
        await transport.close()
        server.should_exit = True
        await task


async def parts_of(transport: HttpTransport, asked: Request) -> list[Part]:
    return [part async for part in transport.generate(asked)]


async def test_what_is_short_is_told_how_it_ended() -> None:
    made = StandIn()
    async with serving(made) as transport:
        (whole,) = await parts_of(transport, request(stream=False))
        few = {"max_new_tokens": 5, "temperature": 0.1, "custom_params": {"language": "en"}}
        (cut,) = await parts_of(transport, request(stream=False, sampling=few))
        assert await transport.healthy()
    assert (whole.finish, whole.told, whole.output_tokens) == ("stop", True, 48)
    assert (cut.finish, cut.output_tokens, cut.prompt_tokens) == ("length", 5, 47 + 258)
    assert [asked["path"] for asked in made.asked] == ["/generate"] * 2
    assert made.asked[1] | {"seconds": 20.0, "temperature": 0.1, "prompt": "转写"} == made.asked[1]


async def test_what_is_watched_grows_and_its_terminal_text_counts() -> None:
    made = StandIn()
    async with serving(made) as transport:
        parts = await parts_of(transport, request())
        cut = await parts_of(
            transport, request(sampling={"max_new_tokens": 20, "temperature": 0.1, "repetition_penalty": 1.1})
        )
    assert len(parts) == 7
    assert all(later.text.startswith(part.text) for part, later in pairwise(parts))
    assert (parts[-1].finish, parts[-1].told) == ("stop", False)
    assert parts[-1].text == parts[-2].text
    # The end of a cut output was in no delta.
    assert len(cut[-1].text) > len(cut[-2].text)
    asked, retried = made.asked
    assert (asked["prompt"], asked["stream"], asked["max_new_tokens"]) == ("转写", "true", "512")
    assert "repetition_penalty" not in asked
    assert (retried["repetition_penalty"], retried["temperature"]) == ("1.1", "0.1")


async def test_a_model_whose_audio_only_one_route_takes_goes_there() -> None:
    made = StandIn()
    asked = {"max_new_tokens": 200, "temperature": 0.0, "custom_params": {"language": "en"}}
    async with serving(made, generates=False) as transport:
        parts = await parts_of(transport, request(stream=False, sampling=asked))
    assert (parts[-1].finish, parts[-1].told) == ("stop", False)
    assert (made.asked[0]["path"], made.asked[0]["language"]) == ("/v1/audio/transcriptions", "en")


async def test_leaving_stops_what_is_watched() -> None:
    made = StandIn(rate=100.0)
    async with serving(made) as transport:
        stream = transport.generate(request())
        assert (await anext(stream)).finish is None
        await stream.aclose()
        await until(lambda: made.left)
    assert made.left == 1


def test_a_terminal_text_that_differs_wins() -> None:
    read = growing()
    read({"type": "transcript.text.delta", "delta": "[0.00][S01]你"})
    assert read({"type": "transcript.text.delta", "delta": "好"}).text == "[0.00][S01]你好"
    done = read({"type": "transcript.text.done", "text": "[0.00][S01]您好[1.00]"})
    assert (done.text, done.finish) == ("[0.00][S01]您好[1.00]", "stop")
    with pytest.raises(EngineError, match=r"session\.created"):
        read({"type": "session.created"})
