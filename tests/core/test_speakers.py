"""Who speaks, from vectors of known people."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.contract import LocalSpeaker, SpeakerWindow, Vector
from streaming.core.clustering import NEVER, agglomerate
from streaming.core.speakers import Linker, LinkerSettings

from .synthetic import Turns, conversation, hear, samples, voice, windows

CELL = 0.1


def link(heard: list[SpeakerWindow], settings: LinkerSettings | None = None) -> Linker:
    linker = Linker(settings or LinkerSettings())
    for window in heard:
        linker.hear(window)
    return linker


def labels(linker: Linker, start: float, end: float) -> list[int | None]:
    """The speaker of each tenth of a second."""
    cells = np.arange(start, end, CELL)
    return [linker.who(samples(t), samples(t + CELL)).speaker for t in cells]


def who_is_who(linker: Linker, turns: Turns) -> dict[int, Counter[int | None]]:
    """Person -> how many seconds' tenths of theirs each speaker has."""
    found: dict[int, Counter[int | None]] = {}
    for start, end, person in turns:
        found.setdefault(person, Counter()).update(labels(linker, start, end))
    return found


def test_a_conversation_of_three() -> None:
    turns = [(0.0, 4.0, 7), (4.5, 8.0, 8), (8.0, 9.2, 7), (9.5, 14.0, 9), (14.5, 17.0, 8)]
    linker = link(windows(turns))
    assert [linker.who(samples(a), samples(b)).speaker for a, b, _ in turns] == [1, 2, 1, 3, 2]
    assert linker.count == 3
    assert linker.changes(0, samples(9.0)) == (samples(4.25), samples(8.0))
    assert [(t.start, t.end, t.speaker) for t in linker.turns(0, samples(5))] == [
        (0, samples(4.0), 1),
        (samples(4.5), samples(5.0), 2),
    ]


def test_it_is_right_about_nearly_everything() -> None:
    turns = conversation([1, 2, 3, 4], 120, seed=3)
    linker = link(windows(turns))
    found = who_is_who(linker, turns)
    right = sum(max(counts.values()) for counts in found.values())
    assert right / sum(sum(counts.values()) for counts in found.values()) > 0.93
    speakers = [counts.most_common(1)[0][0] for counts in found.values()]
    assert sorted(map(str, speakers)) == ["1", "2", "3", "4"]


def test_too_little_evidence_is_unknown_and_an_older_voice_is_better_than_none() -> None:
    linker = link(windows([(0.0, 6.0, 1), (6.5, 7.7, 2)]))
    assert linker.who(samples(1), samples(2)).speaker == 1
    assert linker.who(samples(6.6), samples(7.6)) == replace(linker.who(0, 1), speaker=None, score=None)
    assert linker.count == 1
    # A voice as far from anybody as another telephone makes it, but nearest to the first speaker.
    other = voice(50) - (voice(50) @ voice(1)) * voice(1)
    tired = 0.52 * voice(1) + 0.854 * other / np.linalg.norm(other)
    odd = LocalSpeaker(((samples(8.0), samples(8.8)),), tired / np.linalg.norm(tired), samples(0.8))
    linker.hear(SpeakerWindow(samples(7.9), samples(9.0), (odd,)))
    assert linker.who(samples(8.0), samples(8.8)).speaker == 1
    assert linker.count == 1


def test_how_near_a_voice_must_be_to_be_lent_goes_with_the_encoder() -> None:
    """The same short voice, a little less like the speaker than `same` and much less."""
    other = voice(50) - (voice(50) @ voice(1)) * voice(1)
    near = 0.6 * voice(1) + 0.8 * other / np.linalg.norm(other)
    for same, speaker in ((0.45, 1), (0.65, 1), (0.75, None)):
        linker = link(windows([(0.0, 6.0, 1)], spread=0.01), LinkerSettings(same=same))
        linker.hear(SpeakerWindow(samples(7.9), samples(9.0), (one(8.0, 8.8, near),)))
        assert linker.who(samples(8.0), samples(8.8)).speaker == speaker, same


def test_short_words_of_a_stranger_add_up_over_an_hour() -> None:
    turns = [(0.0, 20.0, 1), *((at, at + 0.7, 2) for at in (100.0, 700.0)), (750.0, 760.0, 1)]
    assert link(windows(turns)).count == 1
    linker = link(windows([*turns, (1400.0, 1400.7, 2)]))
    assert linker.who(samples(1400.1), samples(1400.6)).speaker == 2


def test_a_voice_comes_back_as_itself_after_an_hour() -> None:
    turns = [(0.0, 5.0, 1), (5.5, 9.0, 2), *((t, t + 8.0, 3 + t % 3) for t in range(10, 3600, 10))]
    turns += [(3610.0, 3614.0, 2), (3615.0, 3618.0, 1)]
    linker = link(windows(turns, hop_s=5.0))
    assert linker.who(samples(3610.5), samples(3613)).speaker == 2
    assert linker.who(samples(3615.5), samples(3617.5)).speaker == 1
    assert linker.count == 5


