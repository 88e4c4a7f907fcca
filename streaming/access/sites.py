"""Which names this server answers to, and which sites' pages may ask it. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Sites:
    """Which names and which other sites' pages are welcome."""

    hosts: frozenset[str] = frozenset()
    """Names of this server beside addresses and localhost; empty, with keys: any."""
    origins: frozenset[str] = frozenset()
    """Sites whose pages may ask, as `https://name`, beside our own; `*`: all."""

    def answers_to(self, host: str | None, *, open: bool) -> bool:
        """Whether a request for this host is for us. A page of another site can have its own name resolve to
        us, and is then of one origin with us, but it cannot make us have its name."""
        if host is None or (not self.hosts and not open):
            return True
        name = _hostname(host)
        return name in self.hosts or name == "localhost" or _address(name)

    def welcome(self, origin: str, host: str | None) -> bool:
        return self.listed(origin) or (host is not None and _same(origin, host))

    def listed(self, origin: str) -> bool:
        return "*" in self.origins or origin.lower() in self.origins


def _hostname(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _same(origin: str, host: str) -> bool:
    """Whether a page of this origin came from this host. Not the scheme: TLS may end in front of us."""
    try:
        parts = urlsplit(origin)
        theirs = (parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme))
        ours = urlsplit(f"//{host}")
        port = ours.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return False
    return parts.hostname is not None and theirs == (ours.hostname, port)
