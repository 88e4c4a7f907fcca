"""API keys for tests, and a server that knows them."""

from __future__ import annotations

import time
from typing import Any

from streaming.access.auth import Authority
from streaming.access.keys import KeySettings, Scope, digest
from streaming.access.quota import Quotas

SPEAK = "smk_" + "s" * 43
READ = "smk_" + "r" * 43
WATCH = "smk_" + "w" * 43
ADMIN = "smk_" + "a" * 43


def key(secret: str, *scopes: Scope, **limits: Any) -> KeySettings:
    return KeySettings(digest(secret), scopes, **limits)


KEYS = {
    "bot": key(SPEAK, Scope.SPEAK),
    "archive": key(READ, Scope.READ),
    "prometheus": key(WATCH, Scope.WATCH),
    "boss": key(ADMIN, Scope.ADMIN),
}


def locked(keys: dict[str, KeySettings] | None = None, most: int = 100) -> dict[str, Any]:
    """Fields of `Services` for a server with keys."""
    keys = KEYS if keys is None else keys
    return {"auth": Authority(keys, most, time.monotonic), "quotas": Quotas(keys)}


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}
