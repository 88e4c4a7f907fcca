"""Masks, spans and the splitting of voices: the pure parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.speakers import powerset
from engine.speakers.features import fbank
from engine.speakers.powerset import STEP, ActivitySettings, Floats, Mask
from engine.speakers.split import Heard, SplitSettings, apart, separate

CLASSES = {"": 0, "0": 1, "1": 2, "2": 3, "01": 4, "02": 5, "12": 6}


def row(text: str) -> Mask:
    return np.array([c == "x" for c in text])


def test_a_class_is_the_set_of_its_speakers() -> None:
    frames = [np.full(7, -20.0, np.float32) for _ in CLASSES]
    for frame, number in zip(frames, CLASSES.values(), strict=True):
        frame[number] = 0.0
    for members, frame in zip(CLASSES, frames, strict=True):
        found = powerset.probabilities(frame[None], 1)[0]
        assert found.round(3).tolist() == [float(str(k) in members) for k in range(3)]


def test_activity_has_hysteresis_bridges_pauses_and_drops_bits() -> None:
    settings = ActivitySettings(on=0.5, off=0.4, shortest_s=0.06, gap_s=0.06)
    probability = np.array([0.45, 0.5, 0.45, 0.41, 0.39, 0.2, 0.6, 0.6, 0.6, 0.1, 0.1, 0.1, 0.9, 0.1, 0.1])
    (heard,) = powerset.activity(probability[:, None].astype(np.float32), settings)
    assert heard.tolist() == row(".xxxxxxxx......").tolist()


def test_silence_is_no_speaker() -> None:
    assert powerset.activity(np.full((50, 3), 0.3, np.float32), ActivitySettings()) == []


@pytest.mark.parametrize("bad", [{"on": 0.4, "off": 0.5}, {"on": 1.0}, {"gap_s": -1.0}])
def test_activity_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"activity|durations"):
        ActivitySettings(**bad)


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 400))
def test_spans_and_masks_are_each_other(bits: list[bool], tail: int) -> None:
    mask = np.array(bits)
    samples = len(mask) * STEP + 40 + tail
    spans = powerset.spans(mask, samples)
    assert powerset.mask(spans, len(mask)).tolist() == bits
    assert all(0 <= a < b <= samples for a, b in spans)
    assert all(x[1] < y[0] for x, y in pairwise(spans))


def test_alone_is_where_nobody_else_is() -> None:
    one, other = apart([row("xxxx.x"), row("..xxx.")])
    assert (one.alone.tolist(), other.alone.tolist()) == (row("xx...x").tolist(), row("....x.").tolist())


class Truth:
    """Vectors of a window whose step i is said by person `said[i]`: each person's share of the mask."""

    def __init__(self, said: Sequence[int]) -> None:
        self.people = np.eye(max(said) + 1, dtype=np.float32)[list(said)]

    def __call__(self, masks: Sequence[Mask]) -> Floats:
        found = np.stack([self.people[m].sum(axis=0) for m in masks])
        unit: Floats = found / np.linalg.norm(found, axis=1, keepdims=True)
        return unit


def heard(*masks: Mask) -> list[Heard]:
    return apart(list(masks))


def test_two_voices_in_one_are_split_where_the_voice_changes() -> None:
    said = [0] * 120 + [1] * 90 + [0] * 60
    found = separate(heard(np.ones(270, np.bool_)), Truth(said), SplitSettings())
    found.sort(key=lambda voice: -int(voice.active.sum()))
    assert len(found) == 2
    wrong = int((found[0].active != (np.array(said) == 0)).sum())
    assert wrong <= 15
    assert not (found[0].active & found[1].active).any()
    assert (found[0].active | found[1].active).all()


def test_one_voice_stays_one() -> None:
    (found,) = separate(heard(np.ones(300, np.bool_)), Truth([0] * 300), SplitSettings())
    assert found.active.all()


def test_a_short_voice_is_not_split() -> None:
    voice = row("x" * 80)
    (found,) = separate(heard(voice), Truth([0] * 40 + [1] * 40), SplitSettings())
    assert found.active.all()


def test_one_voice_heard_as_two_is_put_together_and_another_is_not() -> None:
    said = [0] * 100 + [1] * 100 + [0] * 100
    masks = [row("x" * 100 + "." * 200), row("." * 100 + "x" * 100 + "." * 100), row("." * 200 + "x" * 100)]
    found = separate(heard(*masks), Truth(said), SplitSettings())
    assert sorted(int(voice.active.sum()) for voice in found) == [100, 200]


def test_steps_with_others_go_to_the_nearer_part() -> None:
    said = [0] * 100 + [1] * 100
    long, short = row("x" * 200), row("." * 20 + "x" * 10 + "." * 170)
    found = separate(heard(long, short), Truth(said), SplitSettings())
    first = next(voice for voice in found if voice.active[0])
    assert first.active[:90].all()
    assert not first.alone[20:30].any()


def test_split_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="unlike"):
        SplitSettings(unlike=0.7, alike=0.6)


def test_audio_shorter_than_a_frame_has_no_features() -> None:
    assert fbank(np.zeros(399, np.float32)).shape == (0, 80)
    assert fbank(np.zeros(400, np.float32)).shape == (1, 80)
