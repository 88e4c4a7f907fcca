"""Deepgram's messages, as its clients read them: several fail where a key is missing. Pure."""

from __future__ import annotations

import unicodedata
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from msgspec import UNSET

from streaming.wire.messages import Ready, Word
from streaming.wire.render import joined


@dataclass(frozen=True, slots=True)
class About:
    """What stands in every result of a stream."""

    request: str
    created: str
    model: str = ""
    engine: str = ""

    def knowing(self, ready: Ready) -> About:
        """With the model that the session has."""
        return About(self.request, self.created, ready.model, ready.engine)

    @property
    def model_uuid(self) -> str:
        """The same for the same model."""
        return str(uuid.uuid5(uuid.NAMESPACE_OID, self.model))

    @property
    def model_info(self) -> dict[str, str]:
        return {"name": self.model, "version": "1", "arch": self.engine}


@dataclass(frozen=True, slots=True)
class Said:
    """A stretch of one channel and the words in it, milliseconds. `speakers` go with `words`, from 0."""

    channel: tuple[int, int]
    """Its index, and how many there are."""
    start: int
    end: int
    words: Sequence[Word] = ()
    speakers: Sequence[int | None] = field(default=())
    final: bool = False
    endpoint: bool = False
    """Whether the speech has stopped behind it."""
    finalize: bool = False
    """Whether it answers Finalize."""
    language: str | None = None
    punctuated: bool = True

    def answering(self) -> Said:
        """The same as the answer to Finalize."""
        return replace(self, finalize=True)


def results(said: Said, about: About) -> str:
    """`Results`."""
    return text_of(
        {
            "type": "Results",
            "channel_index": list(said.channel),
            "start": said.start / 1000,
            "duration": (said.end - said.start) / 1000,
            "is_final": said.final,
            "speech_final": said.endpoint,
            "from_finalize": said.finalize,
            "channel": {"alternatives": [alternative(said)]},
            "metadata": {
                "request_id": about.request,
                "model_uuid": about.model_uuid,
                "model_info": about.model_info,
            },
        }
    )


def alternative(said: Said) -> dict[str, Any]:
    """What was said, as text and word by word."""
    speakers = said.speakers or (None,) * len(said.words)
    words = [_word(word, who) for word, who in zip(said.words, speakers, strict=True)]
    sure = [word["confidence"] for word in words]
    return {
        "transcript": joined(said.words) if said.punctuated else _plain_text(said.words),
        "confidence": round(sum(sure) / len(sure), 4) if sure else 0.0,
        **({"languages": [said.language]} if said.language else {}),
        "words": words,
    }


def _word(word: Word, speaker: int | None) -> dict[str, Any]:
    return {
        "word": plain(word.text) or word.text,
        "punctuated_word": word.text,
        "start": word.start_ms / 1000,
        "end": word.end_ms / 1000,
        "confidence": 0.0 if word.confidence is UNSET else word.confidence,
        **({} if speaker is None else {"speaker": speaker}),
    }


def plain(text: str) -> str:
    """A word in lower case without the marks around it."""
    letters = [index for index, one in enumerate(text) if unicodedata.category(one)[0] not in "PZ"]
    return text[letters[0] : letters[-1] + 1].lower() if letters else ""


def _plain_text(words: Sequence[Word]) -> str:
    return joined(msgspec.structs.replace(w, text=bare) for w in words if (bare := plain(w.text)))


def speech_started(channel: tuple[int, int], at: int) -> str:
    return text_of({"type": "SpeechStarted", "channel": list(channel), "timestamp": at / 1000})


def utterance_end(channel: tuple[int, int], last_word_end: int) -> str:
    return text_of({"type": "UtteranceEnd", "channel": list(channel), "last_word_end": last_word_end / 1000})


def metadata(about: About, sha256: str, duration: int, channels: int) -> dict[str, Any]:
    """The summary at the end."""
    return {
        "transaction_key": "deprecated",
        "request_id": about.request,
        "sha256": sha256,
        "created": about.created,
        "duration": duration / 1000,
        "channels": channels,
        "models": [about.model_uuid],
        "model_info": {about.model_uuid: about.model_info},
    }


def failure(code: str, description: str) -> str:
    return text_of({"type": "Error", "variant": code, "description": description, "message": description})


def configured(about: About, keyterms: Sequence[str] | None = None) -> str:
    told = {} if keyterms is None else {"keyterms": keyterms}
    return text_of({"type": "ConfigureSuccess", "request_id": about.request, **told})


def configure_failure(about: About) -> str:
    return text_of(
        {
            "type": "ConfigureFailure",
            "request_id": about.request,
            "code": "CONFIGURE_KEYTERM_LIMIT_EXCEEDED",
            "description": "keyterms: stay as they were: send at most 200 texts of at most 64 characters",
        }
    )


def text_of(message: dict[str, Any]) -> str:
    """As JSON."""
    return msgspec.json.encode(message).decode()
