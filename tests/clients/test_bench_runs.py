"""From clips to figures, without a server."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.audio import RATE
from clients.bench.corpus import Clip, CorpusError, build, read_manifest
from clients.bench.evaluate import evaluate
from clients.bench.growth import Gauge, silence, speech
from clients.bench.live import plan
from clients.bench.offline import Offline, OfflineWord, Reading
from clients.bench.report import targets, total
from clients.delays import measure, own_times
from clients.play import Arrival, Playback
from streaming.wire.messages import Ack, Ended, ServerMessage, Word
from tests.support.data import DATA, needs_data
from tests.support.sound import wav

from .build import ready, receipt, segment, words


def clip(name: str, seconds: float, reference: str = "") -> Clip:
    return Clip(name, np.zeros(round(seconds * RATE), dtype=np.int16), reference, "en")


def played(
    said: list[tuple[str, int]], arrivals: list[float], *, finals: list[float], sent_s: float
) -> Playback:
    """Segments of (text, start in ms), all words of one arriving together, with their finals."""
    playback = Playback("x", sent=round(sent_s * RATE), finished_s=sent_s)
    playback.captions.receive(ready(1))
    seq, count = 2, 0
    for id, ((text, start), at, final) in enumerate(zip(said, arrivals, finals, strict=True), 1):
        playback.captions.receive(segment(seq, id, 1, words(text, start), first_word=count, final=True))
        playback.committed_s += [at] * len(text.split())
        seq, count = seq + 1, count + len(text.split())
        playback.first_text_s[id], playback.final_s[count - 1] = at, final
    playback.captions.receive(Ended(seq, receipt(playback.sent, count)))
    return playback


# Two words at 1.0-1.4 and 1.5-1.9 s, then after a pause one at 4.0-4.4 s, and no silence behind it.
PLAYED = ([("red green", 1000), ("blue", 4000)], [2.5, 5.0])


def test_delays_count_from_the_word_its_start_and_the_known_pause() -> None:
    playback = played(*PLAYED, finals=[2.75, 5.5], sent_s=4.5)
    found = measure(playback, own_times(playback))
    assert found.commit == pytest.approx([2.5 - 1.4, 2.5 - 1.9, 5.0 - 4.4])
    assert found.first_text == pytest.approx([2.5 - 1.0, 5.0 - 4.0])
    # The pause after "green" is known 0.6 s behind its end; the stream's end is no pause.
    assert found.final == pytest.approx([2.75 - 1.9 - 0.6])


def test_a_segment_cut_out_of_running_speech_opens_nothing() -> None:
    playback = played([("one two", 1000), ("three", 2000)], [2.5, 3.0], finals=[2.75, 3.5], sent_s=6.0)
    found = measure(playback, own_times(playback))
    assert len(found.first_text) == 1  # "three" begins 0.1 s behind "two"
    assert found.final == pytest.approx([3.5 - 2.4 - 0.6])  # only "three" is followed by silence


def reading(*spoken: tuple[str, float, float]) -> Reading:
    return Reading(" ".join(w[0] for w in spoken), tuple(OfflineWord(*w) for w in spoken), "en")


def test_the_offline_alignment_is_believed_where_it_knows_the_word() -> None:
    playback = played(*PLAYED, finals=[2.75, 5.5], sent_s=4.5)
    # "red" a little later than we think, "green" not heard, "blue" five seconds off: another "blue".
    found = evaluate(
        clip("x", 4.5, "red green blue"),
        playback,
        reading(("Red,", 1.0, 1.6), ("grin", 1.6, 2.0), ("blue", 9.0, 9.4)),
    )
    assert found.commit_matched == pytest.approx([2.5 - 1.6])
    assert found.commit_own == pytest.approx([2.5 - 1.9, 5.0 - 4.4])
    assert found.live.count == 0
    assert found.offline is not None
    assert found.offline.count == 1
    assert found.faults == []


def test_speech_starts_where_the_voice_does_not_where_alignment_puts_the_word() -> None:
    playback = played(*PLAYED, finals=[2.75, 5.5], sent_s=4.5)
    spoken = reading(("red", 0.7, 1.4), ("green", 1.5, 1.9), ("blue", 3.6, 4.4))
    voiced = dataclasses.replace(spoken, speech_starts_s=(1.1, 4.2))
    assert evaluate(clip("x", 4.5), playback, spoken).delays.first_text == pytest.approx(
        [2.5 - 0.7, 5.0 - 3.6]
    )
    assert evaluate(clip("x", 4.5), playback, voiced).delays.first_text == pytest.approx(
        [2.5 - 1.1, 5.0 - 4.2]
    )


def test_audio_that_was_never_sent_is_not_covered() -> None:
    playback = played([("one", 0)], [1.0], finals=[1.0], sent_s=1.0)
    playback.cut_off = True
    found = total([evaluate(clip("x", 4, "one two"), playback, None)], None)
    assert found.coverage == pytest.approx(0.25)
    assert found.failures == 1


def test_without_a_receipt_nothing_is_covered() -> None:
    playback = Playback("x", sent=RATE, failure="lost")
    rows = [evaluate(clip("x", 1, "one two"), playback, None)]
    found = total(rows, None)
    assert found.coverage == 0
    assert found.failures == 1
    assert found.live.rate == 1
    assert not any(goal.met for goal in targets(found, 1.0) if "fault" in goal.name or "covered" in goal.name)


def test_totals_pool_streams_and_targets_judge_them() -> None:
    playback = played(*PLAYED, finals=[2.75, 5.5], sent_s=4.5)
    row = evaluate(clip("x", 4.5, "red green blue"), playback, reading(("red green blue", 1.0, 1.4)))
    found = total([row, row], None)
    assert found.commit.count == 6
    assert found.coverage == 1
    assert found.revision_rate == 0
    verdicts = {goal.name: goal.met for goal in targets(found, 1.0)}
    assert verdicts["word committed p50, s"]
    assert not verdicts["first text p50, s"]  # 1.0 s
    assert {goal.name: goal.met for goal in targets(found, 1.5)}["first text p50, s"]


def test_a_changed_word_is_counted_against_us() -> None:
    playback = Playback("x", sent=0)
    said = words("one two")
    for message in (ready(1), segment(2, 1, 1, said), segment(3, 1, 2, (said[0], Word("too", 500, 900)))):
        playback.captions.receive(message)
    playback.committed_s = [1.0, 1.0]
    found = total([evaluate(clip("x", 1), playback, None)], None)
    assert found.revision_rate == 0.5
    assert not {g.name: g.met for g in targets(found, 1.0)}["revision rate of committed words"]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=9), st.integers(1, 6))
def test_every_clip_is_played_once_and_no_stream_idles(lengths: list[int], streams: int) -> None:
    clips = [clip(str(i), seconds) for i, seconds in enumerate(lengths)]
    slots = plan(clips, streams, None)
    assert len(slots) == streams
    assert all(slots)
    flat = [c.name for slot in slots for c in slot]
    assert set(flat) == {c.name for c in clips}
    assert len(flat) == max(len(clips), streams)


@given(st.lists(st.integers(1, 90), min_size=1, max_size=5), st.integers(1, 4), st.integers(1, 200))
def test_each_stream_lasts_the_seconds_asked_for(lengths: list[int], streams: int, seconds: int) -> None:
    clips = [clip(str(i), length) for i, length in enumerate(lengths)]
    for slot in plan(clips, streams, seconds):
        assert sum(c.seconds for c in slot) >= seconds
        assert sum(c.seconds for c in slot[:-1]) < seconds


def test_growth_feeds_exactly_the_time_asked_for() -> None:
    assert sum(map(len, speech([clip("a", 3.2), clip("b", 1.0)], 12))) == 2 * 12 * RATE
    assert sum(map(len, silence(7))) == 2 * 7 * RATE


def heard(gauge: Gauge, playback: Playback, message: ServerMessage) -> None:
    playback.captions.receive(message)
    gauge.hear(playback, Arrival(0.0, message))


def test_growth_cuts_speech_where_its_segments_are_final() -> None:
    gauge, playback = Gauge(None, bucket_s=5), Playback("x")
    heard(gauge, playback, segment(1, 1, 1, words("one", 1000), final=True))
    heard(gauge, playback, Ack(2, 60 * RATE))  # taken, not yet done with
    heard(gauge, playback, segment(3, 2, 1, words("two", 7000), first_word=1))
    heard(gauge, playback, segment(4, 2, 2, words("two", 7000), first_word=1, final=True))
    heard(gauge, playback, Ended(5, receipt(13 * RATE, 2)))
    assert [bucket.until_s for bucket in gauge.buckets] == [7.4, 13]


def test_growth_cuts_silence_where_it_is_acknowledged() -> None:
    gauge, playback = Gauge(None, bucket_s=5), Playback("x")
    for seq, sample_s in enumerate((1, 4, 6, 9, 10, 11), 1):
        heard(gauge, playback, Ack(seq, sample_s * RATE))
    heard(gauge, playback, Ended(7, receipt(11 * RATE, 0)))
    assert [bucket.until_s for bucket in gauge.buckets] == [6, 11]


def write(path: Path, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(wav(np.ones(round(seconds * RATE), dtype="<i2").tobytes()))


def folder(at: Path) -> Path:
    rows = ["path\tlang\tspeakers\tref_text\tref_path"]
    for name, speaker, text, ref in (
        ("u/librispeech/1-0.wav", "p", "one", ""),
        ("u/librispeech/1-1.wav", "p", "two", ""),
        ("u/librispeech/2-0.wav", "q", "three", ""),
        ("u/lj/LJ001-0001.wav", "l", '"""four"" five"', ""),
        ("u/lj/LJ001-0002.wav", "l", "six", ""),
        ("long/a.wav", "m", "", "ref/a.txt"),
        ("long/untold.wav", "m", "", "ref/a.rttm"),
        ("gone.wav", "m", "nobody", ""),
    ):
        if name != "gone.wav":
            write(at / name, 1.0)
        rows.append(f"{name}\ten\t{speaker}\t{text}\t{ref}")
    (at / "ref").mkdir()
    (at / "ref" / "a.txt").write_text("seven\neight\n", encoding="utf-8")
    (at / "MANIFEST.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return at


def test_utterances_are_joined_with_gaps_and_their_texts(tmp_path: Path) -> None:
    clips = {c.name: c for c in build(folder(tmp_path), "en", 1, print)}
    assert {name: c.reference for name, c in clips.items()} == {
        "librispeech p": "one two",
        "librispeech q": "three",
        "ljspeech LJ001": '"four" five six',
        "long/a.wav": "seven eight",
    }
    assert 2.3 <= clips["librispeech p"].seconds <= 3.5
    assert clips["ljspeech LJ001"].seconds == pytest.approx(2.4)
    assert clips["librispeech q"].seconds == 1


def test_the_seed_decides_the_gaps(tmp_path: Path) -> None:
    folder(tmp_path)
    one, again, other = (build(tmp_path, "librispeech", seed, print)[0].seconds for seed in (1, 1, 2))
    assert one == again != other


def test_a_selection_that_fits_nothing_is_an_error(tmp_path: Path) -> None:
    folder(tmp_path)
    assert [c.name for c in build(tmp_path, "lj/,1-1", 1, print)][-1] == "u/librispeech/1-1.wav"
    assert [c.name for c in build(tmp_path, "en: q,long", 1, print)] == ["librispeech q", "long/a.wav"]
    for select in ("none-such", "lj/,none-such", "librispeech:none-such", ","):
        with pytest.raises(CorpusError):
            build(tmp_path, select, 1, print)


@pytest.mark.parametrize(
    ("manifest", "said"),
    [
        (None, "holds no MANIFEST.tsv: write one"),
        ("path,lang\n", "names no column path"),
        ("path\tduration_s\nlong/a.wav\t1,5\n", "long/a.wav: duration_s: '1,5' is no number"),
    ],
)
def test_a_manifest_that_cannot_be_used_is_an_error(tmp_path: Path, manifest: str | None, said: str) -> None:
    place = folder(tmp_path) / "MANIFEST.tsv"
    place.unlink() if manifest is None else place.write_text(manifest, encoding="utf-8")
    with pytest.raises(CorpusError, match=re.escape(said)):
        read_manifest(tmp_path)


def test_the_offline_reading_is_taken_from_the_cache(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "model.bin").write_bytes(b"weights")
    kept = reading(("one", 0.0, 0.4))
    reader = Offline(weights, cache_folder=tmp_path / "cache")
    reader._transcribe = lambda clip, language: kept  # type: ignore[method-assign]
    assert reader.read(clip("x", 1), language="en") == kept
    # Another reader has no weights that load: what it gives must come from the cache.
    assert Offline(weights, cache_folder=tmp_path / "cache").read(clip("y", 1), language="en") == kept
    assert len(list((tmp_path / "cache").iterdir())) == 1


@needs_data
def test_the_recordings_at_hand_make_the_english_corpus() -> None:
    rows = read_manifest(DATA)
    assert len(rows) > 200
    clips = build(DATA, "librispeech,ljspeech", 1, print)
    assert len(clips) == 7
    assert all(60 < c.seconds < 180 for c in clips)
    assert all(len(c.reference.split()) > 100 for c in clips)
