"""Requests as bytes on a connection, up to the whole application behind its keys; and the small readers of
headers, names, addresses and log lines on the way.

No case holds a key, so nothing but the public doors may answer with success, and the words of the session
that is there reach nobody.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, cast

from uvicorn.server import ServerState

from engine.fake import FakeRecognizer
from streaming.access.auth import Authority, secret_of, spoken
from streaming.access.posting import public, target_of
from streaming.access.quota import Quotas
from streaming.access.sites import Sites
from streaming.access.tokens import digest
from streaming.observe.hygiene import one_line, struck
from streaming.serve import server_for
from streaming.settings import LimitSettings
from streaming.web import listing
from streaming.web.pages import PAGES
from streaming.wire.messages import Segment, Start, Word
from tests.support.keys import KEYS
from tests.support.services import VIRTUAL, services_of
from tests.support.virtual import VirtualLoop

from .audio import cut
from .runner import Target

ID = "canary-session-0123456789"
WORD = "xyzzyplugh"
CANARY = "Zq7-Xw3_Yv9" * 4
PATIENCE_S = 30.0
"""Virtual seconds after which nothing of a client that left is there any more."""
_LOOP = VirtualLoop()


class Wire(asyncio.Transport):
    """A connection's other end: keeps what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 80)}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class House:
    """The application with keys, and one session in it."""

    def __init__(self) -> None:
        limits = LimitSettings(start_timeout_s=2.0, idle_timeout_s=3.0, resume_s=1.0)
        self.services = services_of(
            FakeRecognizer(),
            limits,
            auth=Authority(KEYS, 100, time.monotonic),
            quotas=Quotas(KEYS),
            **VIRTUAL,
        )
        entry = self.services.sessions.open("t" * 43, Start(), ID)
        entry.guest = False
        words = (Word(WORD, 0, 300),)
        entry.log.put(Segment(0, 1, 1, 0, 0, 500, None, WORD, words, "", True))
        config = server_for(self.services).config
        config.load()
        self.config, self.state = config, ServerState()

    async def hear(self, pieces: Sequence[bytes]) -> bytes:
        """All that is answered to a client that says so much and leaves."""
        wire = Wire()
        made: Any = self.config.http_protocol_class
        protocol = made(config=self.config, server_state=self.state, app_state={})
        protocol.connection_made(wire)
        wire.protocol = protocol
        for piece in pieces:
            if piece and not wire.closed:
                cast(Any, wire.protocol).data_received(piece)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        cast(Any, wire.protocol).connection_lost(None)
        await asyncio.sleep(PATIENCE_S)
        return bytes(wire.written)


_HOUSE: list[House] = []


def _house() -> House:
    if not _HOUSE:

        async def build() -> House:
            return House()

        _HOUSE.append(_LOOP.run_until_complete(build()))
    return _HOUSE[0]


def _http(case: bytes, choices: Random) -> object:
    """Nobody gets in, and nobody hears the word."""
    house = _house()
    with faults() as failures:
        # Nobody speaks websocket before the handshake is answered.
        head, end, rest = case.partition(b"\r\n\r\n")
        pieces = [*cut(head + end, choices), *cut(rest, choices)]
        heard = _LOOP.run_until_complete(house.hear(pieces))
    assert WORD.encode() not in heard, "a stranger heard a session"
    status = heard[9:12]
    assert status not in (b"500",), heard[:200]
    if status.startswith(b"2"):
        path = case.split(b" ", 2)[1].partition(b"?")[0].decode("latin-1")
        shown = path in PAGES or path.startswith("/web/") or b"healthz" in case or b"readyz" in case
        assert shown, heard[:200]
    assert not failures, failures[0]
    return status


LOGGERS = ("seamscribe", "uvicorn.error", "asyncio")


@contextmanager
def faults() -> Iterator[list[str]]:
    """What is logged as an error meanwhile: nothing that a client says is one. Nothing is shown."""
    found: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: found.append(record.getMessage() + str(record.exc_info))  # type: ignore[method-assign]
    before = [(logger, logger.propagate) for logger in map(logging.getLogger, LOGGERS)]
    for logger, _ in before:
        logger.propagate = False
        logger.addHandler(handler)
    try:
        yield found
    finally:
        for logger, propagate in before:
            logger.propagate = propagate
            logger.removeHandler(handler)


_UPGRADE = (
    b"Host: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
)