def test_overlapped_speech_has_two_speakers_and_is_marked() -> None:
    turns = [(0.0, 4.0, 1), (4.2, 8.0, 2), (9.0, 13.0, 1), (10.0, 12.0, 2)]
    linker = link(windows(turns))
    assert linker.who(samples(10.1), samples(11.9)).overlap
    assert not linker.who(samples(9.1), samples(9.9)).overlap
    assert {t.speaker for t in linker.turns(samples(10.2), samples(11.8))} == {1, 2}


def test_two_voices_of_one_window_are_two_people_however_alike() -> None:
    twins = [
        LocalSpeaker(((samples(s), samples(e)),), voice(1), samples(e - s))
        for s, e in ((0.0, 3.0), (3.0, 6.0))
    ]
    linker = link([SpeakerWindow(0, samples(6.0), tuple(twins))])
    assert [linker.who(samples(a), samples(a + 2)).speaker for a in (0.5, 3.5)] == [1, 2]


def test_frozen_speakers_stay_two_whoever_sounds_like_both() -> None:
    linker = link(windows([(0.0, 5.0, 1), (5.5, 9.0, 2)]))
    linker.freeze(linker.heard)
    both = voice(1) + voice(2)
    between = LocalSpeaker(((samples(12), samples(16)),), both / np.linalg.norm(both), samples(4))
    linker.hear(SpeakerWindow(samples(10), samples(16), (between,)))
    assert linker.count == 2
    assert linker.who(samples(6), samples(8)).speaker == 2


def test_a_frozen_number_is_not_given_again() -> None:
    linker = link(windows([(0.0, 5.0, 1), (5.5, 9.0, 2)]), LinkerSettings(remember_s=600))
    linker.freeze(linker.heard)
    for at, person in ((100, 3), (200, 4)):
        linker.hear(hear([(at, at + 5.0, person)], at, at + 6.0, np.random.default_rng(0)))
    assert [linker.who(samples(t), samples(t + 2)).speaker for t in (1, 6, 101, 201)] == [1, 2, 3, 4]


def one(at: float, end: float, vector: Vector, *, active: float | None = None) -> LocalSpeaker:
    """A local voice heard from `active` (`at`) to `end`."""
    start = at if active is None else active
    unit = (vector / np.linalg.norm(vector)).astype(np.float32)
    return LocalSpeaker(((samples(start), samples(end)),), unit, samples(end - at))


def test_a_long_window_that_took_two_for_one_does_not_outvote_those_that_heard_two() -> None:
    """The second one's three seconds, heard apart by three windows, and by two as part of the first's."""
    linker = Linker(LinkerSettings())
    for start in (0.0, 0.5, 1.0):
        linker.hear(
            SpeakerWindow(
                samples(start),
                samples(10.0),
                (one(start, 6.0, voice(1)), one(6.0, 9.0, voice(2))),
            )
        )
    for start in (0.8, 0.9):
        mixed = voice(1) + 0.7 * voice(2)
        linker.hear(SpeakerWindow(samples(start), samples(10.0), (one(start, 9.0, mixed),)))
    assert set(labels(linker, 1.0, 5.9)) == {1}
    assert set(labels(linker, 6.1, 8.9)) == {2}


def test_a_vector_of_two_voices_does_not_outvote_those_of_one() -> None:
    """Three windows took both for one, whose vector is a little like the second's; three know them apart."""
    first, second, neither = np.eye(3, 64, dtype=np.float32)
    mixed = 0.2 * first + 0.48 * second + 0.85 * neither
    linker = Linker(LinkerSettings())
    for n in range(3):
        apart = one(0.0, 2.5, first), one(2.5, 5.0, second)
        linker.hear(SpeakerWindow(0, samples(9.0 + n), apart))
        linker.hear(SpeakerWindow(0, samples(9.0 + n), (one(0.0, 5.0, mixed),)))
    for n in range(12):
        linker.hear(SpeakerWindow(samples(11.0), samples(20.0 + n / 10), (one(11.0, 20.0, second),)))
    assert linker.count == 2
    assert set(labels(linker, 0.1, 2.4)) == {1}
    assert set(labels(linker, 2.6, 4.9)) == {2}


def test_a_voice_that_changes_slowly_is_followed() -> None:
    """After a quarter of an hour, in five minutes from one voice to another."""
    linker = Linker(LinkerSettings(weight_s=20.0))
    for step in range(120):
        share = max(0, step - 90) / 30
        local = one(10 * step, 10 * step + 9, (1 - share) * voice(1) + share * voice(2))
        linker.hear(SpeakerWindow(samples(10 * step), samples(10 * step + 10), (local,)))
    assert linker.count == 1


