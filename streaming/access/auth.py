"""Who asks, and what they may: API keys, single-use tokens that keys mint for browsers, and where a request
carries either.

Without keys in the settings everybody is `ANYONE`, who may all: such a server listens on loopback only, or
where its operator said plainly that it shall.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from streaming.errors import StreamError
from streaming.wire.errors import CloseCode

from .keys import KeySettings, Scope, covers, find
from .tokens import digest

CALLER = "seamscribe.caller"
"""In the scope of a request: its `Caller`, or None on a socket whose client has yet to say."""

SUBPROTOCOL = "seamscribe.token."
"""A browser, which cannot set headers on a websocket, offers this and its token as one more subprotocol,
beside the one it wants to speak. It is never echoed."""

_MARKERS = frozenset({"token", "bearer"})
"""Other vendors' browser clients offer one of these, then the secret."""
_PREFIXES = (SUBPROTOCOL, "openai-insecure-api-key.")
_SCHEMES = frozenset({"bearer", "token"})

LONGEST = 512
"""Characters of a secret; whatever is longer is none of ours, and is not hashed."""


class Unauthorized(StreamError):
    """Nobody that is known here asks, or somebody who may not."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(
            "unauthorized",
            f"a key or token with the scope {scope} is needed: send Authorization: Bearer, the subprotocol"
            f" {SUBPROTOCOL}..., or token in the first message; a token works once",
            close=CloseCode.UNAUTHORIZED,
            field="token",
        )


class TooManyTokens(Exception):
    """Unused tokens of a key, or of all, are at their limit."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    key: str = ""
    """Name of the key; empty without keys, and for who shows a session's own token."""
    scopes: frozenset[Scope] = frozenset()
    session: str | None = None
    """The only session it may ask about; None: any."""
    mints: bool = False
    """Whether it may have tokens: a key may, a token may not."""
    note: str = ""
    """What whoever had the token made said of the session that it is for, as the protocol of that has it."""

    def may(self, scope: Scope, session: str | None = None) -> bool:
        """Whether it holds `scope`, on `session` where that is about one."""
        return covers(self.scopes, scope) and self.session in (None, session)


ANYONE = Caller(scopes=frozenset({Scope.ADMIN}))
"""Whoever comes to a server without keys."""


@dataclass(frozen=True, slots=True)
class _Ticket:
    caller: Caller
    expires: float


class Ticketing(Protocol):
    """Tokens that were minted and not used yet: each works once, for a while. Bounded: each key has at most a
    quarter of the room, so that none can take it all. Raises `Unreadable` where what is known of them cannot
    be asked now."""

    async def mint(self, caller: Caller, seconds: float, prefix: str = "") -> str:
        """A token for `caller`, beginning with `prefix`; raises `TooManyTokens`."""
        ...

    async def use(self, token: str) -> Caller | None:
        """Whom the token stands for; whoever comes first has it, and it is gone."""
        ...


def fresh(prefix: str) -> str:
    """A token that nobody can guess."""
    return prefix + secrets.token_urlsafe(32)


def room(most: int) -> int:
    """How many of `most` tokens one key may have."""
    return max(1, most // 4)


class Tickets:
    """Those of this process, as `Ticketing`."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._unused: dict[bytes, _Ticket] = {}

    async def mint(self, caller: Caller, seconds: float, prefix: str = "") -> str:
        self._forget()
        mine = sum(1 for ticket in self._unused.values() if ticket.caller.key == caller.key)
        if len(self._unused) >= self._most or mine >= room(self._most):
            raise TooManyTokens
        token = fresh(prefix)
        self._unused[digest(token)] = _Ticket(caller, self._clock() + seconds)
        return token

    async def use(self, token: str) -> Caller | None:
        # Looked up by its digest, which nobody can steer towards that of another.
        ticket = self._unused.pop(digest(token), None)
        return ticket.caller if ticket is not None and self._clock() < ticket.expires else None

    def __len__(self) -> int:
        return len(self._unused)

    def _forget(self) -> None:
        now = self._clock()
        self._unused = {at: t for at, t in self._unused.items() if now < t.expires}


class Authority:
    """Knows keys and tokens."""

    def __init__(
        self,
        keys: Mapping[str, KeySettings] | None = None,
        most: int = 10_000,
        clock: Callable[[], float] = float,
        tickets: Ticketing | None = None,
    ) -> None:
        """At most so many tokens wait, in this process where no other `tickets` are given."""
        self._keys = dict(keys or {})
        self._tickets: Ticketing = tickets or Tickets(most, clock)

    @property
    def open(self) -> bool:
        """Whether everybody may all, for there are no keys."""
        return not self._keys

    async def caller(self, secret: str | None) -> Caller | None:
        """Who shows this key or token; a token is used up by it. None: nobody that is known."""
        if not secret or len(secret) > LONGEST:
            return ANYONE if self.open else None
        if self.open:
            return (
                await self._tickets.use(secret) or ANYONE
            )  # nobody needs a token here, but it may bring a note
        name = find(self._keys, secret)
        if name is None:
            return await self._tickets.use(secret)
        return Caller(name, frozenset(self._keys[name].scopes), mints=True)

    async def admit(
        self, caller: Caller | None, secret: str | None, scope: Scope, session: str | None = None
    ) -> Caller:
        """Who speaks on a socket: known since its handshake, or by the secret in its first message. Raises
        `Unauthorized`."""
        known = caller or await self.caller(secret)
        if known is None or not known.may(scope, session):
            raise Unauthorized(scope)
        return known

    async def mint(self, caller: Caller, scope: Scope, seconds: float, session: str | None = None) -> str:
        """A token with one scope of the caller's; raises `TooManyTokens`."""
        assert caller.mints, "tokens are for keys"
        assert caller.may(scope, session), "only of what one has"
        return await self._tickets.mint(Caller(caller.key, frozenset({scope}), session), seconds)

    async def mint_for(self, caller: Caller, note: str, seconds: float, prefix: str) -> str:
        """A token that opens one session, of which `note` says more; raises `TooManyTokens`. Without keys
        everybody may have one, and it is good for nothing else."""
        assert caller.mints or self.open, "tokens are for keys"
        scopes = caller.scopes if self.open else frozenset({Scope.SPEAK})
        return await self._tickets.mint(Caller(caller.key, scopes, note=note), seconds, prefix)


def secret_of(headers: Sequence[tuple[bytes, bytes]], subprotocols: Sequence[str] = ()) -> str | None:
    """The key or token of a request: in its `Authorization` (Bearer or Token), else among the subprotocols of
    a websocket. None where there is none."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, secret = value.decode("latin-1").strip().partition(" ")
            # A header that we cannot read is a secret that nobody knows, not the absence of one.
            return secret.strip() if scheme.lower() in _SCHEMES else ""
    offered = iter(subprotocols)
    for one in offered:
        for prefix in _PREFIXES:
            if one.startswith(prefix):
                return one.removeprefix(prefix)
        if one.lower() in _MARKERS:
            return next(offered, "")
    return None


def spoken(subprotocols: Sequence[str]) -> list[str]:
    """The subprotocols offered, without those that are secrets: what may be answered."""
    names: list[str] = []
    offered = iter(subprotocols)
    for one in offered:
        if one.startswith(_PREFIXES):
            continue
        names.append(one)
        if one.lower() in _MARKERS:
            next(offered, None)
    return names
