"""API keys: what is kept of them, and `seamscribe key new`, which makes one.

A key is 256 bits of the system's randomness, so a plain SHA-256 of it cannot be searched, however fast; the
settings hold nothing else.
"""

from __future__ import annotations

import argparse
import hmac
import re
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from . import tokens

PREFIX = "smk_"
"""Every key begins with it: secret scanners, and our own logs, know a key when they see one."""

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class Scope(StrEnum):
    """What a key may do."""

    SPEAK = "speak"
    """Open sessions, and name the speakers of one whose id is known."""
    READ = "read"
    """Read any session whose id is known."""
    WATCH = "watch"
    """Read the metrics: counts, no words."""
    ADMIN = "admin"
    """All of that; list and delete sessions."""


class KeySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """One key of the settings."""

    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    """Of the key, in hexadecimal; the key itself is kept nowhere."""
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)]
    max_sessions: Annotated[int, Meta(ge=1)] | None = None
    """Live sessions at once; None: as many as the server takes."""
    minutes_a_day: Annotated[float, Meta(gt=0, le=1e7)] | None = None
    """Minutes of audio between one midnight (UTC) and the next; None: no limit. Of this server alone; without
    the journal from its start."""


def digest(key: str) -> str:
    """What the settings keep of a key."""
    return tokens.digest(key).hex()


def find(keys: Mapping[str, KeySettings], presented: str) -> str | None:
    """The name of the key that was presented, in a time that tells nothing of the others; None: of none."""
    mine, found = digest(presented), None
    for name, key in keys.items():
        if hmac.compare_digest(mine, key.sha256):
            found = name
    return found


def covers(held: Iterable[Scope], wanted: Scope) -> bool:
    """Whether these scopes hold `wanted`; admin holds all."""
    scopes = frozenset(held)
    return wanted in scopes or Scope.ADMIN in scopes


def main(argv: Sequence[str]) -> int:
    """`seamscribe key new`: 0, or 2 for arguments that cannot be used."""
    parser = argparse.ArgumentParser(prog="seamscribe key", description="Make API keys.")
    commands = parser.add_subparsers(required=True)
    new = commands.add_parser("new", help="print a new key, once, and what the settings keep of it")
    new.add_argument("name", help="whose it is: a-z, 0-9, _ and -, 32 characters at most")
    new.add_argument(
        "--scope",
        action="append",
        choices=[scope.value for scope in Scope],
        help="what it may do; repeatable (speak)",
    )
    arguments = parser.parse_args(argv)
    if not NAME.fullmatch(arguments.name):
        new.error(f"name: {arguments.name!r} cannot be used: take a-z, 0-9, _ and -, 32 characters at most")
    key = PREFIX + secrets.token_urlsafe(32)
    say(arguments.name, key, arguments.scope or [Scope.SPEAK.value])
    return 0


def say(name: str, key: str, scopes: Sequence[str]) -> None:
    """The key alone on stdout, so that it can be piped into a vault; the rest on stderr."""
    listed = ", ".join(f'"{scope}"' for scope in scopes)
    variable = f"SEAMSCRIBE_AUTH__KEYS__{name.upper()}"
    print(key, flush=True)  # noqa: T201
    print(  # noqa: T201
        f"This key is shown once. For the settings file:\n\n"
        f'[auth.keys]\n{name} = {{sha256 = "{digest(key)}", scopes = [{listed}]}}\n\n'
        f"or for the environment:\n\n"
        f"{variable}__SHA256={digest(key)}\n{variable}__SCOPES={','.join(scopes)}",
        file=sys.stderr,
    )
