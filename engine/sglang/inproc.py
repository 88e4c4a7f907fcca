"""SGLang inside this process: the engine's front half on a thread of its own, its workers as children.

The thread has its own event loop, so that SGLang's signal handlers, which it installs wherever it finds
the main thread, leave ours alone, and its bookkeeping does not delay our sockets by more than the GIL.

An engine whose child dies sends SIGQUIT to the process it lives in. Here that fails what runs, as
something to try again, and starts another engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from engine.contract import UNREACHABLE, EngineError

from .payload import as_bytes
from .schedulers import engine_class
from .transport import Part, Request, part_of

_PAUSES_S = (0.0, 5.0, 30.0)
"""Seconds before each attempt to start an engine again; after the last one it stays down."""


class InprocTransport:
    """One `sglang.Engine` at a time. Make it with `open_inproc`, which blocks until the engine runs."""

    def __init__(self, start: Callable[[], _Running]) -> None:
        self._start = start
        self._running: _Running | None = start()
        self._boxes: set[_Box] = set()
        self._starter: asyncio.Task[None] | None = None
        self._watched = False
        self._closed = False
        self.restarts = 0

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        """Parts from the engine's thread, newest wins: what nobody has looked at yet is overtaken."""
        running = self._engine()
        box = _Box(asyncio.get_running_loop())
        self._boxes.add(box)
        work = asyncio.run_coroutine_threadsafe(self._pump(running.engine, request, box), running.loop)
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
            self._boxes.discard(box)
            if not done:
                running.drop(request.rid, work)

    async def abort(self, rid: str) -> None:
        if self._running is not None:
            self._running.drop(rid, None)

    async def healthy(self) -> bool:
        """Whether an engine is there and its thread runs."""
        return self._running is not None and self._running.thread.is_alive()

    async def close(self) -> None:
        """Stop the engine and its processes; waits for them."""
        if self._closed:
            return
        self._closed = True
        if self._starter is not None:
            await asyncio.gather(self._starter, return_exceptions=True)
        running, self._running = self._running, None
        if running is not None:
            await asyncio.to_thread(running.stop)

    def lost(self) -> None:
        """The engine died: fail what runs on it, stop what is left of it and start another."""
        dead, self._running = self._running, None
        for box in list(self._boxes):
            box.fail(EngineError("engine", "the engine died", retryable=True))
        if dead is not None and not self._closed:
            self._starter = asyncio.ensure_future(self._restart(dead))

    async def _restart(self, dead: _Running) -> None:
        await asyncio.to_thread(dead.stop)
        for pause_s in _PAUSES_S:
            await asyncio.sleep(pause_s)
            if self._closed:
                return
            with contextlib.suppress(EngineError):
                self._running = await asyncio.to_thread(self._start)
                self.restarts += 1
                return

    def _engine(self) -> _Running:
        if self._closed:
            raise EngineError("closed", "the engine is shut down", retryable=False)
        if not self._watched and threading.current_thread() is threading.main_thread():
            # Only now is this known to be the loop that serves.
            self._watched = True
            asyncio.get_running_loop().add_signal_handler(signal.SIGQUIT, self.lost)
        if self._running is None and self._starter is not None and self._starter.done():
            raise EngineError("engine", "the engine died and does not start again", retryable=False)
        if self._running is None:
            raise EngineError(UNREACHABLE, "the engine is being started again", retryable=True)
        return self._running

    @staticmethod
    async def _pump(engine: Any, request: Request, box: _Box) -> None:
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
        if request.scheduler is not None:
            arguments["routed_dp_rank"] = request.scheduler
        answer = await engine.async_generate(**arguments)
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

    def fail(self, error: EngineError) -> None:
        """Nothing more will come."""
        with self._lock:
            self._error = self._error or error
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
        self.fail(found)

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


@dataclass(frozen=True, slots=True, eq=False)
class _Running:
    """An engine with the thread and the loop that serve it."""

    engine: Any
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread

    def drop(self, rid: str, work: Future[None] | None) -> None:
        """From any thread: abort first, while the id is still known, then stop listening."""

        def run() -> None:
            self.engine.tokenizer_manager.abort_request(rid)
            if work is not None:
                work.cancel()

        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nothing left to abort
            self.loop.call_soon_threadsafe(run)

    def stop(self) -> None:
        """End the engine's processes and its thread; blocks, and never raises for a dead one."""
        with contextlib.suppress(Exception):
            self.engine.shutdown()
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10.0)


def _finish(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still waits on a loop that was stopped, and close it."""
    pending = asyncio.all_tasks(loop)
    for task in pending:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


def open_inproc(
    flags: Mapping[str, Any], environment: Mapping[str, str], *, make: Callable[..., Any] | None = None
) -> InprocTransport:
    """Start an engine with `flags` (names of `ServerArgs`); blocks until it serves.

    `environment` is set for this process before SGLang is imported and stays set. `make` replaces
    `sglang.Engine`. Raises `EngineError` where SGLang is missing or refuses to start.
    """
    os.environ.update(environment)
    return InprocTransport(lambda: _started(flags, make))


def _started(flags: Mapping[str, Any], make: Callable[..., Any] | None) -> _Running:
    loop = asyncio.new_event_loop()
    made: Future[Any] = Future()

    def run() -> None:
        asyncio.set_event_loop(loop)
        try:
            made.set_result((make or engine_class())(**flags))
        except BaseException as error:  # noqa: BLE001 - handed to the caller, whatever it is
            loop.close()
            made.set_exception(error)
            return
        loop.run_forever()
        _finish(loop)

    thread = threading.Thread(target=run, name="sglang", daemon=True)
    thread.start()
    try:
        return _Running(made.result(), loop, thread)
    except ImportError as error:
        raise EngineError("missing", f"sglang is not installed here: {error}", retryable=False) from error
    except BaseException as error:
        raise EngineError("start", f"SGLang did not start: {error}", retryable=False) from error
