"""One POST to an address that somebody configured, as an attacker would like it least.

The name is resolved once, what it stands for is checked, and exactly that address is connected to: a name
that changes its mind in between gains nothing. No redirect is followed, no proxy used, of the answer only the
status is read, and all of it has one deadline.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

MOST_HEADERS = 16 * 1024
"""Bytes of an answer that are read at most."""

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class PostError(Exception):
    """It did not arrive; says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to."""

    secure: bool
    host: str
    port: int
    path: str

    @property
    def name(self) -> str:
        """As the header `Host` has it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def target_of(url: str) -> Target:
    """Raises ValueError, with the remedy."""
    remedy = "use https://HOST[:PORT]/PATH (or http), without user, password or fragment"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(remedy) from None
    secure = parts.scheme == "https"
    plain = url.isascii() and url.isprintable() and " " not in url
    if not plain or parts.scheme not in {"http", "https"} or not host or port == 0:
        raise ValueError(remedy)
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise ValueError(remedy)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, host, port or (443 if secure else 80), path)


def public(address: str) -> bool:
    """Whether an IP address belongs to the internet, and to nothing nearer, however it is written."""
    found: _Address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inside = _carried(found)
        if inside is not None:
            return public(str(inside))
    return found.is_global and not found.is_multicast and not found.is_reserved


def _carried(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that one of IPv6 leads to."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.teredo is not None:
        return address.teredo[1]
    return address.ipv4_mapped or address.sixtofour


async def resolve(target: Target, *, allow_private: bool) -> list[str]:
    """The addresses that may be connected to; raises `PostError` where there is none."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise PostError(f"{target.host} cannot be resolved: {error}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if allow_private or public(address)]
    if not allowed:
        raise PostError(
            f"{target.host} is not on the internet ({', '.join(addresses[:4])}): set webhooks.allow_private"
        )
    return allowed


async def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    *,
    allow_private: bool,
    deadline_s: float,
    context: ssl.SSLContext | None = None,
) -> int:
    """The status of the answer; raises `PostError`. `context` takes the place of the system's trust."""
    try:
        async with asyncio.timeout(deadline_s):
            addresses = await resolve(target, allow_private=allow_private)
            reader, writer = await _connect(target, addresses, context)
            try:
                return await _exchange(target, reader, writer, body, headers)
            finally:
                writer.transport.abort()
    except TimeoutError:
        raise PostError(f"no answer within {deadline_s:g} s") from None
    except (OSError, h11.ProtocolError) as error:
        raise PostError(f"{type(error).__name__}: {error}") from None


async def _connect(
    target: Target, addresses: Sequence[str], context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To the first of the addresses that answers."""
    secure = (context or ssl.create_default_context()) if target.secure else None
    name = target.host if secure else None
    for address in addresses[:-1]:
        with suppress(OSError):
            return await asyncio.open_connection(address, target.port, ssl=secure, server_hostname=name)
    return await asyncio.open_connection(addresses[-1], target.port, ssl=secure, server_hostname=name)


async def _exchange(
    target: Target,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    body: bytes,
    headers: Mapping[str, str],
) -> int:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MOST_HEADERS)
    all_headers = {"Host": target.name, "Content-Length": str(len(body)), "Connection": "close", **headers}
    request = h11.Request(method="POST", target=target.path, headers=list(all_headers.items()))
    for event in (request, h11.Data(body), h11.EndOfMessage()):
        writer.write(connection.send(event) or b"")
    await writer.drain()
    while True:
        answer = connection.next_event()
        if isinstance(answer, h11.Response):
            return answer.status_code
        if isinstance(answer, h11.ConnectionClosed):
            raise PostError("the connection closed without an answer")
        if answer is h11.NEED_DATA:
            connection.receive_data(await reader.read(4096))
