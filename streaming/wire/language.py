"""How languages are written: the one place that reads what clients call them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .errors import ProtocolError, shown
from .messages import LANGUAGES

REMEDY = "use an ISO 639 code such as en, or leave it out to have it detected"

_TODAY = {
    "cmn": "zh",
    "fil": "tl",
    "in": "id",
    "iw": "he",
    "ji": "yi",
    "jw": "jv",
    "mo": "ro",
    "nb": "no",
}
"""Codes that were withdrawn, or say more than engines tell apart, and what is said for them here."""


def language_of(tag: object) -> str | None:
    """The ISO 639 code of a language tag (BCP 47, with `_` too): `en-US` is en, `iw` is he; None where there
    is no tag. Raises `ProtocolError` for what is none."""
    if not tag:
        return None
    code = str(tag).lower().replace("_", "-").partition("-")[0]
    if not re.fullmatch(r"[a-z]{2,3}", code):
        raise ProtocolError("bad_field", f"language: {shown(str(tag), 40)}: {REMEDY}", field="language")
    return _TODAY.get(code, code)


def languages_of(tags: Iterable[object], field: str = "languages") -> tuple[str, ...]:
    """The codes of the languages to expect, each once. Raises `ProtocolError` naming `field` for what is no
    language, and for more than `LANGUAGES`."""
    try:
        codes = tuple(dict.fromkeys(code for tag in tags if (code := language_of(tag))))
    except ProtocolError as error:
        raise ProtocolError(error.code, error.message.replace("language", field, 1), field=field) from None
    if len(codes) > LANGUAGES:
        raise ProtocolError(
            "bad_field", f"{field}: {len(codes)} are too many: use at most {LANGUAGES}", field=field
        )
    return codes
