"""Every way in, at its door: keys wherever its clients bring them, and refusals before the upgrade."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidStatus

from streaming.access.keys import Scope
from streaming.dialects.dialect import Way
from streaming.dialects.ways import WAYS
from tests.support.foreign import Place, dial, places
from tests.support.keys import READ, SPEAK, locked
from tests.support.server import Running, server

pytestmark = pytest.mark.e2e

ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)


async def status(running: Running, way: Way, place: Place) -> int:
    """Of the handshake: 101 where it was let in."""
    try:
        async with dial(running, way, place) as socket:
            check(socket, place)
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def check(socket: ClientConnection, place: Place) -> None:
    """The secret is not sent back, in no header."""
    assert socket.response is not None
    answered = str(list(socket.response.headers.raw_items()))
    query, headers, offered = place
    for secret in (query.partition("=")[2], *headers.values(), *offered[1:]):
        assert not secret or secret.removeprefix("Bearer ").removeprefix("Token ") not in answered
    if offered:
        assert socket.subprotocol == offered[0]


@ways
async def test_a_key_works_wherever_it_is_brought(way: Way) -> None:
    async with server(services=locked()) as running:
        for place in places(way, SPEAK):
            assert await status(running, way, place) == 101, place
        for place in places(way, READ):
            assert await status(running, way, place) == 403, place
        for place in places(way, "wrong"):
            assert await status(running, way, place) == 401, place
        # Nobody that is known: refused at once, but where the key may come in a message.
        assert await status(running, way, ("", {}, [])) == (101 if way.key_later else 401)


@ways
async def test_a_token_works_once_wherever_it_is_brought(way: Way) -> None:
    async with server(services=locked()) as running:
        auth = running.services.auth
        caller = await auth.caller(SPEAK)
        assert caller is not None
        for number in range(len(list(places(way, "x")))):
            token = await auth.mint(caller, Scope.SPEAK, 60)
            place = list(places(way, token))[number]
            assert await status(running, way, place) == 101, place
            assert await status(running, way, place) == 401, place


@ways
async def test_without_room_clients_are_told_before_the_upgrade(way: Way) -> None:
    async with server(max_sessions=1) as running:
        entry = running.services.sessions.open("t")
        with pytest.raises(InvalidStatus) as told:
            async with dial(running, way, ("", {}, [])):
                pass
        assert told.value.response.status_code == 503
        assert told.value.response.headers["retry-after"] == "5"
        running.services.sessions.discard(entry)
        assert await status(running, way, ("", {}, [])) == 101


@ways
async def test_names_in_the_query_that_mean_nothing_are_counted(way: Way) -> None:
    async with server() as running:
        assert await status(running, way, ("?xyzzy=1&plugh=2", {}, [])) == 101
        await asyncio.sleep(0)
        assert running.services.metrics.ignored.value(protocol=way.name) == 2


@ways
async def test_pages_of_other_sites_are_refused(way: Way) -> None:
    async with server() as running:
        assert await status(running, way, ("", {"Origin": "https://evil.example"}, [])) == 403
