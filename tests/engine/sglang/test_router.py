"""What SGLang's router is asked in place of a server: a scripted one (the real one: `tests/e2e`)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from engine.sglang.forms import generate_body, generate_json
from engine.sglang.http import HttpSettings, HttpTransport
from engine.sglang.payload import read_options
from engine.sglang.transport import Part
from tests.support.waiting import until

from .scripted import Answer, Site, begin_chunks, chunk, event, message, respond, site
from .test_http import request

QUICK = HttpSettings(connect_s=2.0, abort_s=2.0)


def saying(body: object, status: str = "200 OK") -> Answer:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, json.dumps(body).encode(), status)

    return answer


async def unending(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    begin_chunks(writer)
    chunk(writer, event(message(Part((1,), "a", None))))


async def left(transport: HttpTransport, rid: str) -> None:
    """A request that its caller leaves in the middle."""
    parts = transport.generate(request(rid))
    await anext(parts)
    await parts.aclose()


def listed(*urls: str) -> Answer:
    return saying({"workers": [{"id": "1", "url": url, "is_healthy": True} for url in urls], "total": 1})


async def test_behind_a_router_every_server_is_told_to_stop_a_request() -> None:
    async with site(unending) as router, site(unending) as one, site(unending) as two:
        servers: list[Site] = [one, two]
        router.pages = {
            "/abort_request": saying({}, "404 Not Found"),
            "/workers": listed(one.url, "grpc://127.0.0.1:9", "http://127.0.0.1:9", two.url),
        }
        transport = HttpTransport([router.url], QUICK)
        await left(transport, "r-1")
        await until(lambda: all(server.aborted == ["r-1"] for server in servers))
        router.pages["/workers"] = listed(two.url)
        await left(transport, "r-2")
        await until(lambda: two.aborted == ["r-1", "r-2"])
        router.pages["/workers"] = saying("?")
        await left(transport, "r-3")
        await until(lambda: two.aborted == ["r-1", "r-2", "r-3"])
        await transport.close()
    assert one.aborted == ["r-1"]


@pytest.mark.parametrize(
    ("told", "lives"),
    [("200 OK", True), ("503 Service Unavailable", False), ("404 Not Found", True)],
    ids=["has servers", "has none", "is a server"],
)
async def test_a_router_without_servers_is_no_engine(told: str, lives: bool) -> None:
    """It says of its own health that it is well."""
    async with site(unending) as router:
        router.pages["/readiness"] = saying({}, told)
        transport = HttpTransport([router.url], QUICK)
        assert await transport.healthy() is lives
        await transport.close()


def test_nothing_is_asked_in_fields_that_a_router_leaves_out() -> None:
    body = generate_body(request(sampling={"max_new_tokens": 9, "custom_params": {"window_s": 30.0}}))
    assert body["sampling_params"] == {"max_new_tokens": 9}
    assert read_options(body["audio_data"]) == {"window_s": 30.0}


def test_the_bytes_that_are_sent_are_that_body() -> None:
    asked = request(pcm=bytes(range(256)), sampling={"custom_params": {"said": 'so "it" is'}})
    assert json.loads(generate_json(asked)) == json.loads(json.dumps(generate_body(asked)))
