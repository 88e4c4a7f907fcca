"""P9: whole characters only, whatever the pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.utf8 import MAX_HOLD, REPLACEMENT, Utf8Assembler

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=REPLACEMENT))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


def test_a_character_waits_for_its_last_byte() -> None:
    assembler = Utf8Assembler()
    assert assembler.feed(b"caf\xc3") == "caf"
    assert assembler.held == 1
    assert assembler.feed(b"\xa9 \xe4\xbd") == "é "
    assert assembler.feed(b"\xa0") == "你"
    assert assembler.flush() == 0


def test_a_broken_sequence_is_dropped_and_counted_not_replaced() -> None:
    assembler = Utf8Assembler()
    assert assembler.feed(b"a\xe4\xbdb") == "ab"
    assert assembler.feed(b"\xff\xc3") == ""
    assert assembler.flush() == 1
    assert assembler.dropped == 4


def test_a_replacement_character_that_a_model_spells_is_dropped() -> None:
    assembler = Utf8Assembler()
    out = assembler.feed(b"x\xef\xbf") + assembler.feed(b"\xbdy")
    assert out == "xy"
    assert assembler.dropped == 3


@given(texts, st.lists(st.integers(0, 400), max_size=12))
def test_any_split_of_valid_text_gives_the_text(text: str, cuts: list[int]) -> None:
    assembler = Utf8Assembler()
    out = [assembler.feed(piece) for piece in pieces(text.encode(), cuts)]
    assert "".join(out) == text
    assert assembler.flush() == assembler.dropped == 0


@given(st.lists(st.binary(max_size=7), max_size=20))
def test_any_bytes_give_valid_text_and_every_byte_is_accounted_for(parts: list[bytes]) -> None:
    assembler = Utf8Assembler()
    out = ""
    for part in parts:
        fresh = assembler.feed(part)
        assert REPLACEMENT not in fresh
        assert assembler.held <= MAX_HOLD
        out += fresh
    assembler.flush()
    assert len(out.encode()) + assembler.dropped == sum(map(len, parts))


@given(st.lists(st.binary(max_size=7), max_size=20))
def test_the_split_does_not_matter_even_for_broken_bytes(parts: list[bytes]) -> None:
    split, whole = Utf8Assembler(), Utf8Assembler()
    assert "".join(split.feed(part) for part in parts) == whole.feed(b"".join(parts))
    assert split.held == whole.held
