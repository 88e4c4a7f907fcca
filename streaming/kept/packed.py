"""A closed segment in a few bytes: some 30 a word, so a meeting of 8 hours stays small. Pure."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from streaming.wire.lines import joined
from streaming.wire.messages import Segment, Word


class _PackedWord(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    text: str
    start_ms: int
    """Since the segment's start."""
    length_ms: int
    per_mille: int | None = None
    space: bool = True


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    id: int
    rev: int
    first_word: int
    start_ms: int
    end_ms: int
    speaker: int | None
    language: str | None
    track: int | None
    frozen: bool
    words: tuple[_PackedWord, ...]


_unpacker = msgspec.msgpack.Decoder(_Packed)


def pack(segment: Segment) -> bytes:
    """A segment that is final; its name is not kept, for names change."""
    words = tuple(
        _PackedWord(
            word.text,
            word.start_ms - segment.start_ms,
            word.end_ms - word.start_ms,
            None if word.confidence is UNSET else round(word.confidence * 1000),
            word.space is not False,
        )
        for word in segment.words
    )
    language = None if segment.language is UNSET else segment.language
    return msgspec.msgpack.encode(
        _Packed(
            segment.id,
            segment.rev,
            segment.first_word,
            segment.start_ms,
            segment.end_ms,
            segment.speaker,
            language,
            None if segment.track is UNSET else segment.track,
            segment.frozen is True,
            words,
        )
    )


def unpack(data: bytes) -> Segment:
    """The segment, with `seq` 0."""
    packed = _unpacker.decode(data)
    words = tuple(
        Word(
            w.text,
            packed.start_ms + w.start_ms,
            packed.start_ms + w.start_ms + w.length_ms,
            UNSET if w.per_mille is None else w.per_mille / 1000,
            UNSET if w.space else False,
        )
        for w in packed.words
    )
    return Segment(
        seq=0,
        id=packed.id,
        rev=packed.rev,
        first_word=packed.first_word,
        start_ms=packed.start_ms,
        end_ms=packed.end_ms,
        speaker=packed.speaker,
        text=joined(words),
        words=words,
        partial="",
        final=True,
        language=UNSET if packed.language is None else packed.language,
        track=UNSET if packed.track is None else packed.track,
        frozen=packed.frozen or UNSET,
    )
