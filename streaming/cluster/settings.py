"""The settings of several processes that are one server."""

from __future__ import annotations

import ipaddress
from typing import Annotated

from msgspec import Meta, Struct

from streaming.errors import SettingsError

SCHEMES = ("redis://", "rediss://", "unix://")


class ClusterSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Where this process alone answers: others that share its journal, and what collects metrics."""

    host: Annotated[str, Meta(pattern=r"\S")] = "127.0.0.1"
    """An address of this machine's that they can connect to; plain HTTP is spoken there."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """0 takes any free port where the journal is shared, else none. The first of several processes takes this
    one, each of the others the next."""


def check_cluster(cluster: ClusterSettings, url: str, *, audio: bool, where: str) -> None:
    """What no field says by itself; raises `SettingsError`."""
    if not url:
        return
    if not url.startswith(SCHEMES):
        raise SettingsError(f"journal.url {where}: use {', '.join(f'{s}...' for s in SCHEMES)}")
    if audio:
        raise SettingsError(
            f"journal.audio {where}: audio is kept in files of one machine, and with journal.url sessions may"
            " move to another: set it to false"
        )
    try:
        nowhere = ipaddress.ip_address(cluster.host.strip("[]")).is_unspecified
    except ValueError:
        nowhere = False
    if nowhere:
        raise SettingsError(
            f"cluster.host {where}: {cluster.host} is no address that others can connect to: name this"
            " machine's own"
        )
