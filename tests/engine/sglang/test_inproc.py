"""The in-process transport over a scripted engine: its own thread, aborts, death and another start."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.contract import EngineError
from engine.sglang.inproc import InprocTransport, open_inproc
from engine.sglang.payload import as_bytes
from engine.sglang.transport import Part, Request
from tests.support.waiting import until

from .scripted import growing, message


class ScriptedEngine:
    """What the transport uses of `sglang.Engine`."""

    made: list[ScriptedEngine]

    def __init__(self, **flags: Any) -> None:
        self.flags = flags
        self.thread = threading.current_thread()
        self.calls: list[dict[str, Any]] = []
        self.aborted: list[str] = []
        self.down = False
        self.tokenizer_manager = self
        ScriptedEngine.made.append(self)

    async def async_generate(self, **arguments: Any) -> Any:
        self.calls.append(arguments)
        assert threading.current_thread() is self.thread
        match arguments.get("prompt"):
            case "bad":
                raise ValueError("too long")
            case "broken":
                raise RuntimeError("out of memory")
            case "hang":
                await asyncio.Event().wait()
        if not arguments["stream"]:
            return message(growing("whole")[-1])
        return self._stream()

    async def _stream(self) -> AsyncIterator[dict[str, Any]]:
        for part in growing("Guten Tag."):
            await asyncio.sleep(0)
            yield message(part)

    def abort_request(self, rid: str) -> None:
        self.aborted.append(rid)

    def shutdown(self) -> None:
        self.down = True


@pytest.fixture
async def transport() -> AsyncIterator[InprocTransport]:
    ScriptedEngine.made = []
    opened = await asyncio.to_thread(open_inproc, {"model_path": "m"}, {}, make=ScriptedEngine)
    yield opened
    await opened.close()


def request(prompt: str = "p", **changes: Any) -> Request:
    return Request(
        **{"rid": "r-1", "pcm": b"\1\0", "sampling": {"max_new_tokens": 5}, "text": prompt} | changes
    )


async def parts_of(transport: InprocTransport, asked: Request) -> list[Part]:
    return [part async for part in transport.generate(asked)]


async def test_parts_cross_the_threads(transport: InprocTransport) -> None:
    found = await parts_of(transport, request(priority=30, logprobs=True))
    assert found[-1].text == "Guten Tag."
    assert found[-1].finish == "stop"
    (call,) = ScriptedEngine.made[0].calls
    assert call["audio_data"] == as_bytes(b"\1\0")
    assert (call["rid"], call["priority"], call["return_logprob"]) == ("r-1", 30, True)
    assert ScriptedEngine.made[0].aborted == []
    (single,) = await parts_of(transport, request(stream=False, input_ids=(1,), text=None))
    assert single.text == "whole"


@pytest.mark.parametrize(
    ("prompt", "cause", "retryable"), [("bad", "request", False), ("broken", "engine", True)]
)
async def test_its_errors_are_translated(
    transport: InprocTransport, prompt: str, cause: str, retryable: bool
) -> None:
    with pytest.raises(EngineError) as failed:
        await parts_of(transport, request(prompt))
    assert (failed.value.cause, failed.value.retryable) == (cause, retryable)


async def test_leaving_early_aborts_in_the_engine(transport: InprocTransport) -> None:
    running = asyncio.create_task(parts_of(transport, request("hang")))
    await until(lambda: bool(ScriptedEngine.made[0].calls))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: ScriptedEngine.made[0].aborted == ["r-1"])


async def test_a_dead_engine_fails_what_runs_and_is_replaced(transport: InprocTransport) -> None:
    await parts_of(transport, request())
    running = asyncio.create_task(parts_of(transport, request("hang")))
    await until(lambda: len(ScriptedEngine.made[0].calls) == 2)
    os.kill(os.getpid(), signal.SIGQUIT)
    with pytest.raises(EngineError) as died:
        await running
    assert (died.value.cause, died.value.retryable) == ("engine", True)
    await until(lambda: transport.restarts == 1)
    assert ScriptedEngine.made[0].down
    assert (await parts_of(transport, request()))[-1].text == "Guten Tag."
    assert len(ScriptedEngine.made) == 2
    assert await transport.healthy()


async def test_a_start_that_fails_says_why() -> None:
    def fail(**_: Any) -> None:
        raise RuntimeError("no memory")

    with pytest.raises(EngineError, match="no memory"):
        await asyncio.to_thread(open_inproc, {}, {}, make=fail)


async def test_closing_twice_is_fine(transport: InprocTransport) -> None:
    await transport.close()
    await transport.close()
    assert not await transport.healthy()
    with pytest.raises(EngineError, match="shut down"):
        await parts_of(transport, request())
