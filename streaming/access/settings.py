"""The settings of who may come in: keys, names and sites, and what is struck out of the words."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from streaming.errors import SettingsError

from .keys import NAME, KeySettings


class AuthSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Who may come in."""

    keys: dict[Annotated[str, Meta(pattern=rf"\A{NAME.pattern}\Z")], KeySettings] = {}
    """API keys by name, made by `seamscribe key new`; none: anybody may all, from this machine only."""
    token_s: Annotated[float, Meta(gt=0, le=600)] = 60.0
    """So long a token for a browser waits to be used, at most."""
    max_tokens: Annotated[int, Meta(ge=4)] = 10_000
    """Tokens that wait at once; each key has a quarter of them at most."""


class SiteSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Which names and whose pages are welcome."""

    hosts: tuple[Annotated[str, Meta(pattern=r"\A[a-z0-9.-]+\Z")], ...] = ()
    """Names of this server, beside its addresses and localhost; empty, with keys: any."""
    origins: tuple[Annotated[str, Meta(pattern=r"\A(https?://[a-z0-9.:\[\]-]+|null|\*)\Z")], ...] = ()
    """Sites whose pages may ask here beside our own, as https://name; * for all, with keys only."""


class PrivacySettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What is struck out of the words."""

    redact: str = ""
    """`module:function`, given the words of a segment, returns as many; see streaming/access/privacy.py."""
    keep_audio: bool = False
    """Whether audio may be kept all the same: nothing is struck out of it."""


def check_keys(tree: dict[str, Any], where: str, *, strict: bool) -> None:
    """Raises `SettingsError` naming the key, which msgspec does not. Nothing of its value is shown: somebody
    may have put the key itself there."""
    auth = tree.get("auth")
    keys = auth.get("keys") if isinstance(auth, dict) else None
    for name, key in keys.items() if isinstance(keys, dict) else ():
        try:
            if not NAME.fullmatch(name):
                raise msgspec.ValidationError("names are of a-z, 0-9, _ and -, 32 characters at most")
            msgspec.convert(key, KeySettings, strict=strict)
        except msgspec.ValidationError as error:
            raise SettingsError(
                f"auth.keys.{name} {where}: {error}: take what `seamscribe key new` prints"
            ) from None


def check_audio(privacy: PrivacySettings, *, kept: bool, where: str) -> None:
    """Audio that is kept says what was struck out of the words; raises `SettingsError`."""
    if kept and privacy.redact and not privacy.keep_audio:
        raise SettingsError(
            f"journal.audio {where}: privacy.redact strikes out of words what the audio would still say: set"
            " journal.audio = false, or privacy.keep_audio = true to keep it as it was spoken"
        )


def check_access(auth: AuthSettings, sites: SiteSettings, where: str) -> None:
    """What no field says by itself; raises `SettingsError`."""
    digests = [key.sha256 for key in auth.keys.values()]
    if len(set(digests)) < len(digests):
        raise SettingsError(f"auth.keys {where}: two names have the same sha256: make a key for each")
    if "*" in sites.origins and not auth.keys:
        raise SettingsError(
            f"sites.origins {where}: * lets every site in, for there are no auth.keys: list sites"
        )