def test_which_of_two_alike_is_the_known_one_does_not_depend_on_their_order() -> None:
    twins = one(20, 23, voice(1)), one(24, 27, voice(1))
    found = set()
    for speakers in (twins, twins[::-1]):
        linker = link([SpeakerWindow(0, samples(10), (one(0, 9, voice(1)),))])
        linker.freeze(samples(10))
        linker.hear(SpeakerWindow(samples(18), samples(28), speakers))
        found.add(tuple(linker.who(samples(t), samples(t + 1)).speaker for t in (21, 25)))
    assert len(found) == 1
    assert set(*found) == {1, 2}


def test_a_frozen_label_holds_its_speaker_though_the_evidence_came_after() -> None:
    """Somebody begins under another: the label before the border rests on what they say after it. Speech that
    then sounds like both people would make one of them, were the second not frozen with the label."""
    first, second = np.eye(2, 64, dtype=np.float32)
    linker = link([SpeakerWindow(0, samples(10), (one(0, 9, first),))])
    mixed = 0.4 * first + 0.9165 * second
    under = LocalSpeaker(((samples(20), samples(22)),), None, 0)
    linker.hear(SpeakerWindow(samples(15), samples(25), (under, one(22, 24.5, mixed, active=20))))
    assert linker.who(samples(20.2), samples(21.8)).speaker == 2
    linker.freeze(samples(21))
    linker.hear(SpeakerWindow(samples(25), samples(35), (one(26, 34, 0.75 * first + 0.66 * second),)))
    assert linker.who(samples(20.2), samples(20.8)).speaker == 2
    assert linker.who(samples(22.5), samples(24)).speaker == 2
    assert linker.count == 2


def test_a_word_beside_the_speech_has_the_speaker_of_the_speech() -> None:
    linker = link(windows([(1.0, 4.0, 1)]))
    assert linker.who(samples(0.6), samples(0.9)).speaker == 1
    assert linker.who(samples(4.1), samples(4.4)).speaker == 1
    assert linker.who(samples(6.0), samples(6.3)).speaker is None


def test_enrolled_voices_are_named_and_a_given_name_stays() -> None:
    linker = Linker(LinkerSettings())
    linker.know("Ann", voice(1))
    linker.know("Ben", voice(9))
    for window in windows([(0.0, 5.0, 2), (5.5, 9.0, 1)]):
        linker.hear(window)
    assert {speaker: name for speaker, (name, _) in linker.names.items()} == {2: "Ann"}
    assert linker.names[2][1] == pytest.approx(0.93, abs=0.05)
    linker.rename(1, "Cleo")
    linker.hear(hear([(20.0, 24.0, 1)], 15.0, 25.0, np.random.default_rng(0)))
    assert linker.names[1] == ("Cleo", 1.0)
    assert linker.names[2][0] == "Ann"
    with pytest.raises(KeyError):
        linker.rename(3, "Nobody")


def test_a_named_number_whose_voice_was_another_one_after_all_is_given_to_nobody() -> None:
    """Readers call whoever has the number by its name: a newcomer would bear that of somebody else."""
    first, second, newcomer = np.eye(3, 64, dtype=np.float32)
    linker = link([SpeakerWindow(0, samples(6), (one(0, 4, first),))])
    apart = 0.4 * first + 0.9165 * second
    linker.hear(SpeakerWindow(0, samples(10), (one(6.5, 8.5, apart),)))
    linker.rename(2, "Ada")
    linker.hear(SpeakerWindow(0, samples(20), (one(10, 19, first + apart),)))
    assert (linker.count, linker.names) == (1, {})  # both were one person
    for end in (24, 28):
        linker.hear(SpeakerWindow(samples(20), samples(end), (one(20, end - 1, newcomer),)))
    assert linker.who(samples(21), samples(22)).speaker == 3


def test_who_was_shown_may_be_named_though_the_voice_was_another_one_after_all() -> None:
    """What a client says of a number that it saw a moment ago is no fault of its own."""
    first, second = np.eye(2, 64, dtype=np.float32)
    apart = 0.4 * first + 0.9165 * second
    linker = link([SpeakerWindow(0, samples(6), (one(0, 4, first),))])
    linker.hear(SpeakerWindow(0, samples(10), (one(6.5, 8.5, apart),)))
    linker.hear(SpeakerWindow(0, samples(20), (one(10, 19, first + apart),)))
    assert linker.count == 1
    linker.rename(2, "Ada")
    linker.hear(SpeakerWindow(samples(20), samples(28), (one(20, 27, np.eye(3, 64)[2]),)))
    assert linker.who(samples(21), samples(22)).speaker == 3, "nobody else is called Ada"
    for nobody in (0, 9):
        with pytest.raises(KeyError):
            linker.rename(nobody, "Eve")


