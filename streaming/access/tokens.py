"""The secrets of a session: one that lets its client come back, one that lets readers read; and the digest,
which is all that is kept of any secret. Pure but for the system's randomness."""

from __future__ import annotations

import hashlib
import hmac
import secrets

_BYTES = 32


def fresh_id() -> str:
    """An id for a session, which nobody can guess."""
    return secrets.token_urlsafe(16)


def issue() -> str:
    """A new session's token: 256 bits nobody can guess."""
    return secrets.token_urlsafe(_BYTES)


def read_token(token: str) -> str:
    """The read token that goes with a session's token; it does not lead back to it."""
    return hmac.new(token.encode(), b"seamscribe read", hashlib.sha256).hexdigest()


def digest(token: str) -> bytes:
    """What is kept of a token or a key. Whatever a peer wrote can be digested, lone surrogates too."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def fits(token: str, kept: bytes) -> bool:
    """Whether it is the token of which `kept` is the digest, in a time that tells nothing."""
    return hmac.compare_digest(digest(token), kept)
