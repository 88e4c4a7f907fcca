"""Words where the script has spaces, characters where it has none."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.units import Unit, is_unspaced, is_wordless, split_units


def units(*pieces: str) -> list[Unit]:
    return split_units([piece.encode() for piece in pieces])


def texts(*pieces: str) -> list[str]:
    return [unit.text for unit in units(*pieces)]


def read(found: list[Unit]) -> str:
    return "".join(f" {unit.text}" if unit.space else unit.text for unit in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" Hello, world.", ["Hello,", "world."]),
        (" don't (stop) now... U.S. 3.5%", ["don't", "(stop)", "now...", "U.S.", "3.5%"]),
        (' he said "yes" - twice', ["he", "said", '"yes" -', "twice"]),
        (" Ça va ?", ["Ça", "va ?"]),
        (" ¿Qué tal?", ["¿Qué", "tal?"]),
        ("今天,我用iPhone 15手机。", ["今", "天,", "我", "用", "iPhone", "15", "手", "机。"]),
        ("「你好」吗?", ["「你", "好」", "吗?"]),
        ("น้ำดี", ["น้ำ", "ดี"]),
        (" 안녕하세요 여러분.", ["안녕하세요", "여러분."]),
        (", it was", [",", "it", "was"]),
        ("keeper of", ["keeper", "of"]),
        (" 👩‍👩‍👧 ok", ["👩‍👩‍👧", "ok"]),
    ],
)
def test_units_of(text: str, expected: list[str]) -> None:
    found = units(text)
    assert [unit.text for unit in found] == expected
    assert read(found) == text


def test_a_word_spans_its_tokens_and_the_space_before_costs_nothing() -> None:
    assert units(" shop", "keeper", " says") == [
        Unit("shopkeeper", True, 0.0, 2.0),
        Unit("says", True, 2.0, 3.0),
    ]


def test_two_words_of_one_token_share_its_time_letter_by_letter() -> None:
    assert units(" ab cde") == [Unit("ab", True, 0.0, 2 / 6), Unit("cde", True, 3 / 6, 1.0)]


def test_only_the_first_letter_behind_a_joiner_clings_to_it() -> None:
    assert texts("天\u200d", "aa", "好") == ["天\u200da", "a", "好"]


def test_characters_share_a_token_or_need_several() -> None:
    first, second = "今天".encode(), "好".encode()
    found = split_units([first, second[:1], second[1:]])
    assert [(u.text, u.start, u.end) for u in found] == [("今", 0.0, 0.5), ("天", 0.5, 1.0), ("好", 1.0, 3.0)]


def test_bytes_that_never_become_a_character_vanish() -> None:
    assert [u.text for u in split_units([b" a", b"\xe4\xbd", b" b"])] == ["a", "b"]


def test_wordless() -> None:
    assert is_wordless(" . ... ♪ ")
    assert not is_wordless(". 5")


letters = st.text(st.sampled_from("ab1 ,.?!'\"-(ü你好。、「」ดีก็ñ한é"), max_size=40)


@given(letters, st.lists(st.integers(0, 120), max_size=10))
def test_joining_gives_the_text_back_whatever_the_tokens(text: str, cuts: list[int]) -> None:
    data = text.encode()
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    found = split_units([data[a:b] for a, b in pairwise(edges)])
    assert read(found).split() == text.split()
    assert [unit.text for unit in found] == [unit.text for unit in split_units([data])]
    ends = [0.0]
    for unit in found:
        assert ends[-1] <= unit.start <= unit.end <= len(edges) - 1
        ends.append(unit.end)
        assert unit.text == unit.text.strip()
        letters_of = [c for c in unit.text if is_unspaced(c) and c.isalpha()]
        assert len(letters_of) <= 1 or "ด" in unit.text or "ก" in unit.text
