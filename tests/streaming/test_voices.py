"""Enrolled voices: what is kept, for whom, and what cannot be used is told with its remedy."""

from __future__ import annotations

import json
import os
import pickle
import stat
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.contract import (
    SAMPLE_RATE,
    Audio,
    LocalSpeaker,
    SpeakerTask,
    SpeakerTraits,
    SpeakerWindow,
    Vector,
)
from streaming import enrol
from streaming.cli import main
from streaming.kept.voices import SUFFIX, VoiceError, VoiceStore
from streaming.settings import EncoderSettings, Settings, voices_folder
from streaming.wire.errors import ProtocolError
from tests.support.recordings import recorded
from tests.support.virtual import run

TRAITS = SpeakerTraits("ears", 4, 10.0, 0.4)
ADA = np.array([1, 0, 0, 0], dtype=np.float32)
BEA = np.array([0.6, 0.8, 0, 0], dtype=np.float32)


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return VoiceStore(tmp_path / "kept" / "voices")


def test_a_voice_comes_back_as_it_was_kept(store: VoiceStore) -> None:
    store.add("Ada", ADA, 12.5, TRAITS)
    store.add("Bea", BEA, 3.0, TRAITS)
    loaded = store.load(["Bea", "Ada"], TRAITS)
    assert list(loaded) == ["Bea", "Ada"]
    assert all(vector.dtype == np.float32 for vector in loaded.values())
    np.testing.assert_array_equal(loaded["Bea"], BEA)
    assert [(v.name, v.seconds, v.model, v.fault) for v in store.list()] == [
        ("Ada", 12.5, "ears", None),
        ("Bea", 3.0, "ears", None),
    ]
    store.delete("Ada")
    assert [v.name for v in store.list()] == ["Bea"]
    assert len(list(store.folder.iterdir())) == 1


def test_only_its_owner_reads_a_voice_and_no_half_of_one_is_left(store: VoiceStore) -> None:
    path = store.add("Ada", ADA, 1.0, TRAITS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    assert list(store.folder.iterdir()) == [path]
    assert set(json.loads(path.read_text("utf-8"))) == {
        "version",
        "name",
        "model",
        "dimension",
        "seconds",
        "vector",
    }


def test_a_name_is_enrolled_once_and_however_it_is_typed(store: VoiceStore) -> None:
    store.add("Zoe\u0308", ADA, 1.0, TRAITS)
    with pytest.raises(VoiceError, match="enrolled already: delete it first"):
        store.add(" Zoë ", BEA, 1.0, TRAITS)
    np.testing.assert_array_equal(store.load(["Zoë"], TRAITS)["Zoë"], ADA)


@given(st.text(min_size=1, max_size=64))
@example("../../etc/passwd")
@example("/etc/passwd")
@example("a/../b")
def test_no_name_leaves_the_folder(name: str) -> None:
    store = VoiceStore(Path("voices"))
    path = store._path(name.encode("utf-8", "replace").decode())
    assert path.parent == store.folder
    assert path.suffix == SUFFIX


@pytest.mark.parametrize("name", ["", "  ", "x" * 65, "a\nb", "a\x00b"])
def test_what_cannot_be_a_name(store: VoiceStore, name: str) -> None:
    with pytest.raises(VoiceError, match=r"^NAME .*: use "):
        store.add(name, ADA, 1.0, TRAITS)
    with pytest.raises(VoiceError, match=r"^NAME "):
        store.delete(name)


def test_an_unknown_voice_names_field_and_remedy(store: VoiceStore) -> None:
    store.add("Ada", ADA, 1.0, TRAITS)
    with pytest.raises(ProtocolError, match=r"^voices: 'Bob' is not enrolled here: leave it out") as caught:
        store.load(["Ada", "Bob"], TRAITS)
    assert (caught.value.code, caught.value.field) == ("unknown_voice", "voices")
    assert "Ada" not in caught.value.message  # who else is enrolled is nobody's business
    with pytest.raises(VoiceError, match="'Bob' is not enrolled: see seamscribe voice list"):
        store.delete("Bob")


@pytest.mark.parametrize(
    ("traits", "fault"),
    [
        (SpeakerTraits("noses", 4, 10.0, 0.4), r"encoder ears \(4 numbers\), this server has noses \(4\)"),
        (SpeakerTraits("ears", 5, 10.0, 0.4), r"ears \(5\)"),
    ],
)
def test_a_voice_of_another_encoder_is_refused(store: VoiceStore, traits: SpeakerTraits, fault: str) -> None:
    store.add("Ada", ADA, 1.0, TRAITS)
    with pytest.raises(ProtocolError, match=fault) as caught:
        store.load(["Ada"], traits)
    assert (caught.value.code, caught.value.field) == ("unusable_voice", "voices")


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        ({"vector": [1.0, 0.0]}, "damaged"),
        ({"vector": [2.0, 0.0, 0.0, 0.0]}, "damaged"),
        ({"version": 2}, "version 2"),
        ({"extra": 1}, "damaged"),
        ({"name": 3}, "damaged"),
    ],
)
def test_damaged_files_are_told(store: VoiceStore, spoil: dict[str, object], fault: str) -> None:
    path = store.add("Ada", ADA, 1.0, TRAITS)
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | spoil), "utf-8")
    with pytest.raises(ProtocolError, match=fault):
        store.load(["Ada"], TRAITS)
    path.write_bytes(b"[" * 5000)
    with pytest.raises(ProtocolError, match="damaged"):
        store.load(["Ada"], TRAITS)
    (voice,) = store.list()
    assert (voice.name, voice.fault) == (path.name, "its file is damaged or of another program")


