"""What a webhook's receiver checks: that a message is from this server, whole and fresh. Pure.

The header `Seamscribe-Signature` is `t=SECONDS,v1=HEX`: the time at which it was sent (since 1970) and
HMAC-SHA256 with the shared secret over that number, a dot and the body.
"""

from __future__ import annotations

import hashlib
import hmac
import re

HEADER = "Seamscribe-Signature"

TOLERANCE_S = 300
"""A signature that is older was recorded and sent again."""

_FORM = re.compile(r"t=([1-9][0-9]{0,11}),v1=([0-9a-f]{64})")


def sign(secret: str, body: bytes, now: int) -> str:
    """The header's value; `now` in seconds since 1970."""
    return f"t={now},v1={_digest(secret, body, now)}"


def verify(secret: str, body: bytes, header: str, now: float, tolerance_s: float = TOLERANCE_S) -> bool:
    """Whether the body came from who knows the secret, `tolerance_s` ago at most."""
    found = _FORM.fullmatch(header)
    if found is None:
        return False
    signed = int(found.group(1))
    right = hmac.compare_digest(_digest(secret, body, signed), found.group(2))
    return right and abs(now - signed) <= tolerance_s


def _digest(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
