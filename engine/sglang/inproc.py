"""SGLang inside this process: the engine's front half on a thread of its own, its workers as children.

The thread has its own event loop, so that SGLang's signal handlers, which it installs wherever it finds
the main thread, leave ours alone, and its bookkeeping does not delay our sockets by more than the GIL.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import aclosing
from importlib import import_module
from typing import Any

from engine.contract import EngineError

from .payload import as_bytes
from .transport import Part, Request, part_of

_END = object()


class InprocTransport:
    """One `sglang.Engine`. Make it with `open_inproc`, which blocks until the engine runs."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        self._engine = engine
        self._loop = loop
        self._thread = thread
        self._closed = False

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        """Parts from the engine's thread, newest wins: what nobody has looked at yet is overtaken."""
        if self._closed:
            raise EngineError("closed", "the engine is shut down", retryable=False)
        box = _Box(asyncio.get_running_loop())
        work = self._submit(self._pump(request, box))
        work.add_done_callback(box.finish)
        done = False
        try:
            while True:
                part = await box.take()
                done = part.finish is not None
                yield part
                if done:
                    return
        finally:
            if not done and not self._closed:
                self._loop.call_soon_threadsafe(self._drop, request.rid, work)

    async def abort(self, rid: str) -> None:
        if not self._closed:
            self._loop.call_soon_threadsafe(self._engine.tokenizer_manager.abort_request, rid)

    async def healthy(self) -> bool:
        """Whether the engine's own processes still run."""
        return not self._closed and self._thread.is_alive()

    async def close(self) -> None:
        """Stop the engine and its processes; waits for them."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._engine.shutdown)
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join, 10.0)

    def _submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _drop(self, rid: str, work: Future[None]) -> None:
        """In the engine's thread: abort first, while the id is still known, then stop listening."""
        self._engine.tokenizer_manager.abort_request(rid)
        work.cancel()

    async def _pump(self, request: Request, box: _Box) -> None:
        """In the engine's thread: run one request and put what comes into `box`."""
        arguments: dict[str, Any] = {
            "sampling_params": dict(request.sampling),
            "audio_data": request.payload or as_bytes(request.pcm),
            "rid": request.rid,
            "return_logprob": request.logprobs,
            "stream": request.stream,
        }
        if request.input_ids is not None:
            arguments["input_ids"] = list(request.input_ids)
        else:
            arguments["prompt"] = request.text
        if request.priority is not None:
            arguments["priority"] = request.priority
        answer = await self._engine.async_generate(**arguments)
        if not request.stream:
            box.put(part_of(answer))
            return
        async with aclosing(answer) as messages:
            async for message in messages:
                box.put(part_of(message))


class _Box:
    """One place between two threads: the newest part, or how the work ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._part: Part | None = None
        self._error: EngineError | None = None
        self._ready = asyncio.Event()

    def put(self, part: Part) -> None:
        with self._lock:
            self._part = part
        self._wake()

    def finish(self, work: Future[None]) -> None:
        """The work is over, well or not; parts that were put before stay readable."""
        try:
            error = work.exception()
        except CancelledError:
            error = EngineError("aborted", "the request was given up", retryable=True)
        if error is None:
            found = EngineError("garbage", "the engine's answer ended without an end", retryable=True)
        else:
            found = _translated(error)
        with self._lock:
            self._error = found
        self._wake()

    async def take(self) -> Part:
        """The newest part not taken yet; raises the work's error once there is none."""
        while True:
            with self._lock:
                part, self._part = self._part, None
                error = self._error
                if part is None and error is None:
                    self._ready.clear()
            if part is not None:
                return part
            if error is not None:
                raise error
            await self._ready.wait()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop is gone: nobody waits any more
            self._loop.call_soon_threadsafe(self._ready.set)


def _translated(error: BaseException) -> EngineError:
    """SGLang's exceptions as ours: bad requests come as `ValueError`, the rest as what happened to break."""
    if isinstance(error, EngineError):
        return error
    if isinstance(error, ValueError):
        return EngineError("request", str(error), retryable=False)
    return EngineError("engine", f"{type(error).__name__}: {error}", retryable=True)


def open_inproc(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, start: Callable[..., Any] | None = None
) -> InprocTransport:
    """Start an engine with `flags` (names of `ServerArgs`); blocks until it serves.

    `environment` is set for this process before SGLang is imported and stays set. `start` replaces
    `sglang.Engine`. Raises `EngineError` where SGLang is missing or refuses to start.
    """
    os.environ.update(environment)
    loop = asyncio.new_event_loop()
    made: Future[Any] = Future()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            make = start or import_module("sglang").Engine
            made.set_result(make(**flags))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            made.set_exception(error)
            return
        loop.run_forever()

    thread = threading.Thread(target=run, name="sglang", daemon=True)
    thread.start()
    try:
        engine = made.result()
    except ImportError as error:
        raise EngineError("missing", f"sglang is not installed here: {error}", retryable=False) from error
    except BaseException as error:
        raise EngineError("start", f"SGLang did not start: {error}", retryable=False) from error
    return InprocTransport(engine, loop, thread)
