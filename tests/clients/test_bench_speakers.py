"""Who spoke when: scores of hand-made cases, references, and the meeting put together from utterances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.audio import RATE
from clients.bench import meeting
from clients.bench.corpus import CorpusError
from clients.bench.speakers import live, merged
from clients.bench.speakers_refs import Recording, Spoken, read_rttm, read_stm, recordings
from clients.bench.speakers_scores import Der, counterparts, der, jer, word_errors
from engine.fake import FakeEncoder, say
from tests.support.server import server
from tests.support.sound import wav

AB = (Spoken(0, 10, "a"), Spoken(10, 20, "b"))


def close(found: Der, *expected: float) -> bool:
    return (found.missed, found.false_alarm, found.confusion, found.total) == pytest.approx(expected)


def test_der_counts_missed_false_alarm_and_confusion_apart() -> None:
    assert close(der(AB, [Spoken(0, 10, "2"), Spoken(10, 20, "1")]), 0, 0, 0, 20)
    # 2 s given to the other, 3 s missed, 1 s after the end
    heard = [Spoken(0, 12, "x"), Spoken(15, 21, "y")]
    assert close(der(AB, heard), 3, 1, 2, 20)
    # within 0.25 s of 0, 10 and 20 nothing counts
    assert close(der(AB, heard, collar_s=0.25), 3, 0.75, 1.75, 19)


def test_der_counts_overlapped_speech_for_each_speaker() -> None:
    both = (Spoken(0, 10, "a"), Spoken(6, 10, "b"))
    assert close(der(both, [Spoken(0, 10, "1")]), 4, 0, 0, 14)
    assert close(der(both, [Spoken(0, 10, "1"), Spoken(6, 10, "2")]), 0, 0, 0, 14)
    # only one counterpart each: the second label of the same voice is somebody else
    assert close(der((Spoken(0, 10, "a"),), [Spoken(0, 6, "1"), Spoken(6, 10, "2")]), 0, 0, 4, 10)


def test_jer_weighs_every_speaker_alike() -> None:
    assert jer(AB, [Spoken(0, 10, "1"), Spoken(10, 20, "2")]) == pytest.approx(0)
    assert jer(AB, [Spoken(0, 10, "1")]) == pytest.approx(0.5)
    # a: 10 of 12 s, b: 8 of 10 s
    assert jer(AB, [Spoken(0, 12, "1"), Spoken(12, 20, "2")]) == pytest.approx((2 / 12 + 2 / 10) / 2)
    assert counterparts(AB, [Spoken(0, 12, "1"), Spoken(12, 20, "2")]) == {"a": "1", "b": "2"}


turns = st.lists(
    st.tuples(st.integers(0, 40), st.integers(1, 10), st.sampled_from("abcd")).map(
        lambda t: Spoken(float(t[0]), float(t[0] + t[1]), t[2])
    ),
    min_size=1,
    max_size=8,
)


@given(turns, turns)
def test_der_ignores_what_speakers_are_called_and_nothing_beats_the_truth(
    said: list[Spoken], heard: list[Spoken]
) -> None:
    renamed = [Spoken(t.start_s, t.end_s, {"a": "d", "b": "a", "c": "b", "d": "c"}[t.speaker]) for t in heard]
    assert der(said, heard).rate == pytest.approx(der(said, renamed).rate)
    assert der(said, said).rate == 0
    assert jer(said, said) == pytest.approx(0)


def test_words_of_the_wrong_person_cost_cp_and_not_plain() -> None:
    said = [Spoken(0, 2, "a", "Hello there, Ann."), Spoken(2, 4, "b", "good morning")]
    right = [Spoken(0, 2, "1", "hello there ann"), Spoken(2, 4, "2", "Good morning!")]
    cp, plain = word_errors(said, right, "en")
    assert (cp.count, plain.count, cp.length, plain.length) == (0, 0, 5, 5)
    one = [Spoken(0, 4, "1", "hello there ann good morning")]
    cp, plain = word_errors(said, one, "en")
    assert (cp.count, plain.count) == (4, 0)
    cp, plain = word_errors(
        [Spoken(0, 2, "a", "你好。"), Spoken(2, 3, "b", "早")], [Spoken(0, 2, "1", "你好早")], "zh"
    )
    assert (cp.count, cp.length, plain.count) == (2, 3, 0)


def test_words_near_each_other_are_one_turn() -> None:
    words = [
        Spoken(0, 1, "1", "a"),
        Spoken(1.4, 2, "1", "b"),
        Spoken(3.1, 3.5, "1", "c"),
        Spoken(2, 2.5, "2", "d"),
    ]
    assert [(t.start_s, t.end_s, t.speaker) for t in merged(words)] == [
        (0, 2, "1"),
        (3.1, 3.5, "1"),
        (2, 2.5, "2"),
    ]


def test_references_are_read_and_broken_ones_named(tmp_path: Path) -> None:
    rttm, stm = tmp_path / "x.rttm", tmp_path / "x.stm"
    rttm.write_text("SPEAKER x 1 2.5 1.5 <NA> <NA> ann <NA> <NA>\nSPEAKER x 1 0 1 <NA> <NA> ben <NA> <NA>\n")
    stm.write_text(";; a comment\nx 1 ann 2.5 4.0 <o,f0,unknown> Well, yes.\n")
    assert read_rttm(rttm) == (Spoken(0, 1, "ben"), Spoken(2.5, 4.0, "ann"))
    assert read_stm(stm) == (Spoken(2.5, 4.0, "ann", "Well, yes."),)
    rttm.write_text("SPEAKER x 1 two 1.5 <NA> <NA> ann <NA> <NA>\n")
    with pytest.raises(CorpusError, match=r"x\.rttm:1 "):
        read_rttm(rttm)
    stm.write_text("x 1 ann\n")
    with pytest.raises(CorpusError, match=r"x\.stm:1 "):
        read_stm(stm)


def utterances(folder: Path, people: int) -> Path:
    """Tones of 1 s with 0.2 s of silence before and 0.3 s after, some for each person."""
    rows = ["path\tspeakers\tref_text\tlang\tduration_s"]
    for person in range(people):
        for number in range(2):
            name = f"librispeech-{person}-{number}.wav"
            tone = 8000 * np.sin(np.arange(16_000) * (0.05 + 0.01 * person))
            pcm = np.concatenate([np.zeros(3_200), tone, np.zeros(4_800)]).astype(np.int16)
            (folder / name).write_bytes(wav(pcm.tobytes()))
            rows.append(f"{name}\tp{person}\tword{person}{number}\ten\t1.5")
    (folder / "MANIFEST.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def test_a_meeting_is_what_its_references_say(tmp_path: Path) -> None:
    made = meeting.assemble(utterances(tmp_path, 6), seed=3, warn=pytest.fail)
    assert {turn.speaker for turn in made.turns} == {f"p{n}" for n in range(6)}
    whole = len(made.pcm) // 160 * 160
    loud = np.abs(made.pcm[:whole].astype(int).reshape(-1, 160)).max(axis=1) > 800
    said = np.zeros(len(loud), dtype=bool)
    for turn in made.turns:
        assert turn.end_s - turn.start_s == pytest.approx(1.0, abs=0.011)
        said[round(turn.start_s * 100) : round(turn.end_s * 100)] = True
    assert (loud == said).mean() > 0.98
    assert any(
        after.start_s < before.end_s for before, after in zip(made.turns, made.turns[1:], strict=False)
    )
    who, away_s = meeting.absence(made.turns)
    assert who == "p5"
    assert away_s > 0.15 * len(made.pcm) / 16_000
    again = meeting.assemble(tmp_path, seed=3, warn=pytest.fail)
    assert again.turns == made.turns
    meeting.write(made, tmp_path / "out")
    (found,) = recordings(tmp_path / "out", "meeting", pytest.fail)
    assert found.speakers == {f"p{n}" for n in range(6)}
    assert len(found.utterances) == len(made.turns)
    assert der(made.turns, found.turns).rate < 0.01


def test_a_meeting_takes_six(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="5 people"):
        meeting.assemble(utterances(tmp_path, 5), seed=1, warn=pytest.fail)


def test_no_reference_is_told(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="--select nothing"):
        recordings(utterances(tmp_path, 1), "nothing", pytest.fail)


@pytest.mark.e2e
async def test_of_a_server_its_words_and_its_turns_are_scored() -> None:
    """One falls in on the other: each word has one speaker, so that a second of one of them is missed."""
    audio = np.concatenate([say(3 * RATE, 0), say(RATE, 0, 1), say(3 * RATE, 1), np.zeros(RATE, np.float32)])
    turns = Spoken(0, 4, "Ann"), Spoken(3, 7, "Bo")
    recording = Recording("talk", (audio * 32767).astype(np.int16), "en", turns)
    async with server(services={"encoder": FakeEncoder()}) as running:
        words, heard = await live(running.http(""), recording, 20.0)
    assert (words.system, heard.system) == ("live", "rttm")
    assert heard.strict == Der(total=8.0)
    assert words.strict.missed == pytest.approx(1.0, abs=0.3)
    assert (words.count_error, heard.count_error, words.faults) == (0, 0, ())


def test_who_was_away_is_known_again_under_the_same_label_only() -> None:
    said = (Spoken(0, 10, "a"), Spoken(10, 15, "b"), Spoken(900, 905, "a"), Spoken(905, 915, "b"))

    def heard(*labels: str) -> list[Spoken]:
        return [Spoken(t.start_s, t.end_s, label) for t, label in zip(said, labels, strict=True)]

    assert meeting.returned(said, heard("1", "2", "1", "2"), 600) == meeting.Return("a", 890, "1", "1")
    for labels, known in (
        (("1", "2", "1", "2"), True),
        (("1", "2", "3", "2"), False),
        (("1", "2", "2", "2"), False),
        (("unknown", "2", "unknown", "2"), False),
        (("1", "2", "unknown", "2"), False),
    ):
        back = meeting.returned(said, heard(*labels), 600)
        assert back is not None
        assert back.known == known, labels
    assert meeting.returned(said, heard("1", "2", "1", "2"), 900) is None
    nothing = meeting.returned(said, [], 600)
    assert nothing is not None
    assert not nothing.known
