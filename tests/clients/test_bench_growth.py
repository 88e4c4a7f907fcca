"""Growth: buckets put together, plots, and who takes turns."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.bench import growth_people
from clients.bench.capacity import Step
from clients.bench.corpus import CorpusError, Row
from clients.bench.growth import Bucket, curve, merged
from clients.bench.growth_cli import against_streams
from clients.bench.growth_page import STYLE, Plot, chart, top
from clients.grid import grid
from tests.engine.real import DATA, needs_data, needs_speakers

from .test_bench_capacity import figures


def test_buckets_are_put_together_by_the_audio_in_them() -> None:
    buckets = [
        Bucket(60, 0.010, 0.02, 100),
        Bucket(70, 0.040, 0.02, 300),
        Bucket(130, 0.020, 0.09, 200),
        Bucket(400, 0.050, 0.10, None),
    ]
    first, second, last = merged(buckets, [65, 200])
    assert first == buckets[0]
    assert second.until_s == 130
    assert second.cpu_s_per_audio_s == pytest.approx((10 * 0.040 + 60 * 0.020) / 70)
    assert second.wall_s_per_audio_s == pytest.approx((10 * 0.02 + 60 * 0.09) / 70)
    assert second.rss_mib == 300
    assert last == buckets[3]


@given(st.lists(st.integers(1, 900), max_size=40), st.lists(st.integers(1, 9000), max_size=6))
def test_what_is_put_together_costs_what_its_parts_cost(lengths: list[int], edges: list[int]) -> None:
    buckets, at = [], 0
    for length in lengths:
        at += length
        buckets.append(Bucket(at, 1 / length, 2 / length, length))
    found = merged(buckets, sorted(edges))
    begins = [0.0, *(bucket.until_s for bucket in found)]
    spent = [
        (b.until_s - begin) * (b.cpu_s_per_audio_s or 0) for begin, b in zip(begins, found, strict=False)
    ]
    assert sum(spent) == pytest.approx(len(lengths))
    assert len(found) <= len(edges) + 1
    assert [bucket.until_s for bucket in found[-1:]] == ([at] if lengths else [])


def test_a_part_that_was_not_metered_leaves_the_whole_without_a_figure() -> None:
    (found,) = merged([Bucket(60, None, 0.1, None), Bucket(120, 0.1, 0.1, 5.0)], [])
    assert found.cpu_s_per_audio_s is None
    assert found.rss_mib == 5.0


def test_a_meeting_has_a_row_for_each_stretch_and_one_for_silence() -> None:
    spoken = [Bucket(60.0 * n, 0.001 * n, 0.1, 50.0 + n) for n in range(1, 13)]
    found = curve("slots", spoken, [Bucket(600, 0.0002, 0.001, 40.0)])
    assert [row[:2] for row in found.rows] == [
        ("0 to 1 min", "1.00"),
        ("1 to 10 min", "6.00"),
        ("10 to 12 min", "11.50"),
        ("silence, 10 min", "0.20"),
    ]
    cpu, memory = found.plots
    assert cpu.places == tuple(str(n) for n in range(1, 13))
    assert cpu.heights == pytest.approx([float(n) for n in range(1, 13)])
    assert memory.heights[-1] == 62.0


def test_a_long_meeting_is_plotted_in_few_parts() -> None:
    spoken = [Bucket(60.0 * n, 0.001, 0.1, 50.0) for n in range(1, 481)]
    found = curve("slots", spoken, [])
    assert [row[0] for row in found.rows] == ["0 to 1 min", "1 to 10 min", "10 to 60 min", "60 to 480 min"]
    assert found.plots[0].places == tuple(str(30 * n) for n in range(1, 17))


def test_a_server_at_rest_is_not_what_a_stream_costs() -> None:
    # 4 streams of 60 s, 240 s of audio at 50 ms; 70 s with the ramp, in which the server alone takes 0.7 s.
    found = against_streams("--engine fake", 0.01, 10.0, [Step(figures(), None, [])])
    assert found.rows[0][:3] == ("4", "50.00", f"{50 - 1000 * 0.7 / 240:.2f}")
    assert found.rows[0][-1] == "yes"
    late = against_streams("--engine fake", 0.01, 10.0, [Step(figures(4.5), None, [])])
    assert late.rows[0][-1] == "no"


def test_a_plot_begins_at_zero_and_leaves_out_what_was_not_measured() -> None:
    assert chart(Plot("CPU", "streams", ("1", "10", "50"), "ms", (11.42, None, 3.3))) == (
        f"```mermaid\n{STYLE}\n"
        "xychart-beta\n"
        '    title "CPU"\n'
        '    x-axis "streams" ["1", "50"]\n'
        '    y-axis "ms" 0 --> 13\n'
        "    line [11.42, 3.3]\n"
        "```\n"
    )
    assert chart(Plot("CPU", "streams", ("1",), "ms", (None,))) == ""


@given(st.floats(1e-6, 1e9))
def test_nothing_is_drawn_above_the_axis(highest: float) -> None:
    assert 1.05 * highest < top(highest) < 1.3 * highest


def test_an_axis_has_a_length_where_all_is_zero() -> None:
    assert top(0.0) > 0


def test_a_table_is_as_wide_as_its_head() -> None:
    assert grid(("a", "b"), [("1", "2")]) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"


def row(speaker: str, number: int, seconds: float = 5.0, text: str = "said") -> Row:
    name = f"utterances_en/{speaker}-{number}.flac"
    return Row(Path(name), name, seconds, "en", speaker, text)


def test_people_are_those_who_read_longest() -> None:
    rows = [row("a", 1), row("b", 1, 20.0), row("c", 1), row("c", 2), row("d", 1, text=""), row("", 1)]
    rows.append(row("e", 1, 0.0))  # turns that last no time would never fill the recording
    found = growth_people.people(rows, "utterances_en/")
    assert [said[0].speakers for said in found] == ["b", "c", "a"]
    assert [turn.name[-6] for turn in found[1]] == ["1", "2"]
    assert growth_people.people(rows, "elsewhere/") == []
    two = growth_people.people(rows, "/a-, /c-2")
    assert [[turn.name[-8:-5] for turn in said] for said in two] == [["a-1"], ["c-2"]]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=20), st.integers(1, 400), st.integers())
def test_everybody_speaks_before_anybody_speaks_again(said: list[int], seconds: int, seed: int) -> None:
    rows = [[row(str(n), i) for i in range(count)] for n, count in enumerate(said)]
    turns = growth_people.order(rows, seconds, random.Random(seed))
    assert sum(turn.duration_s for turn in turns) >= seconds
    for at in range(0, len(turns), len(said)):
        assert len({turn.speakers for turn in turns[at : at + len(said)]}) == len(said)
    for n, count in enumerate(said):
        mine = [turn.name for turn in turns if turn.speakers == str(n)]
        assert mine[:count] == [one.name for one in rows[n]][: len(mine)]


@needs_data
def test_the_recordings_at_hand_are_read_by_twenty_people() -> None:
    clip = growth_people.gathering(DATA, growth_people.SELECT, 20, 200.0, 1, print)
    assert clip.seconds == 200.0
    with pytest.raises(CorpusError, match="too short for 20"):
        growth_people.gathering(DATA, growth_people.SELECT, 20, 20.0, 1, print)
    with pytest.raises(CorpusError, match="not of 1000"):
        growth_people.gathering(DATA, growth_people.SELECT, 1000, 20.0, 1, print)


@needs_data
@needs_speakers
async def test_two_people_are_found_and_what_that_took() -> None:
    clip = growth_people.gathering(DATA, growth_people.SELECT, 2, 60.0, 1, print)
    found = await growth_people.measure(clip)
    assert found.found == 2
    assert found.windows > 10
    assert found.encoder_s > found.linker_s >= found.slowest_s > 0
    (told,) = growth_people.curve([2], 60.0, [found]).rows
    assert told[:3] == ("2", "2", str(found.windows))
