"""The HTTP transport against a scripted server: streams, refusals, breaks, aborts, an even spread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from engine.contract import UNREACHABLE, EngineError
from engine.sglang.http import HttpSettings, HttpTransport
from engine.sglang.omni.form import Omni
from engine.sglang.transport import Part, Request
from tests.support.waiting import until

from .scripted import Site, begin_chunks, chunk, event, growing, message, respond, site, stream_parts

QUICK = HttpSettings(connect_s=2.0, stall_s=0.3, abort_s=1.0, rest_s=5.0)
TEXT = "Guten Tag, 你好 😀."


def request(rid: str = "r-1", **changes: Any) -> Request:
    return Request(
        **{"rid": rid, "pcm": b"\1\0" * 8, "sampling": {"max_new_tokens": 9}, "text": "p"} | changes
    )


async def parts_of(transport: HttpTransport, asked: Request) -> list[Part]:
    return [part async for part in transport.generate(asked)]


async def streaming(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    await stream_parts(growing(TEXT), writer)


@pytest.mark.parametrize("cut", [0, 1, 7, 64])
async def test_however_the_bytes_are_cut_the_parts_are_the_same(cut: int) -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        await stream_parts(growing(TEXT), writer, cut)

    async with site(answer) as server:
        transport = HttpTransport([server.url])
        found = await parts_of(transport, request())
        await transport.close()
    assert [(p.ids, p.text, p.finish) for p in found] == [(p.ids, p.text, p.finish) for p in growing(TEXT)]
    assert (found[-1].prompt_tokens, found[-1].cached_tokens) == (5, 2)
    assert server.asked[0]["audio_data"].startswith("data:audio/l16")


async def test_a_single_answer_is_one_part_and_the_connection_is_used_again() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, event(message(growing("ok")[-1]))[6:].strip())

    async with site(answer) as server:
        transport = HttpTransport([server.url])
        for number in range(5):
            (part,) = await parts_of(
                transport, request(f"r-{number}", stream=False, input_ids=(1, 2), text=None)
            )
            assert (part.text, part.finish) == ("ok", "stop")
        await transport.close()
    assert server.connections == 1
    assert server.asked[0]["input_ids"] == [1, 2]
    assert "text" not in server.asked[0]


@pytest.mark.parametrize(
    ("status", "cause", "retryable"),
    [
        ("400 Bad Request", "request", False),
        ("503 Service Unavailable", "overloaded", True),
        ("429 Too Many Requests", "overloaded", True),
        ("500 Internal Server Error", "engine", True),
    ],
)
async def test_refusals_say_whose_fault_it_is(status: str, cause: str, retryable: bool) -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, b'{"error": {"message": "because"}}', status)

    async with site(answer) as server:
        transport = HttpTransport([server.url])
        with pytest.raises(EngineError, match="because") as refused:
            await parts_of(transport, request())
        await transport.close()
    assert (refused.value.cause, refused.value.retryable) == (cause, retryable)
    assert len(server.asked) == 1


async def test_an_error_inside_a_stream_is_an_error() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        begin_chunks(writer)
        chunk(writer, event({"error": {"message": "too long", "code": 400}}))

    async with site(answer) as server:
        transport = HttpTransport([server.url])
        with pytest.raises(EngineError, match="too long") as refused:
            await parts_of(transport, request())
        await transport.close()
    assert not refused.value.retryable


async def garbage(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    begin_chunks(writer)
    chunk(writer, b"data: {not json}\n\n")


async def senseless(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    respond(writer, b'{"meta_info": 7}')


async def not_http(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-nothing\r\n\r\n")
    writer.close()


async def silent(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("answer", "cause"),
    [(garbage, "garbage"), (senseless, "garbage"), (not_http, "connection"), (silent, "stalled")],
)
async def test_nothing_an_engine_answers_hangs_or_leaks_another_error(
    answer: Callable[..., Any], cause: str
) -> None:
    async with site(answer) as server:
        transport = HttpTransport([server.url], QUICK)
        with pytest.raises(EngineError) as failed:
            await parts_of(transport, request())
        await transport.close()
    assert (failed.value.cause, failed.value.retryable) == (cause, True)


async def test_a_disconnect_aborts_by_id_and_closes_the_connection() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        begin_chunks(writer)
        chunk(writer, event(message(Part((1,), "a", None))))

    async with site(answer) as server:
        transport = HttpTransport([server.url])
        parts = transport.generate(request("r-00000007."))
        assert (await anext(parts)).text == "a"
        await parts.aclose()
        await asyncio.wait_for(server.gone.wait(), 5)
        await until(lambda: bool(server.aborted))
        await transport.close()
    assert server.aborted == ["r-00000007."]


async def test_another_server_takes_what_a_dead_one_cannot() -> None:
    async with site(streaming) as alive:
        transport = HttpTransport(["http://127.0.0.1:9", alive.url], QUICK)
        for number in range(4):
            found = await parts_of(transport, request(f"r-{number}"))
            assert found[-1].text == TEXT
        assert await transport.healthy()
        await transport.close()
    assert len(alive.asked) == 4


async def test_an_answer_that_broke_off_is_not_asked_for_again() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        begin_chunks(writer)
        chunk(writer, event(message(Part((1,), "half an ans", None))))
        await writer.drain()
        writer.close()

    async with site(answer) as server:
        transport = HttpTransport([server.url], QUICK)
        with pytest.raises(EngineError) as broken:
            await parts_of(transport, request())
        await transport.close()
    assert broken.value.cause == "connection"
    assert len(server.asked) == 1


async def test_requests_spread_evenly() -> None:
    release = asyncio.Event()

    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        await release.wait()
        await stream_parts(growing("x"), writer)

    async with site(answer) as first, site(answer) as second, site(answer) as third:
        servers: list[Site] = [first, second, third]
        transport = HttpTransport([server.url for server in servers])
        running = [asyncio.create_task(parts_of(transport, request(f"r-{n}"))) for n in range(12)]
        await until(lambda: sum(len(server.asked) for server in servers) == 12)
        assert [len(server.asked) for server in servers] == [4, 4, 4]
        release.set()
        await asyncio.gather(*running)
        await transport.close()


async def test_no_server_at_all() -> None:
    transport = HttpTransport(["http://127.0.0.1:9"], QUICK)
    assert not await transport.healthy()
    with pytest.raises(EngineError) as failed:
        await parts_of(transport, request())
    assert (failed.value.cause, failed.value.retryable) == ("unreachable", True)
    with pytest.raises(ValueError, match="http"):
        HttpTransport(["ftp://x"])
    with pytest.raises(ValueError, match="one server"):
        HttpTransport([])


async def test_an_answer_may_hold_all_that_was_asked() -> None:
    """SGLang-Omni sends the metadata of a request back, its audio included."""
    pcm = bytes(2 * 16_000 * 240)

    async def answer(asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        whole = message(growing("ok")[-1])
        whole["meta_info"]["request_metadata"] = asked["metadata"]
        respond(writer, event(whole)[6:].strip())

    async with site(answer) as server:
        transport = HttpTransport([server.url], form=Omni())
        (part,) = await parts_of(transport, request(pcm=pcm, stream=False))
        await transport.close()
    assert (part.text, part.finish) == ("ok", "stop")


async def test_an_answer_longer_than_that_is_refused() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, b" " * (9 << 20))

    async with site(answer) as server:
        transport = HttpTransport([server.url], form=Omni())
        with pytest.raises(EngineError, match="does not end"):
            await parts_of(transport, request(stream=False))
        await transport.close()


async def test_recordings_go_to_servers_of_their_own_and_nothing_else_does() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, event(message(Part((1,), "x", "stop")))[6:].strip())

    async with site(answer) as live, site(answer) as apart:
        transport = HttpTransport([live.url], recordings=[apart.url])
        for number in range(6):
            await parts_of(transport, request(f"r-{number}", stream=False, recording=number % 2 == 1))
        assert [asked["rid"] for asked in live.asked] == ["r-0", "r-2", "r-4"]
        assert [asked["rid"] for asked in apart.asked] == ["r-1", "r-3", "r-5"]
        await transport.close()


async def test_a_dead_server_of_recordings_leaves_live_ones_alone() -> None:
    async def answer(_: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        respond(writer, event(message(Part((1,), "x", "stop")))[6:].strip())

    async with site(answer) as live:
        transport = HttpTransport([live.url], recordings=["http://127.0.0.1:9"])
        with pytest.raises(EngineError) as caught:
            await parts_of(transport, request(recording=True))
        assert (caught.value.cause, live.asked) == (UNREACHABLE, [])
        assert await transport.healthy()
        await transport.close()
