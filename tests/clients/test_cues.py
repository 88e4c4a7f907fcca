"""Pop-on captions by the numbers of those who make them: width, time, reading speed, where they break."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from streaming.wire.cues import (
    COLUMNS_A_SECOND,
    CUE_LINES,
    LINE_COLUMNS,
    LONGEST_MS,
    OVERHANG_MS,
    SHORTEST_MS,
    Cue,
    blocks,
    timed,
)
from streaming.wire.lines import HANGING, columns
from streaming.wire.messages import Word

from .build import words


def cued(text: str, each_ms: int = 300, speaker: str | None = None) -> list[Cue]:
    return timed(blocks(words(text, each_ms=each_ms), speaker))


def chinese(text: str) -> tuple[Word, ...]:
    return tuple(Word(c, i * 200, i * 200 + 180, space=False) for i, c in enumerate(text))


def test_what_fits_a_line_stands_on_one() -> None:
    (cue,) = cued("It was the best of times,")
    assert cue.lines == ("It was the best of times,",)


def test_a_line_breaks_behind_punctuation() -> None:
    (cue,) = cued("It was late, and nobody of those who knew her came.")
    assert cue.lines == ("It was late,", "and nobody of those who knew her came.")


def test_else_before_a_conjunction_or_preposition_and_never_behind_an_article() -> None:
    (cue,) = cued("We walked the whole way home from the old station hand in hand")
    assert cue.lines == ("We walked the whole way home", "from the old station hand in hand")
    (cue,) = cued("Somebody had already opened every last big heavy window")
    assert cue.lines == ("Somebody had already opened", "every last big heavy window")


def test_blocks_break_where_a_sentence_ends() -> None:
    first, second = cued(
        "This is how the story of that long summer began for us all."
        " Nobody had told them what to expect there.",
        each_ms=250,
    )
    assert " ".join(first.lines) == "This is how the story of that long summer began for us all."
    assert " ".join(second.lines) == "Nobody had told them what to expect there."


def test_wide_scripts_have_shorter_lines_and_none_begins_with_a_full_stop() -> None:
    (cue,) = blocks(chinese("今天天气很好我们一起去公园散步吧。然后回家吃饭。"), None)
    assert cue.lines == ("今天天气很好我们一起去公园散步吧。", "然后回家吃饭。")
    for cue in blocks(chinese("きょうはてんきがいいのでこうえんにいきましょう。" * 4), None):
        assert max(map(columns, cue.lines)) <= 26 + HANGING
        assert not any(line.startswith("。") for line in cue.lines)


def test_the_first_line_leaves_room_for_the_name() -> None:
    for cue in cued("one two three four five six seven eight nine ten eleven twelve", speaker="Dr. Ada King"):
        assert columns(f"Dr. Ada King: {cue.lines[0]}") <= LINE_COLUMNS


def test_a_cue_stays_as_long_as_reading_takes_where_there_is_room() -> None:
    fast = words("internationalization notwithstanding", each_ms=200)
    (alone,) = timed(blocks(fast, None))
    assert alone.end_ms - alone.start_ms == 36 * 1000 // COLUMNS_A_SECOND
    first, second = timed([*blocks(fast, None), *blocks(words("No.", 900), None)])
    assert first.end_ms == second.start_ms == 900
    assert second.end_ms - second.start_ms == SHORTEST_MS


def test_short_gaps_are_closed_and_long_ones_left() -> None:
    one, two, three = timed([Cue(at, at + 900, ("Yes, of course",), None) for at in (0, 1500, 5000)])
    assert (one.end_ms, two.end_ms) == (1500, 2400)
    assert three.end_ms == 5900


SPOKEN = st.lists(
    st.tuples(
        st.sampled_from(
            ["a", "the", "of", "word", "and", "yes.", "well,", "extraordinarily", "天", "の", "。"]
        ),
        st.integers(0, 900),
        st.integers(20, 1200),
    ),
    min_size=1,
    max_size=80,
)


@given(SPOKEN, st.sampled_from([None, "Ada", "A very long name of somebody who speaks"]))
def test_cues_lose_no_word_and_keep_the_numbers(
    spoken: list[tuple[str, int, int]], speaker: str | None
) -> None:
    at, said = 0, []
    for text, gap, length in spoken:
        said.append(Word(text, at + gap, at + gap + length))
        at += gap + length
    found = timed(blocks(said, speaker))
    assert " ".join(line for cue in found for line in cue.lines).split() == [word.text for word in said]
    ends = {word.end_ms for word in said}
    for cue in found:
        assert len(cue.lines) <= CUE_LINES
        assert max(map(columns, cue.lines)) <= LINE_COLUMNS + HANGING
        assert 0 < cue.end_ms - cue.start_ms <= LONGEST_MS
        assert min(abs(cue.end_ms - end) for end in ends) <= OVERHANG_MS
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(found))
