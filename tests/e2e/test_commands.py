"""The client's commands as a user runs them, against a real server process with the scripted engine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

from clients import bench, demo, recording, replay
from clients.aio import connect
from clients.captions import Captions
from clients.launch import LaunchError, serving
from streaming.wire.messages import ServerMessage
from tests.support.sound import expected, s16, speech, wav

pytestmark = pytest.mark.e2e

SLOTS = "-xxx--xx-xxxx---xx-"


def recorded(path: Path, slots: str = SLOTS) -> Path:
    path.write_bytes(wav(s16(speech(slots))))
    return path


def run(*arguments: str | Path) -> int:
    return replay.main([*map(str, arguments), "--model-less", "--speed", "max"])


def test_a_file_gives_its_words_and_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(recorded(tmp_path / "a.wav")) == replay.EXIT_OK
    said = capsys.readouterr()
    assert said.out.split() == expected(SLOTS)
    assert "receipt for 9.50 s" in said.err
    assert "gaps 0.00 s" in said.err


def test_several_files_are_several_streams(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = recorded(tmp_path / "one.wav"), recorded(tmp_path / "two.wav", "xx--xx-")
    (tmp_path / "more").mkdir()
    twin = recorded(tmp_path / "more" / "one.wav", "---x--")
    assert run(one, two, twin) == replay.EXIT_OK
    blocks = capsys.readouterr().out.split("== ")[1:]
    texts = {block.splitlines()[0]: " ".join(block.splitlines()[1:]).split() for block in blocks}
    assert texts == {
        "1-one.wav": expected(SLOTS),
        "two.wav": expected("xx--xx-"),
        "3-one.wav": expected("---x--"),
    }


def test_files_as_tracks_are_one_stream_of_named_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # One after the other: what both would say at once has no order in a text.
    one, two = recorded(tmp_path / "one.wav", "xx-------"), recorded(tmp_path / "two.wav", "-----xx--")
    assert run(one, two, "--tracks", "--track-name", "Ann", "--format", "json") == replay.EXIT_OK
    said = capsys.readouterr()
    segments = [s for s in json.loads(said.out)["segments"] if s["text"]]
    assert [(s["track"], s["speaker"], s["name"]) for s in segments] == [(0, 1, "Ann"), (1, 2, "two")]
    assert [s["text"].split() for s in segments] == [expected("xx-------"), expected("-----xx--")]
    assert "one.wav: receipt for 4.50 s" in said.err


def test_tracks_that_are_none_are_told_before_a_server_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(recorded(tmp_path / "a.wav"))
    assert replay.main([path, "--tracks", "--url", "http://127.0.0.1:9"]) == replay.EXIT_FILE
    assert "has 1 channel: --tracks takes a file of 2 to 8 channels" in capsys.readouterr().err
    for wrong, text in (
        (["--track-name", "Ann"], "--track-name needs --tracks"),
        (["--tracks", "--track-name", ""], "1 to 64 characters"),
    ):
        with pytest.raises(SystemExit):
            replay.main([path, *wrong])
        assert text in capsys.readouterr().err


def test_events_replay_to_the_same_captions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    events = tmp_path / "events.jsonl"
    assert run(recorded(tmp_path / "a.wav"), "--events", events, "--format", "json") == replay.EXIT_OK
    captions = Captions()
    rows = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        captions.receive(msgspec.convert(row["message"], ServerMessage))
    body = json.loads(capsys.readouterr().out)
    assert captions.committed.split() == body["text"].split() == expected(SLOTS)
    assert captions.faults == body["faults"] == []
    assert [row["at_s"] for row in rows] == sorted(row["at_s"] for row in rows)
    assert body["receipt"]["gap_samples"] == 0


def test_subtitles_of_several_files_need_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [recorded(tmp_path / "a.wav"), recorded(tmp_path / "b.wav", "xx")]
    with pytest.raises(SystemExit):
        run(*files, "--format", "srt")
    assert "--out DIR" in capsys.readouterr().err
    assert run(*files, "--format", "vtt", "--out", tmp_path / "out") == replay.EXIT_OK
    assert (tmp_path / "out" / "a.wav.vtt").read_text(encoding="utf-8").startswith("WEBVTT\n\n00:00:0")
    assert (tmp_path / "out" / "b.wav.vtt").exists()
    assert capsys.readouterr().out == ""


def test_an_unreadable_file_does_not_stop_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.mp3"
    bad.write_bytes(b"this is no music")
    assert run(bad, recorded(tmp_path / "a.wav")) == replay.EXIT_FILE
    said = capsys.readouterr()
    assert said.out.split() == expected(SLOTS)
    assert "bad.mp3: no format we can read" in said.err
    assert replay.main([str(bad)]) == replay.EXIT_FILE


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recorded(tmp_path / "a.wav", "x")
    assert run(path, "--events", tmp_path / "none" / "e.jsonl") == replay.EXIT_FILE
    assert "e.jsonl: No such file" in capsys.readouterr().err
    assert run(path, "--out", path) == replay.EXIT_FILE
    assert "a.wav: File exists" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["a.wav", "taken"])
def test_out_is_tried_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: str
) -> None:
    path = recorded(tmp_path / "a.wav", "x")
    (tmp_path / "taken" / "a.wav.txt").mkdir(parents=True)
    # Nobody listens there: had it been tried, the status would be another.
    status = replay.main([str(path), "--url", "http://127.0.0.1:9", "--out", str(tmp_path / wrong)])
    assert status == replay.EXIT_FILE
    assert wrong in capsys.readouterr().err


@pytest.mark.parametrize(
    ("streams", "status"), [("stdout", 128 + signal.SIGPIPE), ("both", replay.EXIT_FAULT)]
)
def test_a_reader_that_leaves_is_told_nothing(tmp_path: Path, streams: str, status: int) -> None:
    path = recorded(tmp_path / "a.wav", "x")
    command = [sys.executable, "-m", "streaming", "replay", str(path), "--model-less", "--speed", "max"]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command,
            stdout=writing,
            stderr=writing if streams == "both" else subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert done.returncode == status
    assert "Broken pipe" not in (done.stderr or "")
    assert "Traceback" not in (done.stderr or "")


def test_no_server_is_said_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = replay.main([str(recorded(tmp_path / "a.wav", "x")), "--url", "http://127.0.0.1:9"])
    assert status == replay.EXIT_NO_SERVER
    assert "seamscribe serve" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        (["--language", "English"], "use an ISO 639 code such as en"),
        (["--speed", "0"], "0.1 to 100"),
        (["--speed", "fast"], "0.1 to 100"),
        (["--max-delay", "0.1"], "use 0.7 to 30 seconds"),
        (["--max-delay", "soon"], "use 0.7 to 30 seconds"),
        (["--pause", "nan"], "use 0.2 to 3 seconds"),
        (["--packet-ms", "0"], "5 to 2000"),
        (["--url", "foo://bar"], "use http://HOST:PORT"),
        (["--url", ""], "use http://HOST:PORT"),
        (["--url", "http://h:99999"], "use http://HOST:PORT"),
    ],
)
def test_wrong_arguments_are_refused_with_flag_and_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], remedy: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        replay.main([str(recorded(tmp_path / "a.wav", "x")), *wrong])
    assert caught.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"argument {wrong[0]}: " in said
    assert remedy in said
    assert "regex" not in said


def test_the_demo_refuses_a_wrong_language_the_same_way(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--language", "English"])
    assert "argument --language: 'English': use an ISO 639 code" in capsys.readouterr().err


async def test_a_server_that_is_stopped_costs_the_rest_and_it_is_said(tmp_path: Path) -> None:
    path = recorded(tmp_path / "a.wav", "xx---" * 8)
    async with serving(["--engine", "fake"]) as server:
        command = ["-m", "streaming", "replay", str(path), "--url", server.url]
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=pipe, stderr=pipe)
        assert child.stderr is not None
        first = await child.stderr.readline()  # the first finished segment: the stream is well under way
        os.kill(server.pid, signal.SIGTERM)
        out, said = await child.communicate()
    assert first.strip()
    assert child.returncode == replay.EXIT_FAULT
    assert b"the server ended the stream" in said
    assert b"restarting" in said
    assert b"before all of the audio was sent" in said
    assert out.split()  # what was heard until then is kept


async def test_the_child_is_ready_and_stopped_with_the_block() -> None:
    async with serving(["--engine", "fake"]) as server, connect(server.url) as stream:
        await stream.end()
        captions = Captions()
        async for message in stream:
            captions.receive(message)
        assert captions.receipt is not None
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)


async def test_a_server_that_cannot_start_says_why() -> None:
    with pytest.raises(LaunchError, match=r"status 2[\s\S]*--engine"):
        async with serving(["--engine", "none-such"]):
            pass


def manifest(folder: Path) -> Path:
    """Two clips whose reference is what the scripted engine must hear."""
    rows = ["path\tduration_s\tlang\tspeakers\tref_quality\tref_text\tref_path"]
    for name, slots in (("a", "-xxx--xx-"), ("b", "xx----xxx")):
        path = recorded(folder / f"{name}.wav", slots)
        rows.append(f"{path.name}\t4.5\ten\t{name}\tA\t{' '.join(expected(slots))}\t")
    (folder / "MANIFEST.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


FAKE = ["--serve=--engine", "--serve=fake"]
LIVE = [*FAKE, "--no-offline"]


def test_bench_live_measures_and_keeps_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "run.json"
    options = ["--audio", str(manifest(tmp_path)), "--select", ".wav", "--streams", "2", "--json", str(kept)]
    assert bench.main(["live", *options, *LIVE]) == 0
    found = json.loads(kept.read_text(encoding="utf-8"))
    total = found["total"]
    assert total["wer_live"] == 0
    assert total["revised"] == total["failures"] == 0
    assert total["coverage"] == 1
    assert (
        total["commit"]["count"] == total["words"] == len(expected("-xxx--xx-")) + len(expected("xx----xxx"))
    )
    assert total["cpu_s_per_audio_s"] > 0
    assert total["rss_max_mib"] >= total["rss_start_mib"] > 0
    assert {"commit", "versions", "machine"} <= set(found["environment"])
    assert found["settings"]["engine"] == "fake"
    assert "WER live" in capsys.readouterr().out
    assert bench.main(["table", str(kept), str(kept)]) == 0
    header, rule, first, second = capsys.readouterr().out.splitlines()
    assert header.count("|") == rule.count("|") == first.count("|")
    assert first == second
    assert first.startswith("| slots | 2 | 0.1 min | 0.00 / - % |")


def test_bench_finds_out_at_once_that_its_result_cannot_be_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = manifest(tmp_path)
    place = folder / "a.wav" / "run.json"
    assert bench.main(["live", "--audio", str(folder), "--json", str(place), *LIVE]) == 2
    assert "a.wav" in capsys.readouterr().err


def test_bench_table_takes_live_runs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    assert bench.main(["table", str(tmp_path / "x.json")]) == 2
    assert "neither a run of bench live nor of growth: it lacks" in capsys.readouterr().err


def test_bench_growth_cuts_buckets_and_silence_stays_silent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "growth.json"
    options = ["--audio", str(manifest(tmp_path)), "--select", ".wav", "--json", str(kept)]
    minutes = ["--minutes", "1", "--silent-minutes", "1", "--bucket-minutes", "0.25"]
    assert bench.main(["growth", *options, *minutes, *FAKE]) == 0
    body = json.loads(kept.read_text(encoding="utf-8"))
    spoken, silent = body["runs"]
    assert len(spoken["buckets"]) >= 3
    assert spoken["buckets"][-1]["until_s"] == 60
    assert spoken["words"] > 50
    assert silent["words"] == 0
    assert spoken["faults"] == silent["faults"] == []
    said = capsys.readouterr().out
    assert "| silence, 1 min |" in said
    assert said.count("xychart-beta") == 2
    assert bench.main(["table", str(kept)]) == 0
    assert capsys.readouterr().out.strip() == said.strip()


def test_bench_growth_against_streams_has_a_row_for_each_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "growth.json"
    options = ["--audio", str(manifest(tmp_path)), "--select", ".wav", "--json", str(kept)]
    streams = ["--against", "streams", "--streams", "2,1", "--seconds", "4", "--ramp", "0.5"]
    assert bench.main(["growth", *options, *streams, *FAKE]) == 0
    body = json.loads(kept.read_text(encoding="utf-8"))
    assert [row[0] for row in body["rows"]] == ["1", "2"]
    assert [step["faults"] for step in body["steps"]] == [[], []]
    assert all(step["cpu_s_per_audio_s"] > 0 for step in body["steps"])
    assert body["idle_cpu_s_per_s"] >= 0
    assert "Streams at once (--engine fake)" in capsys.readouterr().out


def test_bench_formats_ends_every_file_in_text_or_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = manifest(tmp_path)
    (folder / "odd").mkdir()
    recorded(folder / "odd" / "good.wav", "xx")
    (folder / "odd" / "bad.wav").write_bytes(b"RIFF")
    assert bench.main(["formats", "--audio", str(folder), "--folder", "odd", *FAKE]) == 0
    out = capsys.readouterr().out
    assert "good.wav" in out
    assert "error" in out


def test_bench_languages_scores_and_checks_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--audio", str(manifest(tmp_path)), "--select", "a.wav", "--speed", "max", *LIVE]
    assert bench.main(["languages", *options]) == 0
    assert "0.0 WER" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["kill", "soak", "capacity", "peers"])
def test_a_bench_of_servers_of_its_own_takes_no_other(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main([kind, "--audio", str(tmp_path), "--url", "http://127.0.0.1:9"]) == 2
    assert "--url: " in capsys.readouterr().err


def test_bench_without_audio_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.main(["live", "--audio", str(tmp_path), *LIVE]) == 2
    assert "MANIFEST.tsv" in capsys.readouterr().err


def test_the_demos_reading_is_found_without_importing_its_package() -> None:
    path = recording.reading()
    if path is None:
        pytest.skip("the demo extra is not installed")
    assert path.name == "two_cities.wav"
    assert recording.READING[0] not in sys.modules


def test_the_demo_plays_the_reading_where_the_dialogue_cannot_be_had(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert demo.recording() == recording.reading()
    assert f"pip could not fetch {recording.REQUIREMENT}" in capsys.readouterr().err
    assert list(tmp_path.rglob("*.wav")) == []


def test_another_recording_than_the_pinned_one_is_not_taken(tmp_path: Path) -> None:
    wheel = tmp_path / "x.whl"
    wheel.write_bytes(b"no archive")
    with pytest.raises(recording.NoRecording, match="not the pinned recording"):
        recording.taken(wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(recording.MEMBER, b"RIFF")
    with pytest.raises(recording.NoRecording, match=r"x\.whl is not the pinned recording"):
        recording.taken(wheel)


def test_the_demo_refuses_a_file_without_audio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.wav").write_bytes(b"")
    assert demo.main([str(tmp_path / "x.wav")]) == replay.EXIT_FILE
    assert "empty" in capsys.readouterr().err


@pytest.mark.real
def test_the_demo_transcribes_real_speech(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = recording.reading()
    if source is None:
        pytest.skip("the demo extra is not installed")
    from clients.audio import RATE, load

    # The reading's first sentences: at speed 1 every second of speech is a second of test.
    samples: np.ndarray = load(source, lambda _: None)[: 8 * RATE]
    path = tmp_path / "first.pcm"
    path.write_bytes(samples.tobytes())
    assert demo.main([str(path), "--model", "tiny.en"]) == replay.EXIT_OK
    said = capsys.readouterr()
    assert "best of times" in said.out
    assert "Measured delays" in said.err
    assert "gaps 0.00 s" in said.err