@pytest.mark.parametrize(
    "content", [pickle.dumps({"name": "Ada"}), b"\0" * (3 << 20), b'{"name": "\x1b[2J"}', b""]
)
def test_what_is_no_voice_is_not_read_as_one(store: VoiceStore, content: bytes) -> None:
    path = store.add("Ada", ADA, 1.0, TRAITS)
    path.write_bytes(content)
    with pytest.raises(ProtocolError, match="damaged or of another program"):
        store.load(["Ada"], TRAITS)
    assert [(voice.name, bool(voice.fault)) for voice in store.list()] == [(path.name, True)]
    store.delete("Ada")
    assert store.list() == []


def test_nobody_is_recognized_by_the_voice_of_another(store: VoiceStore) -> None:
    """A file under another name says so: it would name the wrong one, and could not be deleted."""
    path = store.add("Ada", ADA, 1.0, TRAITS)
    other = store.add("Bea", BEA, 1.0, TRAITS)
    path.write_bytes(other.read_bytes())
    with pytest.raises(ProtocolError, match="the voice of 'Bea' under another name"):
        store.load(["Ada"], TRAITS)
    store.load(["Bea"], TRAITS)
    assert {(voice.name, bool(voice.fault)) for voice in store.list()} == {(path.name, True), ("Bea", False)}


def test_a_pipe_among_the_voices_is_not_waited_for(store: VoiceStore) -> None:
    path = store.add("Ada", ADA, 1.0, TRAITS)
    os.mkfifo(store.folder / f"pipe{SUFFIX}")
    (store.folder / f"folder{SUFFIX}").mkdir()
    assert sorted((v.name, v.fault or "") for v in store.list()) == [
        ("Ada", ""),
        (f"folder{SUFFIX}", "it is no file"),
        (f"pipe{SUFFIX}", "it is no file"),
    ]
    assert path.is_file()


def test_a_vector_that_is_none_is_not_kept(store: VoiceStore) -> None:
    for vector in (ADA[:3], ADA * 2, ADA * np.float32(np.nan)):
        with pytest.raises(VoiceError, match="damaged"):
            store.add("Ada", vector, 1.0, TRAITS)
    assert not store.folder.exists()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(VoiceError, match=r"set encoder\.voices to another folder"):
        VoiceStore(tmp_path / "file" / "voices").add("Ada", ADA, 1.0, TRAITS)
    assert VoiceStore(tmp_path / "nowhere").list() == []


