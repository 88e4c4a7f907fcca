"""The form of a request: read to a bounded file, checked field by field."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from streaming.denial import Refusal
from streaming.files.upload import bounded
from streaming.wire.errors import shown
from streaming.wire.language import language_of, languages_of
from streaming.wire.messages import AudioFormat, Encoding, Options, Start

RESPONSES = ("json", "text", "srt", "verbose_json", "vtt", "diarized_json")
GRANULARITIES = frozenset({"segment", "word"})
MOST_FIELDS = 200
FIELD_BYTES = 64 << 10
"""Bytes of one field that is no file."""

_READ = {"file", "model", "language", "languages", "prompt", "response_format", "temperature", "stream"}
_READ |= {"timestamp_granularities", "hotwords", "keywords"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks for."""

    file: BinaryIO
    model: str
    language: str | None
    languages: tuple[str, ...]
    """Those to expect where it is not known."""
    context: str
    hotwords: tuple[str, ...]
    format: str
    words: bool
    """Whether single words are wanted, in verbose_json."""
    segments: bool
    stream: bool
    ignored: tuple[str, ...]
    """Names of fields that mean nothing here."""

    @property
    def start(self) -> Start:
        """The session that hears it."""
        return Start(
            audio=AudioFormat(Encoding.CONTAINER),
            language=self.language,
            languages=self.languages,
            context=self.context,
            hotwords=self.hotwords,
            options=Options(speakers=self.format == "diarized_json"),
        )


@asynccontextmanager
async def form_of(request: Request, most: int, patience_s: float) -> AsyncIterator[FormData]:
    """The form, `most` bytes at most; its file is on the disk and goes with the block. Raises `Refusal`."""
    upload = Request(request.scope, bounded(request, most, patience_s))
    try:
        form = await upload.form(max_files=1, max_fields=MOST_FIELDS, max_part_size=FIELD_BYTES)
    except HTTPException as error:  # so Starlette tells of a broken form
        raise Refusal(400, f"body: {error.detail}: send multipart/form-data", code="bad_form") from None
    except ClientDisconnect:
        raise Refusal(400, "body: broke off: send all of it", code="bad_form") from None
    try:
        yield form
    finally:
        await form.close()


def wanted(form: FormData) -> Wanted:
    """The checked request; raises `Refusal` naming the field."""
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise Refusal(400, "file: is missing: send the recording as a file of the form", param="file")
    format = _text(form, "response_format") or "json"
    if format not in RESPONSES:
        raise _bad("response_format", f"{shown(format)} is not known: use one of {', '.join(RESPONSES)}")
    granularities = set(_list(form, "timestamp_granularities")) or {"segment"}
    if granularities - GRANULARITIES:
        raise _bad("timestamp_granularities", "use segment, word or both")
    languages = languages_of(_list(form, "languages"))
    language = _text(form, "language") or (languages[0] if len(languages) == 1 else "")
    hotwords = [word.strip() for name in ("hotwords", "keywords") for word in _list(form, name)]
    if len(hotwords) > 200 or any(len(word) > 64 for word in hotwords):
        raise _bad("keywords", "use at most 200 texts of 1 to 64 characters")
    return Wanted(
        file.file,
        _text(form, "model"),
        language_of(language),
        languages,
        _text(form, "prompt")[-4000:],
        tuple(word for word in hotwords if word),
        format,
        "word" in granularities,
        "segment" in granularities,
        _text(form, "stream").lower() in ("true", "1"),
        tuple(sorted({_bare(name) for name in form} - _READ)),
    )


def _bare(name: str) -> str:
    return name.partition("[")[0]


def _text(form: Mapping[str, UploadFile | str], name: str) -> str:
    found = form.get(name, "")
    if not isinstance(found, str):
        raise _bad(name, "is a text, not a file")
    return found.strip()


def _list(form: FormData, name: str) -> list[str]:
    """Repeated, with brackets or without, or with commas."""
    found: Sequence[UploadFile | str] = [*form.getlist(name), *form.getlist(f"{name}[]")]
    return [part.strip() for one in found if isinstance(one, str) for part in one.split(",") if part.strip()]


def _bad(param: str, why: str) -> Refusal:
    return Refusal(400, f"{param}: {why}", code="invalid_value", param=param)