def frame(payload: bytes, opcode: int = 1, fin: int = 1) -> bytes:
    """A client's websocket frame, masked with zeros."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
    return bytes([fin << 7 | opcode]) + size + bytes(4) + payload


_SAYS = (
    frame(b'{"type":"start","token":"smk_' + b"x" * 43 + b'"}')
    + frame(bytes(640), 2)
    + frame(b'{"type":"end"}'),
    frame(b'{"type":"re', 1, 0)
    + frame(b"", 0, 0)
    + frame(b'sume","session":"', 0, 0)
    + frame(b'a","token":"b"}', 0),
    frame(b"hi", 9) + frame(b"\x03\xe8", 8),
)
_ID = ID.encode()
REQUESTS = (
    b"GET /v1/sessions/" + _ID + b"/transcript.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /v1/sessions/"
    + _ID
    + b"/transcript.txt?token="
    + b"t" * 43
    + b" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer smk_"
    + b"x" * 43
    + b"\r\nOrigin: http://localhost\r\n\r\n",
    b"DELETE /v1/sessions/" + _ID + b" HTTP/1.1\r\nHost: [::1]:80\r\nAuthorization: Token x\r\n\r\n",
    b"GET /v1/sessions?limit=5&before=17.abc HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"PUT /v1/sessions/"
    + _ID
    + b'/speakers/1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 14\r\n\r\n{"name":"Ann"}',
    b"POST /v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"OPTIONS /v1/stream HTTP/1.0\r\nOrigin: null\r\n\r\n",
)
SOCKETS = (
    *(b"GET /v1/stream HTTP/1.1\r\n" + _UPGRADE + b"\r\n" + said for said in _SAYS),
    b"GET /v1/sessions/"
    + _ID
    + b"/events?token="
    + b"x" * 64
    + b"&after=3 HTTP/1.1\r\n"
    + _UPGRADE
    + b"\r\n",
    b"GET /v1/sessions/"
    + _ID
    + b"/events HTTP/1.1\r\n"
    + _UPGRADE
    + b"Sec-WebSocket-Protocol: seamscribe.v1.msgpack, seamscribe.token.abc\r\n\r\n"
    + frame(b"\x82\xa4type\xa4read\xa5token\xa1x", 2),
)


def _secrets(case: bytes, choices: Random) -> object:
    """Header and subprotocols: what is a secret is not what is answered."""
    headers = [tuple(line.split(b": ", 1)) for line in case.split(b"\r\n") if b": " in line]
    offered = [part.decode("latin-1").strip() for part in case.split(b",")]
    secret = secret_of(cast(Any, headers), offered)
    if secret and not headers:
        assert all(f"seamscribe.token.{secret}" != name for name in spoken(offered))
    assert asyncio.run(Authority(KEYS, 4, time.monotonic).caller(secret)) is None
    return secret


def _sites(case: bytes, choices: Random) -> object:
    """Names in headers; a page of another site is never at home here."""
    text = case.decode("latin-1")
    sites = Sites(frozenset({"seam.example"}), frozenset({"https://app.example"}))
    sites.answers_to(text, open=True)
    sites.answers_to(text, open=False)
    assert not sites.welcome("https://evil.example", text) or "evil.example" in text.lower()
    return sites.welcome(text, "seam.example")


def _log_line(case: bytes, choices: Random) -> object:
    """Whatever is logged is one line without a key, however long it is."""
    text = case.decode("latin-1") * choices.choice((1, 1, 1, 16))
    line = one_line(struck(f"{text} smk_{CANARY} {text}"))
    assert CANARY not in line
    assert line.isprintable() or not any(c < " " or "\x7f" <= c <= "\x9f" for c in line)
    return line


def _address(case: bytes, choices: Random) -> object:
    """A webhook's URL or an address: no way to say loopback or this network in other words."""
    text = case.decode("latin-1")
    target = target_of(text)
    assert target.host
    assert "\r" not in target.path + target.name
    assert "\n" not in target.path + target.name
    return target


def _public(case: bytes, choices: Random) -> object:
    """What is on the internet leads nowhere nearer, whatever it is wrapped in."""
    text = case.decode("latin-1")
    if not public(text):
        return None
    address = ipaddress.ip_address(text.partition("%")[0])
    assert address.is_global
    for prefix, at in _WRAPPERS:
        if len(address.packed) == 16 and address.packed.startswith(prefix):
            assert ipaddress.ip_address(address.packed[at:][:4]).is_global, text
    return address


_WRAPPERS = ((bytes.fromhex("0064ff9b") + bytes(8), 12), (bytes(10) + b"\xff\xff", 12), (b"\x20\x02", 2))
"""How an IPv6 address begins that leads to one of IPv4, and where that stands: NAT64, mapped, 6to4."""


def _query(case: bytes, choices: Random) -> object:
    text = case.decode("latin-1")
    if listing._NUMBER.fullmatch(text):
        int(text)
    if place := listing._CURSOR.fullmatch(text):
        return int(place.group(1)) < 1 << 62
    return digest(text)


_LINES = (
    b"GET /v1/stream?token=abc HTTP/1.1",
    b"(b'authorization', b'Bearer smk_abcdefghijkl')",
    b"{'token': ['x'], \"query_string\": b'token=abc'}",
    b"Sec-WebSocket-Protocol: seamscribe.v1.json, seamscribe.token.abc",
    b"a?" * 2000,
)
_PUBLIC = (
    b"93.184.216.34",
    b"::ffff:127.0.0.1",
    b"64:ff9b::a00:1",
    b"2002:7f00:1::",
    b"fe80::1%eth0",
    b"127.0.0.1",
)
_PATHS = (
    b"/v1/sessions/",
    b"../",
    b"%2f..%2f",
    b"\r\nX: y\r\n",
    b"Authorization: Bearer ",
    b"Content-Length: ",
)
TARGETS = (
    Target("http", REQUESTS, _http, (), 0.3, (*_PATHS, b"Transfer-Encoding: chunked\r\n", b"/healthz")),
    Target("websocket", SOCKETS, _http, (), 0.3, (*_PATHS, *_SAYS, frame(b"", 9), frame(b"", 0, 0))),
    Target("secrets", (*_LINES, b"seamscribe.v1.json,token,abc", b"authorization: Bearer abc"), _secrets, ()),
    Target("sites", (b"127.0.0.1:80", b"https://app.example", b"[::1]:8765", b"seam.example."), _sites, ()),
    Target("log lines", _LINES, _log_line, (), 0.3, (b"token=", b"secret: ", b"'", b"cookie:")),
    Target(
        "webhook url",
        (b"https://hooks.example:8443/path?x=1", b"http://[::1]/"),
        _address,
        (ValueError,),
        0.5,
    ),
    Target("addresses", _PUBLIC, _public, (ValueError,), 0.5),
    Target("queries", (b"50", b"1700000000000.abc-_", b"-1"), _query, (), 0.5),
)
