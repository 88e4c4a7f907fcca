"""Where recordings are let in: `limits.max_files` at once over all protocols, each with a place of its key,
and only while live sessions leave room."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from streaming.access.auth import ANYONE, CALLER
from streaming.access.quota import Lease
from streaming.background import first_of
from streaming.denial import Refusal, of_wire
from streaming.sessions.services import Services
from streaming.sockets.draining import Body
from streaming.wire.errors import WireError

from .job import Asked, Job

ANY = ["GET", "POST", "PUT", "PATCH", "DELETE"]
"""The methods of a route, all but one of which are refused as its protocol does it."""


class Desk:
    """Belongs to one event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._files = 0

    async def answer(
        self,
        request: Request,
        carry_out: Callable[[Request], Awaitable[Response]],
        refuse: Callable[[Refusal], Response],
    ) -> Response:
        """What `carry_out` makes of a POST, or why not."""
        body = Body(request.receive)
        try:
            if request.method != "POST":
                message = f"method: {request.method} is not served here: use POST"
                raise Refusal(405, message, code="method_not_allowed")
            return await carry_out(Request(request.scope, body))
        except Refusal as error:
            refusal = error
        except WireError as error:
            refusal = of_wire(error)
        self._services.metrics.refused.add(reason=refusal.code or str(refusal.status))
        if refusal.status not in (408, 499):
            await body.drain()
        return refuse(refusal)

    @asynccontextmanager
    async def place(self, request: Request) -> AsyncIterator[Lease]:
        """A place, from before the first byte on: else one key could hold the places of all. Raises `Refusal`
        or `WireError` where there is none."""
        services, limits = self._services, self._services.limits
        if (full := services.sessions.refusal(recording=True)) is not None:
            raise full
        if self._files >= limits.max_files:
            raise Refusal(
                429,
                f"{self._files} recordings are being read (limits.max_files): try again later",
                code="too_many_files",
                retry_after_s=limits.retry_after_s,
            )
        self._files += 1
        try:
            lease = await services.quotas.lease((request.scope.get(CALLER) or ANYONE).key)
            try:
                yield lease
            finally:
                lease.close()
        finally:
            self._files -= 1

    @asynccontextmanager
    async def job(self, asked: Asked, lease: Lease, request: Request) -> AsyncIterator[Job]:
        """The recording at work; raises `WireError`."""
        job = Job(asked, self._services, lease, request.headers.get("traceparent"))
        try:
            with self._services.sessions.seat():
                yield job
        finally:
            await job.close()


async def heard(job: Job, request: Request) -> None:
    """Return when the recording was heard to its end; raises as `Job.said`, and `Refusal` when nobody waits
    any more."""
    await first_of(_listen(job), _gone(request))


async def _listen(job: Job) -> None:
    async for _ in job.said():
        pass


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise Refusal(499, "the client left", code="client_left")
