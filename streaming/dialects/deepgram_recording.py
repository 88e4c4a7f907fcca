"""What was said in a recording, as Deepgram answers it in one piece. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from msgspec import UNSET

from streaming.wire.lines import joined
from streaming.wire.messages import Segment, Word
from streaming.wire.telling import track_of

from .deepgram_shapes import Said, alternative
from .query import Query

SENTENCE_ENDS = (".", "?", "!", "…", "\u3002", "\uff1f", "\uff01")
CLOSERS = "\"')]}\u2019\u201d\u00bb\u300d\u300f"
SENTENCES = 5
"""A paragraph of one speaker has so many at the most."""


@dataclass(frozen=True, slots=True)
class Form:
    """What of it is wanted."""

    diarize: bool
    punctuated: bool
    paragraphs: bool
    utterances: bool
    split: int
    """Silence between two utterances, ms at the least."""
    detect: bool
    """Whether to tell which language is spoken: nobody said it."""


def form_of(query: Query, *, diarize: bool, punctuated: bool, told: bool) -> Form:
    """What the query asks for besides what it asks of a stream; `told`: it names the language. Raises
    `ProtocolError`."""
    paragraphs = query.flag("paragraphs")
    return Form(
        diarize,
        punctuated or paragraphs,
        paragraphs or query.flag("smart_format"),
        query.flag("utterances"),
        round(query.number("utt_split", 0.8, 0.0, 60.0) * 1000),
        not told,
    )


@dataclass(frozen=True, slots=True)
class _Spoken:
    """One word, and whose."""

    word: Word
    speaker: int | None


def answer(segments: Sequence[Segment], form: Form, about: dict[str, Any], channels: int) -> dict[str, Any]:
    """The body: `about` is its `metadata`."""
    heard = [[one for one in segments if track_of(one) == channel] for channel in range(channels)]
    results: dict[str, Any] = {
        "channels": [_channel(said, (at, channels), form) for at, said in enumerate(heard)]
    }
    if form.utterances:
        told = [
            utterance
            for at, said in enumerate(heard)
            for utterance in _utterances(_words(said, form), (at, channels), form)
        ]
        results["utterances"] = sorted(told, key=lambda one: float(one["start"]))
    return {"metadata": about, "results": results}


def _channel(segments: Sequence[Segment], channel: tuple[int, int], form: Form) -> dict[str, Any]:
    words = _words(segments, form)
    told = _told(words, channel, form)
    if form.paragraphs:
        told["paragraphs"] = _paragraphs(words, form)
    languages = [one.language for one in segments if one.words and one.language is not UNSET]
    if not form.detect or not languages:
        return {"alternatives": [told]}
    told["languages"] = list(dict.fromkeys(languages))
    return {"detected_language": max(languages, key=languages.count), "alternatives": [told]}


def _words(segments: Sequence[Segment], form: Form) -> list[_Spoken]:
    """In the order in which they were spoken."""
    found = [
        _Spoken(word, segment.speaker - 1 if form.diarize and segment.speaker is not None else None)
        for segment in segments
        for word in segment.words
    ]
    return sorted(found, key=lambda one: one.word.start_ms)


def _told(words: Sequence[_Spoken], channel: tuple[int, int], form: Form) -> dict[str, Any]:
    start, end = (words[0].word.start_ms, words[-1].word.end_ms) if words else (0, 0)
    speakers = [one.speaker for one in words]
    return alternative(
        Said(channel, start, end, [one.word for one in words], speakers, punctuated=form.punctuated)
    )


def _utterances(words: Sequence[_Spoken], channel: tuple[int, int], form: Form) -> Iterator[dict[str, Any]]:
    """Stretches of one speaker without a longer silence."""
    for said in _stretches(words, form.split):
        told = _told(said, channel, form)
        whose = {} if said[0].speaker is None else {"speaker": said[0].speaker}
        yield {
            "start": said[0].word.start_ms / 1000,
            "end": said[-1].word.end_ms / 1000,
            "confidence": told["confidence"],
            "channel": channel[0],
            "transcript": told["transcript"],
            "words": told["words"],
            **whose,
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{channel[0]} {said[0].word.start_ms}")),
        }


def _stretches(words: Sequence[_Spoken], split: int) -> Iterator[list[_Spoken]]:
    said = list[_Spoken]()
    for one in words:
        if said and (
            one.speaker != said[-1].speaker or one.word.start_ms - said[-1].word.end_ms >= max(split, 1)
        ):
            yield said
            said = []
        said.append(one)
    if said:
        yield said


def _paragraphs(words: Sequence[_Spoken], form: Form) -> dict[str, Any]:
    found, texts = list[dict[str, Any]](), list[str]()
    for speaker, group in groupby(words, key=lambda one: one.speaker):
        sentences = list(_sentences([one.word for one in group]))
        for at in range(0, len(sentences), SENTENCES):
            part = sentences[at : at + SENTENCES]
            told = [
                {"text": joined(one).strip(), "start": one[0].start_ms / 1000, "end": one[-1].end_ms / 1000}
                for one in part
            ]
            whose = {} if speaker is None else {"speaker": speaker}
            found.append(
                {
                    "sentences": told,
                    "num_words": sum(map(len, part)),
                    "start": told[0]["start"],
                    "end": told[-1]["end"],
                    **whose,
                }
            )
            label = "" if speaker is None else f"Speaker {speaker}: "
            texts.append(label + joined(word for one in part for word in one))
    return {"transcript": "".join(f"\n{text}\n" for text in texts).rstrip("\n"), "paragraphs": found}


def _sentences(words: Sequence[Word]) -> Iterator[list[Word]]:
    said = list[Word]()
    for word in words:
        said.append(word)
        if word.text.rstrip(CLOSERS).endswith(SENTENCE_ENDS):
            yield said
            said = []
    if said:
        yield said
