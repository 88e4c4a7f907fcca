"""Error counts, word matching, percentiles: the figures everything else is judged by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.bench.languages import script_share
from clients.bench.scoring import Errors, bare, matches, score
from clients.stats import Summary, summarize

LINES = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta"]), max_size=12)


@pytest.mark.parametrize(
    ("reference", "hypothesis", "language", "counts"),
    [
        ("MISTER HALE DON'T GO", "Mr. Hale, do not go!", "en", (0, 0, 0)),
        ("one hundred and five men", "105 men", "en", (0, 0, 0)),
        ("the cat sat down", "the hat sat", "en", (1, 1, 0)),
        ("", "you", "en", (0, 0, 1)),
        ("", "", "en", (0, 0, 0)),
        ("the cat", "", "en", (0, 2, 0)),
        ("Où est-ce, là ?", "où est ce là", "fr", (0, 0, 0)),
        ("歡迎大家。", "欢迎 大家", "zh", (0, 0, 0)),
        ("欢迎大家", "欢迎大", "zh", (0, 1, 0)),
        ("電柱に電球", "電柱に電気", "ja", (1, 0, 0)),
    ],
)
def test_what_counts_as_an_error(
    reference: str, hypothesis: str, language: str, counts: tuple[int, int, int]
) -> None:
    found = score(reference, hypothesis, language)
    assert (found.substitutions, found.deletions, found.insertions) == counts


def test_languages_without_spaces_are_counted_by_character() -> None:
    assert score("欢迎大家来", "欢迎大家来", "zh").length == 5


def test_errors_add_up_and_a_rate_is_never_an_average() -> None:
    long, short = Errors(1, 0, 0, 99), Errors(1, 0, 0, 1)
    assert (long + short).rate == pytest.approx(0.02)
    assert Errors(insertions=3).rate == 3


@given(LINES, LINES)
def test_counts_are_those_of_a_plain_edit_distance(said: list[str], heard: list[str]) -> None:
    row = list(range(len(heard) + 1))
    for i, word in enumerate(said, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    assert score(" ".join(said), " ".join(heard), "en").count == row[-1]


@given(LINES, LINES)
def test_matches_are_equal_words_in_order(mine: list[str], theirs: list[str]) -> None:
    found = matches(mine, theirs)
    assert all(mine[a] == theirs[b] for a, b in found.items())
    assert sorted(found.values()) == [found[key] for key in sorted(found)]
    assert len(set(found.values())) == len(found)
    if mine == theirs:
        assert found == {i: i for i in range(len(mine))}


def test_case_and_punctuation_do_not_part_words_and_dashes_match_nothing() -> None:
    assert bare("Don't,") == "dont"
    assert matches(["Well,", "-", "yes."], ["well", "-", "YES"]) == {0: 0, 2: 2}


@given(st.lists(st.floats(-10, 100), min_size=1))
def test_percentiles_are_values_that_were_measured(values: list[float]) -> None:
    found = summarize(values)
    assert {found.p50, found.p95, found.p99, found.max} <= set(values)
    assert found.p50 is not None
    assert sum(v <= found.p50 for v in values) * 2 >= len(values)
    assert found.max == max(values)
    assert found.count == len(values)


def test_nothing_measured_is_not_zero() -> None:
    assert summarize([]) == Summary()
    assert Summary().p50 is None


def test_shares_of_a_script() -> None:
    assert script_share("欢迎大家, OK", "zh") == pytest.approx(4 / 6)
    assert script_share("真っ昼間", "ja") == 1
    assert script_share("bonjour, été", "fr") == 1
    assert script_share("... 12", "fr") == 0