def test_where_voices_are_kept(tmp_path: Path) -> None:
    chosen = Settings(encoder=EncoderSettings(voices=str(tmp_path)))
    assert voices_folder(chosen, {}) == tmp_path
    assert voices_folder(Settings(), {"XDG_DATA_HOME": "/x"}) == Path("/x/seamscribe/voices")


class Ears:
    """An encoder to which loud audio is Ada's, and in `mixed` audio every second window holds Bea too."""

    traits = TRAITS

    def __init__(self, *, mixed: bool = False) -> None:
        self.mixed = mixed
        self.closed = False

    async def embed(self, audio: Audio) -> Vector | None:
        return ADA if np.abs(audio).max(initial=0) > 0.01 else None

    async def voices(self, task: SpeakerTask) -> SpeakerWindow:
        assert len(task.audio) <= TRAITS.window_s * SAMPLE_RATE
        whole = ((task.start, task.end),)
        speakers = [LocalSpeaker(whole, ADA, len(task.audio)), LocalSpeaker(whole, None, 0)]
        if self.mixed and task.start:
            speakers.append(LocalSpeaker(whole, np.array([0, 1, 0, 0], np.float32), 3 * SAMPLE_RATE))
        return SpeakerWindow(task.start, task.end, tuple(speakers))

    async def close(self) -> None:
        self.closed = True


def test_one_voice_is_enrolled_and_two_or_none_are_not() -> None:
    async def checks() -> None:
        loud = np.full(25 * SAMPLE_RATE, 0.1, dtype=np.float32)
        np.testing.assert_array_equal(await enrol.embedded(Ears(), loud), ADA)
        with pytest.raises(VoiceError, match=r"one person \(similarity 0\.00, less than 0\.4\)"):
            await enrol.embedded(Ears(mixed=True), loud)
        with pytest.raises(VoiceError, match="too little speech"):
            await enrol.embedded(Ears(), loud * 0)

    run(checks())


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ears = Ears()
    monkeypatch.setattr(enrol, "open_encoder", lambda _: ears)
    config = tmp_path / "s.toml"
    config.write_text(f"[encoder]\nvoices = '{tmp_path / 'voices'}'\n", "utf-8")
    file = tmp_path / "ada.wav"
    file.write_bytes(recorded("wav", np.full(70 * SAMPLE_RATE, 9000, np.int16)))

    def voice(*arguments: str) -> tuple[int, str, str]:
        status = main(["voice", "--config", str(config), *arguments])
        said = capsys.readouterr()
        return status, said.out, said.err

    status, out, err = voice("list")
    assert (status, out, "nobody is enrolled" in err) == (0, "", True)
    status, out, err = voice("add", "Ada", str(file))
    assert (status, out) == (0, "")
    assert ears.closed
    assert "enrolled 'Ada' from 60.0 s" in err
    assert "only the first 60 s are used" in err
    assert "4 numbers computed from the voice by ears" in err
    assert "no audio" in err
    assert voice("list")[:2] == (0, "Ada\t60.0 s, ears\n")
    assert voice("add", "Ada", str(file))[0] == 1
    assert "no.wav: No such file" in voice("add", "Bea", str(tmp_path / "no.wav"))[2]
    assert f"{config}: " in voice("add", "Bea", str(config))[2], "no recording"
    assert voice("delete", "Ada")[0] == 0
    assert voice("delete", "Ada")[0] == 1
    assert list((tmp_path / "voices").iterdir()) == []
    config.write_text("[encoder]\nvoice = 'x'\n", "utf-8")
    status, _, err = voice("list")
    assert (status, "encoder.voice" in err) == (2, True)
