"""The small parts, each by example: gate, ring, seams, ledger, language, plausible words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.contract import FRAME, Voice, Word
from streaming.core.events import Cover
from streaming.core.gate import Activity, GateSettings, Paused, SpeechGate, Started
from streaming.core.language import LanguageTracker
from streaming.core.ledger import Ledger
from streaming.core.plausible import spoken
from streaming.core.ring import AudioRing
from streaming.core.seams import seam

GATE = GateSettings(on=0.5, off=0.35, onset=3 * FRAME, pause=10 * FRAME, pad=4 * FRAME)


def edges(pattern: str) -> list[Started | Paused]:
    """`#` is voiced, `+` only just, `c` only to the first stage, `n` only to the second, `.` not at all."""
    kinds = {
        "#": Voice(True, 0.9),
        "+": Voice(True, 0.4),
        "c": Voice(True, 0.1),
        "n": Voice(False, 0.9),
        ".": Voice(False, 0.0),
    }
    gate = SpeechGate(GATE)
    found = [edge for kind in pattern if (edge := gate.step(kinds[kind])) is not None]
    last = gate.close()
    return found + ([last] if last else [])


def test_speech_starts_padded_and_ends_after_a_pause() -> None:
    assert edges("." * 10 + "#" * 20 + "." * 12) == [Started(6 * FRAME), Paused(34 * FRAME, 30 * FRAME)]


def test_both_stages_must_agree_and_a_click_is_no_speech() -> None:
    assert edges("c" * 50 + "n" * 50 + ".##.##.") == []


def test_speech_goes_on_at_a_lower_threshold_than_it_starts() -> None:
    assert edges("+" * 20) == []
    assert edges("###" + "+" * 20)[-1] == Paused(23 * FRAME, 23 * FRAME)


@given(st.text(alphabet="#.", max_size=200))
def test_padded_spans_never_overlap_nor_leave_the_clock(pattern: str) -> None:
    at = 0
    for edge in edges(pattern):
        assert at <= edge.at <= len(pattern) * FRAME
        at = edge.at


def test_gate_settings_that_would_overlap_are_refused() -> None:
    with pytest.raises(ValueError, match="at most half"):
        GateSettings(on=0.5, off=0.4, onset=1, pause=3, pad=2)
    with pytest.raises(ValueError, match="off"):
        GateSettings(on=0.3, off=0.4, onset=1, pause=4, pad=2)


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 9000)), max_size=30))
def test_the_ring_gives_back_what_was_put_in(steps: list[tuple[int, int]]) -> None:
    ring, truth = AudioRing(), np.zeros(0, np.float32)
    for size, drop in steps:
        piece = np.arange(ring.end, ring.end + size, dtype=np.float32)
        ring.append(piece)
        truth = np.concatenate([truth, piece])
        ring.evict(ring.start + drop)
        assert np.array_equal(ring.copy(ring.start, ring.end), truth[ring.start : ring.end])


def test_the_ring_hands_out_copies_that_cannot_be_written_and_refuses_what_it_lacks() -> None:
    ring = AudioRing()
    ring.append(np.ones(100, np.float32))
    audio = ring.copy(10, 20)
    with pytest.raises(ValueError, match="read-only"):
        audio[0] = 2
    ring.evict(50)
    with pytest.raises(IndexError):
        ring.copy(40, 60)
    with pytest.raises(IndexError):
        ring.copy(60, 101)


def test_a_seam_is_the_quietest_place() -> None:
    ring = AudioRing()
    audio = np.ones(32_000, np.float32)
    audio[20_000:22_000] = 0.01
    ring.append(audio)
    assert 20_000 < seam(ring, 8_000, 32_000) < 22_000


def test_activity_counts_whole_frames_and_forgets() -> None:
    activity = Activity()
    for i in range(100):
        activity.append(voiced=i % 2 == 0)
    assert activity.voiced(0, 100 * FRAME) == 50 * FRAME
    activity.evict(50 * FRAME)
    assert activity.voiced(0, 100 * FRAME) == 25 * FRAME
    assert activity.voiced(98 * FRAME, 200 * FRAME) == FRAME


def test_the_ledger_tiles_and_merges() -> None:
    ledger = Ledger()
    ledger.cover(100, Cover.SILENCE)
    ledger.cover(100, Cover.TEXT)
    ledger.cover(200, Cover.SILENCE)
    ledger.cover(300, Cover.GAP, "engine")
    ledger.cover(400, Cover.GAP, "loop")
    assert [(s.start, s.end, s.cover, s.cause) for s in ledger.spans] == [
        (0, 200, Cover.SILENCE, None),
        (200, 300, Cover.GAP, "engine"),
        (300, 400, Cover.GAP, "loop"),
    ]
    with pytest.raises(ValueError, match="cause"):
        ledger.cover(500, Cover.GAP)


def test_a_language_is_adopted_once_clear_and_left_only_after_two_votes() -> None:
    tracker = LanguageTracker(None)
    tracker.vote("de", 0.9, 100, 0, 64_000)
    assert tracker.language is None
    tracker.vote("en", 0.9, 64_000, 0, 64_000)
    assert tracker.language == "en"
    tracker.vote("fr", 0.99, 64_000, 0, 64_000)
    tracker.vote("en", 0.99, 64_000, 0, 64_000)
    tracker.vote("fr", 0.99, 64_000, 0, 64_000)
    assert tracker.language == "en"
    tracker.vote("fr", 0.99, 64_000, 0, 64_000)
    assert tracker.language == "fr"


def test_the_language_is_asked_for_until_it_is_known_and_now_and_then_after() -> None:
    tracker = LanguageTracker(None)
    assert all(tracker.ask() for _ in range(10))
    tracker.vote("en", 0.9, 64_000, 0, 64_000)
    assert [tracker.ask() for _ in range(12)].count(True) == 3
    assert not any(LanguageTracker("en").ask() for _ in range(12))


def test_a_pinned_language_stays() -> None:
    tracker = LanguageTracker("ja")
    for _ in range(5):
        tracker.vote("en", 1.0, 640_000, 0, 64_000)
    assert tracker.language == "ja"


def test_words_get_times_in_order_inside_the_window() -> None:
    heard = [Word("a", 50, 300), Word("b", 250, 200), Word("c", 900, 2000)]
    assert [(w.start, w.end) for w in spoken(heard, 100, 1000)] == [(100, 300), (300, 300), (900, 1000)]


def test_a_burst_faster_than_speech_is_dropped_with_all_that_follows() -> None:
    said = [Word(f"w{i}", i * 5000, i * 5000 + 4000) for i in range(6)]
    burst = [Word(f"x{i}", 40_000 + i * 320, 40_320 + i * 320) for i in range(8)]
    assert [w.text for w in spoken(said + burst, 0, 50_000)] == [w.text for w in said]
    assert len(spoken(burst[:4], 0, 50_000)) == 4, "four short words may be quick"
