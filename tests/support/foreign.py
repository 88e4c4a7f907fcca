"""Clients of other protocols in memory and at the door, and what sessions may say to a translator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from websockets.asyncio.client import connect as open_socket
from websockets.typing import Subprotocol

from streaming.access.tokens import fresh_id
from streaming.dialects.dialect import Dialect, Frame, Ignored, Way
from streaming.sockets.bridge import CODEC, Bridge
from streaming.sockets.connection import Connection
from streaming.wire.messages import Segment, Word
from tests.support.channel import MemoryChannel
from tests.support.server import Running
from tests.support.world import World


class ForeignChannel(MemoryChannel):
    """Keeps the frames as they came."""

    def decode(self, data: str | bytes) -> Frame:
        return data


@dataclass
class Met:
    """A client of another protocol, as a test holds it."""

    channel: ForeignChannel
    id: str
    """Of its session."""
    ignored: list[Ignored] = field(default_factory=list)


def meet(world: World, dialect: Dialect, buffer: int = 4) -> Met:
    """Serve a client of this dialect."""
    met = Met(ForeignChannel(buffer), fresh_id())
    bridge = Bridge(met.channel, dialect, world.services.limits.slow_reader_s, met.ignored.append)
    connection = Connection(bridge, CODEC, world.services, guest=met.id)
    world.tasks.append(asyncio.create_task(connection.run()))
    return met


def segment(
    id: int, words: Sequence[str], *, first: int = 0, partial: str = "", final: bool = False
) -> Segment:
    """Words of 0.3 s, one every 0.4 s."""
    told = tuple(Word(text, 400 * at, 400 * at + 300, 0.5) for at, text in enumerate(words, first))
    end = 400 * (first + len(words))
    return Segment(0, id, 1, first, 400 * first, end, None, " ".join(words), told, partial, final)


Place = tuple[str, dict[str, str], list[str]]
"""Query, headers and subprotocols of a handshake."""


def places(way: Way, secret: str) -> Iterator[Place]:
    """Wherever a client of this way may bring a secret."""
    yield "", {"Authorization": f"Bearer {secret}"}, []
    yield "", {"Authorization": f"Token {secret}"}, []
    for name in way.key_headers:
        yield "", {name: secret}, []
    for name in way.key_queries:
        yield f"?{name}={secret}", {}, []
    for marker in sorted(way.subprotocols):
        if marker in {"token", "bearer"}:
            yield "", {}, [marker, secret]
        if marker == "realtime":
            yield "", {}, [marker, f"openai-insecure-api-key.{secret}"]


def dial(running: Running, way: Way, place: Place) -> open_socket:
    query, headers, offered = place
    return open_socket(
        f"ws://{running.address}{way.path}{query}",
        additional_headers=headers,
        subprotocols=[Subprotocol(one) for one in offered] or None,
        proxy=None,
    )
