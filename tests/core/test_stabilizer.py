"""What is safe to commit: two votes, a hold near the end, a deadline."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.contract import Word
from streaming.core.stabilizer import Horizons, Stabilizer, agreed, key

FAR = Horizons(sure=10**9, doubtful=10**9, due=-1, confidence=0.6)


def words(text: str, confidence: float | None = None) -> list[Word]:
    """One word a second."""
    return [Word(t, i * 16_000, (i + 1) * 16_000, confidence=confidence) for i, t in enumerate(text.split())]


def text(committed: tuple[Word, ...]) -> str:
    return " ".join(w.text for w in committed)


def test_a_word_needs_two_votes_and_a_follower() -> None:
    stabilizer = Stabilizer()
    assert text(stabilizer.observe(words("we were going"), FAR)) == ""
    assert text(stabilizer.observe(words("we were growing up"), FAR)) == "we were"
    assert text(stabilizer.tail) == "growing up"


def test_the_newest_spelling_wins_and_punctuation_is_no_disagreement() -> None:
    stabilizer = Stabilizer()
    stabilizer.observe(words("hello world again"), FAR)
    assert text(stabilizer.observe(words("Hello, World again"), FAR)) == "Hello, World"


def test_words_near_the_end_wait_and_doubtful_ones_wait_longer() -> None:
    stabilizer = Stabilizer()
    horizons = Horizons(sure=3 * 16_000, doubtful=16_000, due=-1, confidence=0.6)
    stabilizer.observe(words("one two three four", 0.9), horizons)
    assert text(stabilizer.observe(words("one two three four", 0.9), horizons)) == "one two three"
    stabilizer = Stabilizer()
    stabilizer.observe(words("one two three four", 0.3), horizons)
    assert text(stabilizer.observe(words("one two three four", 0.3), horizons)) == "one"


def test_words_that_are_due_do_not_wait_for_a_vote() -> None:
    due = Horizons(sure=0, doubtful=0, due=2 * 16_000, confidence=0.6)
    assert text(Stabilizer().observe(words("never heard before"), due)) == "never heard"


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=6))
def test_nothing_is_committed_without_two_votes(hypotheses: list[list[str]]) -> None:
    stabilizer = Stabilizer()
    before: list[Word] = []
    for heard in hypotheses:
        now = words(" ".join(heard))
        committed = stabilizer.observe(now, FAR)
        assert len(committed) <= agreed(before, now)
        before = now[len(committed) :]


def test_keys_ignore_case_width_and_punctuation_but_not_letters() -> None:
    same = ["Can't", "cant,", "\uff23\uff21\uff2e\uff34"]
    assert {key(Word(t, 0, 1)) for t in same} == {"cant"}
    assert key(Word("\u4f60\u3002", 0, 1)) == key(Word("\u4f60", 0, 1))
    assert key(Word("!", 0, 1)) == "!"