def test_numbers_come_in_order_of_appearance() -> None:
    turns = [(6.0 * i, 6.0 * i + 5.0, 30 - i) for i in range(25)]
    linker = link(windows(turns))
    found = who_is_who(linker, turns[-10:])
    assert linker.count == 25
    assert [found[p].most_common(1)[0][0] for _, _, p in turns[-10:]] == list(range(16, 26))


def test_clusters_join_by_the_mean_of_all_pairs_and_never_against_a_ban() -> None:
    near = np.array([[1, 0.8, 0.5], [0.8, 1, 0.3], [0.5, 0.3, 1]], dtype=np.float32)
    weights = np.array([1, 3, 1], dtype=np.float32)
    # (1 * 0.5 + 3 * 0.3) / 4 = 0.35
    assert agglomerate(near, weights, 0.34).tolist() == [0, 0, 0]
    assert agglomerate(near, weights, 0.36).tolist() == [0, 0, 2]
    near[1, 2] = near[2, 1] = NEVER
    assert agglomerate(near, weights, 0.1).tolist() == [0, 0, 2]


meetings = st.builds(
    conversation,
    people=st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True),
    length_s=st.floats(10, 90),
    seed=st.integers(0, 10_000),
    turn_s=st.floats(0.6, 6.0),
)


@settings(max_examples=30)
@given(
    turns=meetings,
    revise=st.floats(2.0, 20.0),
    hop=st.floats(0.7, 4.0),
    more=st.floats(0.0, 5.0),
    spread=st.sampled_from([0.5, 1.2]),
)
def test_frozen_labels_never_change(
    turns: Turns, revise: float, hop: float, more: float, spread: float
) -> None:
    """Also where vectors are so unsure (`spread`) that clusters come and go."""
    linker = Linker(LinkerSettings(revise_s=revise))
    shown: list[int | None] = []
    for window in windows(turns, hop_s=hop, spread=spread):
        linker.hear(window)
        linker.freeze(window.end - samples(revise) + samples(more))
        assert linker.frozen >= window.end - samples(revise)
        until = linker.frozen / 16_000
        now = labels(linker, 0, until - CELL)
        assert now[: len(shown)] == shown
        shown = now
        present = pickle.loads(pickle.dumps(linker))
        for speaker in {n for n in shown if n}:
            present.rename(speaker, "somebody")  # a number once frozen is somebody's for good


@settings(max_examples=15)
@given(turns=meetings, seed=st.integers(0, 1000), spread=st.sampled_from([0.0, 0.5, 1.2]))
def test_the_order_of_local_voices_means_nothing(turns: Turns, seed: int, spread: float) -> None:
    """Also where all vectors of a person are equal (`spread` 0), so that only order could decide."""
    heard = windows(turns, spread=spread)
    rng = np.random.default_rng(seed)
    mixed = [
        replace(window, speakers=tuple(window.speakers[i] for i in rng.permutation(len(window.speakers))))
        for window in heard
    ]
    end = heard[-1].end
    assert link(heard).turns(0, end) == link(mixed).turns(0, end)


@settings(max_examples=30)
@given(people=st.integers(1, 30), seed=st.integers(0, 100))
def test_speakers_are_as_many_as_there_are_people(people: int, seed: int) -> None:
    turns = [(5.0 * i, 5.0 * i + 4.0, 1000 * seed + i) for i in range(people)]
    assert link(windows(turns, seed=seed)).count == people


def test_memory_does_not_grow_with_the_meeting() -> None:
    turns = conversation(range(20), 8 * 3600, seed=1, turn_s=20.0)
    linker = Linker(LinkerSettings())
    sizes = []
    noise = np.random.default_rng(0)
    for end in range(20, 8 * 3600 + 1, 20):
        near = [turn for turn in turns[max(0, end // 25 - 200) : end // 15 + 200] if turn[1] > end - 20]
        linker.hear(hear(near, end - 10, end, noise))
        if end % 3600 == 0:
            sizes.append(len(pickle.dumps(linker)))
    assert linker.count == 20
    assert max(sizes) < 256 * 1024
    assert sizes[-1] < 1.3 * sizes[1]


def test_very_many_windows_freeze_what_cannot_be_kept() -> None:
    turns = conversation([1, 2, 3], 16, seed=2)
    linker = Linker(LinkerSettings())
    sizes = []
    for window in windows(turns, hop_s=0.1):
        linker.hear(window)
        sizes.append(len(pickle.dumps(linker)))
    assert linker.frozen > 0
    assert max(sizes) < 512 * 1024
