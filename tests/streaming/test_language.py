"""Languages under the names that clients have for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.fake import FakeScript
from engine.policies.qwen3_asr import LANGUAGES
from streaming.dialects import bots, deepgram, openai_session
from streaming.dialects.query import Query
from streaming.wire.errors import ProtocolError
from streaming.wire.language import language_of
from tests.support.sound import expected, s16, speech
from tests.support.world import END, START, World, committed, serving


@pytest.mark.parametrize(
    ("tag", "code"),
    [
        ("en", "en"),
        ("en-US", "en"),
        ("EN_us", "en"),
        ("zh-Hant-TW", "zh"),
        ("yue", "yue"),
        ("iw", "he"),
        ("iw-IL", "he"),
        ("nb-NO", "no"),
        ("jw", "jv"),
        ("cmn", "zh"),
        ("fil", "tl"),
        ("", None),
        (None, None),
    ],
)
def test_tags_become_codes(tag: str | None, code: str | None) -> None:
    assert language_of(tag) == code


@pytest.mark.parametrize("tag", ["klingonish", "e", "-", "12", "en glish", "é-FR", {"a": 1}])
def test_what_is_no_tag_is_refused_with_its_remedy(tag: object) -> None:
    with pytest.raises(ProtocolError, match=r"^language: .*: use an ISO 639 code") as caught:
        language_of(tag)
    assert caught.value.field == "language"


@given(st.text())
def test_a_code_means_itself(tag: str) -> None:
    try:
        code = language_of(tag)
    except ProtocolError:
        return
    assert language_of(code) == code


def test_engines_go_by_the_same_codes() -> None:
    assert [code for code in LANGUAGES if language_of(code) != code] == []


def _deepgram(tag: str) -> str | None:
    return deepgram.wishes_of(
        Query.parse(f"encoding=linear16&sample_rate=16000&language={tag}")
    ).start.language


def _bot(tag: str) -> str | None:
    return bots.wishes_of(Query.parse(f"language={tag}")).language


def _realtime(tag: str) -> str | None:
    return openai_session._language({"language": tag})


@pytest.mark.parametrize("read", [_deepgram, _bot, _realtime])
def test_every_dialect_reads_them_alike(read: Callable[[str], str | None]) -> None:
    assert [read(tag) for tag in ("nb_NO", "iw", "en-GB")] == ["no", "he", "en"]


def test_a_language_that_the_engine_knows_by_todays_name_is_taken() -> None:
    async def body(world: World) -> None:
        old, other = world.client(), world.client()
        old.say({**START, "language": "nb"}, s16(speech("xx..")), END)
        other.say({**START, "language": "de"})
        await world.all_done()
        assert old.sent[0]["language"] == "no"
        assert {segment["language"] for segment in old.of("segment")} == {"no"}
        assert committed(old) == expected("xx..")
        assert other.sent[0]["code"] == "unsupported_language"

    serving(body, FakeScript(languages=("no", "en")))
