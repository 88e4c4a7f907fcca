"""SGLang's own router before several servers (`sglang-router`), and where it is not what one server is.

It takes `/generate` and asks another server where one cannot be reached. But it has no way to stop a request,
tells of itself that it is well whatever becomes of its servers, and of a request passes on only the fields it
knows (why options travel with the audio: `payload.py`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec

from .http1 import Endpoint, HttpError

_MISSING = 404
_NOT_READY = 503


class _Worker(msgspec.Struct):
    url: str


class _Workers(msgspec.Struct):
    workers: list[_Worker]


async def serves(endpoint: Endpoint) -> bool:
    """Whether a server, or any behind a router, takes requests now; raises `HttpError`."""
    status, _ = await endpoint.fetch("GET", "/readiness")
    if status not in (200, _NOT_READY):  # a server itself, which has no such route
        status, _ = await endpoint.fetch("GET", "/health")
    return status == 200


class Aborts:
    """Stops requests at one address, a server's or a router's: behind that at every server, for which of
    them has a request it does not say."""

    def __init__(self, endpoint: Endpoint, key: str | None) -> None:
        self._endpoint = endpoint
        self._key = key
        self._workers: dict[str, Endpoint] = {}

    async def abort(self, rid: str) -> None:
        """Ids that a server does not know are nothing to it. Raises `HttpError`."""
        body = msgspec.json.encode({"rid": rid, "abort_all": False})
        status, _ = await self._endpoint.fetch("POST", "/abort_request", body)
        if status == _MISSING:
            await self._look()
            await asyncio.gather(*(_sent(worker, body) for worker in self._workers.values()))

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()

    async def _look(self) -> None:
        """Who is behind the router now."""
        _, answer = await self._endpoint.fetch("GET", "/workers")
        try:
            urls = {worker.url for worker in msgspec.json.decode(answer, type=_Workers).workers}
        except msgspec.MsgspecError:
            return
        for gone in self._workers.keys() - urls:
            self._workers.pop(gone).close()
        for url in urls - self._workers.keys():
            with suppress(ValueError):  # one that speaks something else than HTTP
                self._workers[url] = Endpoint(url, key=self._key)


async def _sent(worker: Endpoint, body: bytes) -> Any:
    with suppress(HttpError):  # a dead one has stopped
        return await worker.fetch("POST", "/abort_request", body)
