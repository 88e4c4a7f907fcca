"""Clips as tracks of one stream: what is told of each is told of its clip alone."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from clients.audio import RATE
from clients.bench.corpus import Clip
from clients.bench.evaluate import evaluate
from clients.bench.tracks import apart, beside, deal, parts_of
from clients.play import Playback
from streaming.wire.messages import Ack, Ended, Error

from .build import ready, receipt, segment, words


def clip(name: str, seconds: float, reference: str = "", fill: int = 0) -> Clip:
    return Clip(name, np.full(round(seconds * RATE), fill, dtype=np.int16), reference, "en")


def test_joined_clips_are_as_long_as_the_longest() -> None:
    joined = beside([clip("a", 1.0, "one", 1), clip("b", 3.0, "two", 2)])
    assert (joined.name, joined.seconds, joined.pcm.shape) == ("a + b", 3.0, (3 * RATE, 2))
    assert joined.pcm[:RATE].tolist() == [[1, 2]] * RATE
    assert joined.pcm[RATE:].tolist() == [[0, 2]] * (2 * RATE)
    assert [(part.name, part.seconds, part.reference) for part in parts_of(joined)] == [
        ("a, track 1 of 2", 3.0, "one"),
        ("b, track 2 of 2", 3.0, "two"),
    ]
    alone = clip("c", 1.0)
    assert parts_of(alone) == (alone,)


def test_every_clip_is_dealt_and_none_twice_at_once() -> None:
    clips = [clip(name, seconds) for name, seconds in zip("abcde", (1, 5, 2, 4, 3), strict=True)]
    names = [joined.name for joined in deal(clips, 2)]
    assert names == ["b + d", "e + c", "a + b"]
    with pytest.raises(ValueError, match="6 tracks need 6 clips, --select gives 5: select more"):
        deal(clips, 6)
    for wrong in (0, 9):
        with pytest.raises(ValueError, match="use 1 to 8"):
            deal(clips, wrong)


def played() -> tuple[Playback, Ended]:
    """Two tracks whose segments come in turns: "red green" and, on the other, "one" and "two"."""
    red, one, two = words("red green", 1000), words("one", 2000), words("two", 6000)
    end = Ended(7, receipt(8 * RATE, 4), (receipt(8 * RATE, 2), receipt(8 * RATE, 2)))
    playback = Playback("x", sent=8 * RATE, finished_s=8.0)
    for message in (
        ready(1),
        segment(2, 1, 1, red[:1], track=0),
        segment(3, 2, 1, one, track=1, final=True),
        segment(4, 1, 2, red, track=0, final=True),
        segment(5, 3, 1, (), track=1, first_word=1, partial="two"),
        segment(6, 3, 2, two, track=1, first_word=1, final=True),
        end,
    ):
        playback.captions.receive(message)
    playback.committed_s = [2.0, 3.0, 3.5, 7.0]
    playback.first_text_s = {1: 2.0, 2: 3.0, 3: 6.5}
    playback.final_s = {1: 3.0, 2: 3.5, 3: 7.0}
    assert playback.faults() == []
    return playback, end


def test_each_track_has_its_own_words_times_and_receipt() -> None:
    joined = beside([clip("a", 8.0, "red green"), clip("b", 8.0, "one three")])
    rows = [evaluate(part, playback, None) for part, playback in apart(joined, *played())]
    assert [(row.words, row.text, row.live.count, row.gap_samples, row.faults) for row in rows] == [
        (2, "red green", 0, 0, []),
        (2, "one two", 1, 0, []),
    ]
    assert rows[0].delays.commit == pytest.approx([2.0 - 1.4, 3.5 - 1.9])
    assert rows[1].delays.commit == pytest.approx([3.0 - 2.4, 7.0 - 6.4])
    assert rows[0].delays.first_text == pytest.approx([1.0])
    assert rows[1].delays.first_text == pytest.approx([1.0, 0.5])
    assert rows[0].delays.final == pytest.approx([3.5 - 1.9 - 0.6])
    assert rows[1].delays.final == pytest.approx([3.0 - 2.4 - 0.6, 7.0 - 6.4 - 0.6])


def test_what_is_wrong_with_the_stream_is_wrong_with_each_track() -> None:
    joined = beside([clip("a", 8.0), clip("b", 8.0)])
    playback, end = played()
    assert end.tracks
    lost = replace(end, tracks=(end.tracks[0], receipt(8 * RATE, 2, gap=RATE)))
    first, second = (track.faults() for _, track in apart(joined, playback, lost))
    assert (first, [fault.split(":")[0] for fault in second]) == ([], ["gap from 7.00 to 8.00 s"])
    playback.captions.receive(Ack(8, 0))
    playback.captions.receive(Error(3, "internal", "why"))
    for _, track in apart(joined, playback, end):
        assert "message 8 came after the last one" in track.faults()
        assert "the server ended the stream: why (internal)" in track.faults()
    playback, _ = played()
    playback.failure = "the connection ended"
    for _, track in apart(joined, playback, None):
        assert "the connection ended" in track.faults()
        assert track.captions.receipt is None
