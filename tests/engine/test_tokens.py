"""Token tables: bytes both ways, and a merge that a published file lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.tokens import FileTokens, byte_alphabet, merge
from engine.weights import find_weights

from .real import needs_weights

SAMPLE = (
    " It was the best of times, it was the worst of times; the twenty-third of March, 3.5% and"
    " don't. Ça va? 今天天气很好,我用iPhone。 สวัสดี 안녕 👩‍👩‍👧\n"
)


def model(name: str) -> tuple[FileTokens, list[tuple[str, str]], Path]:
    path = find_weights(name) / "tokenizer.json"
    body = json.loads(path.read_text("utf-8"))["model"]
    pairs = [m.split(" ") if isinstance(m, str) else m for m in body["merges"]]
    merges = [(str(a), str(b)) for a, b in pairs]
    return FileTokens.open(path), merges, path


def test_the_byte_alphabet_has_one_sign_a_byte() -> None:
    assert sorted(byte_alphabet().values()) == list(range(256))
    assert byte_alphabet()["Ġ"] == 0x20


def test_merging_takes_the_lowest_id_first() -> None:
    ranks = {"a": 0, "b": 1, "c": 2, "bc": 3, "ab": 4, "abc": 5}
    assert merge("abc", ranks) == ["abc"]
    assert merge("bca", ranks) == ["bc", "a"]


@needs_weights("tiny.en")
@pytest.mark.real
def test_encoding_is_the_librarys_where_the_file_is_whole() -> None:
    from tokenizers import Tokenizer

    tokens, _, path = model("tiny.en")
    assert (
        tokens.encode(SAMPLE) == Tokenizer.from_file(str(path)).encode(SAMPLE, add_special_tokens=False).ids
    )


@needs_weights("base")
@pytest.mark.real
def test_a_lost_merge_does_not_matter() -> None:
    tokens, merges, _ = model("base")
    assert ("Ġ", "t") not in merges
    assert [tokens.piece(token) for token in tokens.encode(" the times")] == [b" the", b" times"]


@needs_weights("base")
@pytest.mark.real
def test_text_survives_and_special_names_stay_plain_text() -> None:
    tokens, *_ = model("base")
    for text in (SAMPLE, " <|endoftext|> <|en|>"):
        ids = tokens.encode(text)
        assert b"".join(tokens.piece(token) for token in ids).decode() == text
        assert max(ids) < (tokens.id("<|endoftext|>") or 0)
    assert tokens.piece(tokens.id("<|startoftranscript|>") or 0) == b""


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    pytest.importorskip("tokenizers")
    with pytest.raises(ValueError, match=r"tokenizer\.json is not a readable tokenizer"):
        FileTokens.open(tmp_path / "tokenizer.json")
