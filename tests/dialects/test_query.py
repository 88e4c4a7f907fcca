"""Queries and JSON of others' making."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.dialects.lenient import DEPTH, HOTWORDS, hotwords_of, json_of
from streaming.dialects.query import Query
from streaming.wire.errors import ProtocolError
from streaming.wire.language import languages_of


def test_values_and_what_nobody_asked_for() -> None:
    query = Query.parse("a=1&b=True&c=x&c=y&d=&e=%C3%BC+1&rest=1&more")
    assert list(query.unread) == ["a", "b", "c", "d", "e", "rest", "more"]
    assert query.integer("a", 5, 0, 9) == 1
    assert query.flag("b")
    assert query.texts("c") == ["x", "y"]
    assert query.text("c") == "y"
    assert query.text("d") is None
    assert query.text("e") == "ü 1"
    assert list(query.unread) == ["rest", "more"]
    assert query.number("missing", 2.5, 0, 9) == 2.5
    assert not query.flag("missing")
    assert query.texts("missing") == []


@pytest.mark.parametrize("yes", ["true", "True", "TRUE", "1", "yes", "on"])
@pytest.mark.parametrize("no", ["false", "False", "0", "no", "off"])
def test_flags_in_any_spelling(yes: str, no: str) -> None:
    query = Query([("yes", yes), ("no", no)])
    assert query.flag("yes", default=False)
    assert not query.flag("no", default=True)


@pytest.mark.parametrize("wrong", ["x", "nan", "inf", "-1", "10", "1e9", "9" * 5000, "1_0", "\x00"])
def test_a_wrong_value_is_told_with_its_name_and_what_may_be(wrong: str) -> None:
    for read in (Query.integer, Query.number):
        with pytest.raises(ProtocolError) as told:
            read(Query([("n", wrong)]), "n", 5, 0, 9)
        assert told.value.field == "n"
        assert "use 0 to 9" in told.value.message
        assert len(told.value.message) < 200
    with pytest.raises(ProtocolError, match="use true or false"):
        Query([("n", "maybe")]).flag("n")


@given(st.binary(max_size=200))
def test_any_query_is_read(raw: bytes) -> None:
    query = Query.parse(raw.decode("latin-1"))
    for name in query.unread:
        query.texts(name)
    assert query.unread == ()


@pytest.mark.parametrize("wrong", ["", "[]", "1", "{", "\ud800", "[" * 100_000, b"\xff", '{"a": NaN}'])
def test_what_is_no_object_is_told(wrong: str | bytes) -> None:
    with pytest.raises(ProtocolError, match="JSON object"):
        json_of(wrong)


@pytest.mark.parametrize("nest", ['{"a":%s}', '{"a":[%s]}', '{"a":1,"b":[[%s]]}'])
def test_what_is_nested_without_end_is_refused(nest: str) -> None:
    """What can be read could not be written again: `session.updated` says what it was told."""
    assert json_of(nest % "{}")
    text = "{}"
    for _ in range(DEPTH):
        text = nest % text
    with pytest.raises(ProtocolError, match="deeper"):
        json_of(text)
    with pytest.raises(ProtocolError, match=r"deeper|no JSON"):
        json_of('{"a":' + "[" * 100_000 + "]" * 100_000 + "}")


def test_languages_to_expect_are_codes_each_once() -> None:
    assert languages_of(["en-US", "cmn", "EN", "", None, "de_AT"]) == ("en", "zh", "de")
    with pytest.raises(ProtocolError, match=r"^detect_language: English: use an ISO 639") as wrong:
        languages_of(["en", "English"], "detect_language")
    assert wrong.value.field == "detect_language"
    with pytest.raises(ProtocolError, match=r"^languages: 17 are too many: use at most 16"):
        languages_of(f"a{chr(97 + n)}" for n in range(17))


def test_hotwords_are_what_a_session_takes() -> None:
    words = ["a", " a ", "", 3, None, "x" * 65, *(f"w{n}" for n in range(300))]
    found = hotwords_of(words)
    assert found[:3] == ("a", "w0", "w1")
    assert len(found) == HOTWORDS
