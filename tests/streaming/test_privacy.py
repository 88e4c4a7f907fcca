"""What an operator's function strikes out is nowhere: in no partial, no export, nor the journal."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Word
from streaming.access import privacy
from streaming.access.privacy import MASK, Redactor
from streaming.core.events import SegmentUpdated
from streaming.errors import SettingsError
from streaming.kept.transcripts import export
from streaming.wire.messages import Start
from streaming.wire.render import FORMATS
from tests.support.lives import Lives, living
from tests.support.sound import expected, speech
from tests.support.world import END, START, live


def secretive(words: Sequence[str]) -> list[str]:
    """Strikes out every word with an e or an E in it."""
    return ["***" if "e" in word.lower() else word for word in words]


def event(
    words: Sequence[str], partial: Sequence[str] = (), first: int = 0, track: int | None = None
) -> SegmentUpdated:
    def made(texts: Sequence[str]) -> tuple[Word, ...]:
        return tuple(Word(text, 320 * i, 320 * i + 320) for i, text in enumerate(texts))

    return SegmentUpdated(
        segment=1, revision=1, first_word=first, start=0, end=10_000, speaker=None, words=made(words),
        partial=made(partial), final=False, language=None, track=track,
    )  # fmt: skip


def texts(found: Any) -> tuple[list[str], list[str]]:
    assert isinstance(found, SegmentUpdated)
    return [word.text for word in found.words], [word.text for word in found.partial]


def test_words_keep_their_index_and_their_times() -> None:
    told = event(["one", "two"], ["three"])
    found = Redactor(secretive).apply(told)
    assert texts(found) == (["***", "two"], ["***"])
    assert isinstance(found, SegmentUpdated)
    assert [(w.start, w.end) for w in found.words] == [(w.start, w.end) for w in told.words]
    assert found.first_word == told.first_word


def test_nothing_is_touched_without_a_function() -> None:
    told = event(["one"], ["two"])
    assert Redactor(None).apply(told) is told


def test_what_was_told_of_a_committed_word_holds() -> None:
    asked: list[Sequence[str]] = []

    def late(words: Sequence[str]) -> list[str]:
        asked.append(words)
        return ["###"] * len(words) if len(asked) in (2, 4) else list(words)

    redactor = Redactor(late)
    assert texts(redactor.apply(event(["a"], ["b"]))) == (["a"], ["b"])
    assert texts(redactor.apply(event(["a", "b"], ["c"]))) == (["a", "###"], ["###"])
    assert texts(redactor.apply(event(["a", "b", "c"]))) == (["a", "###", "c"], [])
    # The last of them move to a segment of their own.
    assert texts(redactor.apply(event(["b", "c"], first=1))) == (["###", "c"], [])
    assert texts(redactor.apply(event(["b"], first=1, track=1))) == (["b"], [])


@pytest.mark.parametrize("fault", ["raises", "fewer", "more", "none", "numbers", "empty"])
def test_a_function_that_fails_lets_nothing_through(fault: str, caplog: pytest.LogCaptureFixture) -> None:
    def failing(words: Sequence[str]) -> Any:
        if fault == "raises":
            raise RuntimeError(f"cannot: {words}")
        return {
            "fewer": words[1:],
            "more": [*words, "x"],
            "none": None,
            "numbers": [1] * len(words),
            "empty": [""] * len(words),
        }[fault]

    redactor = Redactor(failing)
    for _ in range(3):
        assert texts(redactor.apply(event(["secret", "word"], ["more"]))) == ([MASK, MASK], [MASK])
    assert len(caplog.records) == (0 if fault == "empty" else 1)
    assert "secret" not in caplog.text


@given(st.lists(st.lists(st.sampled_from(["one", "two", "six"]), max_size=4), max_size=6), st.randoms())
def test_committed_words_never_change_whatever_the_function_does(grown: list[list[str]], random: Any) -> None:
    def moody(words: Sequence[str]) -> list[str]:
        return [random.choice((word, "***")) for word in words]

    redactor, words, known = Redactor(moody), list[str](), list[str]()
    for more in grown:
        words += more
        found, _ = texts(redactor.apply(event(words, ["partial"])))
        assert found[: len(known)] == known
        known = found


WORDS = expected("xxxxxxxxxxxx")
SECRET = {word for word in WORDS if "e" in word}


def words_in(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z*]+", text))


def test_nobody_hears_or_keeps_what_is_struck_out() -> None:
    said: dict[str, str] = {}

    async def body(world: Lives) -> None:
        world.services = replace(world.services, redact=secretive)
        channel = world.client()
        channel.say({**START, "context": "Ten", "hotwords": ["Seven"]})
        await live(channel, speech("xxxxxxxx....xxxx...."))
        id = channel.sent[0]["session"]
        entry = world.services.sessions.find(id)
        assert entry is not None
        channel.say(END)
        await world.all_done()
        said["wire"] = json.dumps([m for m in channel.sent if m["type"] == "segment"])
        said["partials"] = " ".join(m["partial"] for m in channel.of("segment"))
        said.update({format: export(entry.log, format, "session") for format in FORMATS})
        stored = world.store.load(id)
        assert stored is not None
        said["journal"] = repr(stored.states)
        said["start"] = repr(stored.opened.start)

    living(body)
    assert SECRET, "else this test sees nothing"
    for where, text in said.items():
        assert not words_in(text) & (SECRET | {"Ten", "Seven"}), where
        if where not in ("start", "rttm"):
            assert "***" in text, where
    for where in ("wire", "journal", "text"):
        assert words_in(said[where]) >= set(WORDS) - SECRET


def test_what_a_client_says_of_its_talk_is_words_too() -> None:
    start = Start(context="my name is Eve", hotwords=("Eve",))
    assert privacy.kept(start, secretive) == Start()
    assert privacy.kept(start, None) is start


@pytest.mark.parametrize(
    "path", ["nowhere", "nowhere:x", "json:nothing", ":x", "json:", "json:__name__", "..:x"]
)
def test_a_function_that_is_none_stops_the_start(path: str) -> None:
    with pytest.raises(SettingsError, match=r"^privacy\.redact: "):
        privacy.load(path)


def test_a_function_is_found_by_its_name() -> None:
    assert privacy.load("") is None
    assert privacy.load("tests.streaming.test_privacy:secretive") is secretive
