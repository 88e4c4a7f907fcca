"""What is on disk becomes a session that goes on, wherever the log was cut."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from engine.contract import FRAME
from streaming.core.events import Cover, Covered
from streaming.kept.log import Log, State
from streaming.kept.restore import LIFE, LOST, accounted, freeze, log_of, receipt, revive, skip
from streaming.kept.store import Store
from streaming.kept.stored import Batch, Opened, Progress, Stored
from streaming.wire.messages import Ended, Gap, Segment, Start, Track, Word
from tests.streaming.test_log import Meeting, Reader, Step, acts, segment, shown

TWO = Start(tracks=(Track("Ann"), Track()))


@dataclass
class Disk:
    """A log written to a real database in groups."""

    store: Store
    start: Start = TWO

    def __post_init__(self) -> None:
        self.batch = Batch(opened={"s": Opened(1, b"", b"", self.start)})
        self.log = Log(self.put)

    def put(self, key: str, seq: int, state: State) -> None:
        self.batch.states["s", key] = seq, state

    def write(self) -> None:
        self.store.write(self.batch)
        self.batch = Batch()

    def load(self) -> Stored:
        found = self.store.load("s")
        assert found is not None
        return found


@settings(max_examples=60)
@given(st.lists(st.tuples(acts, st.booleans()), max_size=30), st.lists(acts, max_size=10))
def test_any_cut_of_a_log_is_read_back_and_goes_on(steps: list[tuple[Step, bool]], later: list[Step]) -> None:
    """The disk has what the log had when it was last written, but for partials; and a reader who was there
    before goes on with what is restored, as one does who comes anew."""
    with tempfile.TemporaryDirectory() as folder:
        disk = Disk(Store(Path(folder) / "j"))
        meeting, reader = Meeting(disk.log), Reader(disk.log)
        disk.write()
        known = disk.log.segments()
        reader.read(1 << 20)
        for (act, track, number), written in steps:
            act(meeting, track, number)
            if written:
                disk.write()
                known = disk.log.segments()
                reader.read(1 << 20)  # nobody hears of what is not on disk
        stored = disk.load()
        log = log_of(stored)
        assert shown(log.segments()) == shown([replace(s, partial="") for s in known])
        place = revive(stored, log)
        disk.store.close()
    assert all(s.final and not s.partial for s in log.segments())
    assert log.seq >= LIFE
    counts = [sum(len(s.words) for s in known if s.track == track) for track in (0, 1)]
    assert [track.count for track in place.continues] == counts
    assert place.numbered == max(s.id for s in known)
    # As a process goes on: with new segments, behind the words that there are.
    for track in (0, 1):
        log.put(
            replace(segment(place.numbered + 1 + track, 1, counts[track], counts[track] + 2), track=track)
        )
    reader.log = log
    reader.come_back()
    newcomer = Reader(log)
    for each in (reader, newcomer):
        each.read(1 << 20)
        assert each.captions.faults == []
        assert each.captions.revised == 0
        assert shown(each.captions.ordered()) == shown(log.segments())


def spoken(id: int, first: int, texts: str, start_ms: int, *, final: bool = True, track: int = 0) -> Segment:
    words = tuple(Word(w, start_ms + 300 * i, start_ms + 300 * i + 200) for i, w in enumerate(texts.split()))
    end_ms = words[-1].end_ms + 100 if words else start_ms + 500
    return Segment(0, id, 3, first, start_ms, end_ms, None, texts, words, "", final, "en", track=track)


def stored_of(*states: State, progress: Progress = Progress(), start: Start = TWO) -> Stored:
    numbered = tuple(replace(state, seq=seq) for seq, state in enumerate(states, 1))
    return Stored("s", Opened(1, b"", b"", start), None, progress, numbered)


def test_what_was_open_is_closed_behind_its_last_word() -> None:
    stored = stored_of(
        spoken(1, 0, "a b", 1000),
        replace(spoken(2, 2, "c d", 3000, final=False), end_ms=9000),
        spoken(3, 0, "", 4000, final=False, track=1),
        progress=Progress((10 * 16, 4000 * 16), 80_000),
    )
    log = log_of(stored)
    place = revive(stored, log)
    states = {s.id: s for s in log.segments()}
    assert (states[1].rev, states[2].rev, states[3].rev) == (3, 4, 4)
    assert (states[2].final, states[2].end_ms) == (True, 3500)
    assert (states[3].final, states[3].end_ms) == (True, 4000)
    first, second = place.continues
    # The words know better than a progress that is older; silence is known from the progress alone.
    assert first.settled == 3500 * 16
    assert [w.text for w in first.words] == ["a", "b", "c", "d"]
    assert first.words[-1].end == 3500 * 16
    assert (first.count, first.language) == (4, "en")
    assert (second.settled, second.words, second.count) == (4000 * 16, (), 0)
    assert place.clock == 500 * 16, "three seconds before it are heard again"
    assert place.numbered == 3


def test_a_life_never_uses_the_numbers_of_another() -> None:
    stored = stored_of(spoken(1, 0, "a", 0, final=False))
    log = log_of(stored)
    revive(stored, log)
    assert [s.seq for s in (log.state("segment:1"),)] == [LIFE + 1]
    again = replace(log.state("segment:1"), seq=LIFE + 1)
    second = Stored("s", stored.opened, None, stored.progress, (again,))
    log = log_of(second)
    revive(second, log)
    assert log.seq == 2 * LIFE


def test_speakers_of_a_dead_process_are_the_last_word() -> None:
    log = Log()
    log.put(spoken(1, 0, "a", 0))
    log.put(replace(spoken(2, 1, "b", 500), frozen=True))
    freeze(log)
    assert [(s.rev, s.frozen) for s in log.segments()] == [(4, True), (3, True)]


def test_audio_that_nobody_can_send_again_is_a_gap() -> None:
    stored = stored_of(spoken(1, 0, "a b", 0), progress=Progress((16_000, 30_000), 40_000), start=TWO)
    log = log_of(stored)
    place = skip(revive(stored, log), log, 20_001, tracks=True)
    assert place.clock % FRAME == 0
    assert [track.settled for track in place.continues] == [20_160, 30_000]
    assert log.gaps == [Gap(0, 1000, 1260, LOST, 0)]
    assert place.continues[0].spans[-1] == Covered(16_000, 20_160, Cover.GAP, LOST)
    assert skip(place, log, 20_160, tracks=True) == place


@pytest.mark.parametrize("tracks", [(), (Track(), Track())])
def test_who_never_comes_back_gets_a_receipt_for_all_that_was_received(tracks: tuple[Track, ...]) -> None:
    start, number = Start(tracks=tracks), len(tracks) or 1
    said = replace(spoken(1, 0, "a b", 500), track=0 if tracks else UNSET)
    stored = stored_of(said, progress=Progress((17_600,) * number, 32_000), start=start)
    log = log_of(stored)
    place = skip(revive(stored, log), log, 32_000, tracks=bool(tracks))
    ended = receipt(place, 32_000)
    assert isinstance(ended, Ended)
    found = ended.receipt
    assert (found.samples, found.words, found.gap_samples) == (32_000, 2, 14_400)
    assert [(s.start, s.end, s.cover) for s in found.spans] == [
        (0, 8000, "silence"),
        (8000, 17_600, "text"),
        (17_600, 32_000, "gap"),
    ]
    assert (ended.tracks is UNSET) == (not tracks)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 40), st.sampled_from(["text", "gap", "both"]))),
    st.integers(0, 2000),
)
def test_the_account_tiles_all_that_is_settled(parts: list[tuple[int, int, str]], settled_ms: int) -> None:
    """Gaps before text, whatever overlaps them; and nothing twice."""
    at = 0
    segments: list[Segment] = []
    gaps: list[Gap] = []
    for pause, length, kind in parts:
        start, end = at + pause, at + pause + length
        if kind != "gap":
            segments.append(replace(spoken(len(segments) + 1, 0, "a", start), end_ms=end))
        if kind != "text":
            gaps.append(Gap(0, start + length // 3 if kind == "both" else start, end, "loop"))
        at = end
    spans = list(accounted(segments, gaps, settled_ms * 16))
    truth = ["silence"] * settled_ms
    for cover, found in (("text", segments), ("gap", gaps)):
        for one in found:
            for ms in range(one.start_ms, min(one.end_ms, settled_ms)):
                truth[ms] = cover
    assert [s.cover for s in spans for _ in range(s.start // 16, s.end // 16)] == truth
    assert all(a.end == b.start and a.cover != b.cover for a, b in itertools.pairwise(spans))
