"""Settings are read once, in layers, and a typo is refused with its path."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from streaming.errors import SettingsError
from streaming.settings import LISTS, Settings, load

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def written(folder: Path, text: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_nothing_said_means_defaults() -> None:
    assert load(None, {}) == Settings()


def test_later_layers_win(tmp_path: Path) -> None:
    file = written(tmp_path, "[server]\nport = 1\nhost = 'a'\n[session]\npause_s = 1\n")
    environment = {"SEAMSCRIBE_SERVER__PORT": "2", "SEAMSCRIBE_ENGINE__KIND": "fake", "SEAMSCRIBE_KEY": "x"}
    settings = load(file, environment, {"server.port": 3, "engine.model": None})
    assert (settings.server.host, settings.server.port) == ("a", 3)
    assert (settings.session.pause_s, settings.engine.kind, settings.engine.model) == (1.0, "fake", "")
    assert load(file, environment).server.port == 2


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[server]\nprot = 1", "server.prot"),
        ("[sever]\nport = 1", "sever"),
        ("[session]\nmax_delay = 1", "session.max_delay"),
        ("[limits]\nmax_sessions = 0", "limits.max_sessions"),
        ("[server]\nport = 'x'", "server.port"),
        ("[server]\nport = '8000'", "server.port"),
        ("[session]\npause_s = -1", "session.pause_s"),
        ("[session]\npause_s = 0.2\npad_s = 0.2", "session.pad_s"),
        ("[engine]\nmax_window_s = 0", "engine.max_window_s"),
        ("[engine]\nservers = ['gpu:30000']", "engine.servers"),
        ("[engine]\nservers = ['http://a:1', 'http://']", "engine.servers"),
        ("[engine]\nservers = ['http://a:99999']", "engine.servers"),
        ("[engine]\nservers = ['http://a:1']\nrecording_servers = ['b']", "engine.recording_servers"),
        ("[engine]\nrecording_servers = ['http://a:1']", "engine.recording_servers"),
        ("[limits]\nmax_backlog_s = nan", "limits.max_backlog_s"),
        ("session = 3", "session"),
        ("[session]\nvoice_on = 0.2", "session.voice_on"),
        ("[session]\nstarve_s = 3.9", "session.starve_s"),
        ("[session]\nvoice_on = 1.5", "session.voice_on"),
        ("[session]\nconfidence = 60", "session.confidence"),
        ("[session]\npause_s = inf", "session.pause_s"),
        ("[session]\npause_s = nan", "session.pause_s"),
        ("[session]\nsegment_s = 1e300", "session.segment_s"),
        ("[session]\nonset_s = 1e-6", "session.onset_s"),
        ("[session]\npause_s = 0.33334\npad_s = 0.16667", "session.pad_s"),
        ("[session]\nwindow_s = 0.01", "session.window_s"),
        ("[session]\nwindow_s = 1.0", "session.window_s"),
        ("[session]\nkeep_s = 22", "session.window_s"),
        ("[engine]\nmax_window_s = 9.9", "engine.max_window_s"),
        ("[limits]\nmax_session_s = inf", "limits.max_session_s"),
        ("[limits]\nmax_session_s = 1e18", "limits.max_session_s"),
        ("[limits]\nmax_packet_bytes = 9000000000000000000", "limits.max_packet_bytes"),
        ("[server]\ndrain_s = inf", "server.drain_s"),
        ("[server]\nkeep_finished_s = inf", "server.keep_finished_s"),
        ("[server]\nhost = ''", "server.host"),
        ("[server]\nhost = ' '", "server.host"),
        ("[session]\nspeakers = 1", "session.speakers"),
        ("[encoder]\nthreads = 0", "encoder.threads"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_path(tmp_path: Path, text: str, path: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert str(caught.value).startswith(f"{path} in {file}")


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("http://a:1", ("http://a:1",)),
        ("http://a:1, http://b:2,", ("http://a:1", "http://b:2")),
        ("", ()),
    ],
)
def test_a_list_from_the_environment(text: str, servers: tuple[str, ...]) -> None:
    assert load(None, {"SEAMSCRIBE_ENGINE__SERVERS": text}).engine.servers == servers


def test_every_list_can_come_from_the_environment() -> None:
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    lists = {
        f"{name}.{field.name}"
        for name in ("server", "sites", "engine", "encoder", "limits")
        for field in msgspec.structs.fields(sections[name])
        if isinstance(field.default, tuple)
    }
    assert lists == LISTS


def test_speakers_can_be_left_alone_in_every_layer(tmp_path: Path) -> None:
    assert load(None, {}).session.speakers
    assert not load(written(tmp_path, "[session]\nspeakers = false"), {}).session.speakers
    assert not load(None, {"SEAMSCRIBE_SESSION__SPEAKERS": "false"}).session.speakers
    assert not load(None, {}, {"session.speakers": False}).session.speakers


def test_the_layer_that_spoils_a_setting_is_named(tmp_path: Path) -> None:
    file = written(tmp_path, "[session]\nkeep_s = 8\n")
    with pytest.raises(SettingsError, match=r"^session\.window_s in the environment: 11 is less than 12"):
        load(file, {"SEAMSCRIBE_SESSION__WINDOW_S": "11"})
    with pytest.raises(SettingsError, match=r"^server\.host on the command line"):
        load(file, {}, {"server.host": ""})
    with pytest.raises(SettingsError, match=r"^session\.pause_s in the environment: inf"):
        load(file, {"SEAMSCRIBE_SESSION__PAUSE_S": "inf"})


def test_unknown_keys_name_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"known here: .*max_delay_s"):
        load(written(tmp_path, "[session]\nmax_delay = 1"), {})
    with pytest.raises(SettingsError, match=r"server\.prt in the environment: unknown .*port"):
        load(None, {"SEAMSCRIBE_SERVER__PRT": "1"})
    with pytest.raises(SettingsError, match=r"server\.port on the command line"):
        load(None, {}, {"server.port": 99_999})


def test_bad_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path / "none.toml", {})
    with pytest.raises(SettingsError, match="is not TOML"):
        load(written(tmp_path, "[server"), {})


def test_three_numbers_stay_apart(tmp_path: Path) -> None:
    text = "[engine]\nmax_window_s = 29\n[session]\nwindow_s = 20\n[limits]\nmax_session_s = 100\n"
    settings = load(written(tmp_path, text), {})
    assert settings.engine.max_window_s == 29
    assert settings.session.window_s == 20
    assert settings.limits.max_session_s == 100


@pytest.mark.parametrize("name", ["dev.toml", "production.toml"])
def test_shipped_files_load(name: str) -> None:
    assert load(CONFIGS / name, {}) != Settings()


def test_audio_is_not_kept_beside_words_that_are_struck_out_unless_that_is_said(tmp_path: Path) -> None:
    text = '[journal]\naudio = true\n[privacy]\nredact = "a:b"\n'
    with pytest.raises(SettingsError, match=r"^journal\.audio in .*privacy\.keep_audio = true"):
        load(written(tmp_path, text), {})
    assert load(written(tmp_path, text + "keep_audio = true\n"), {}).journal.audio
    assert not load(
        written(tmp_path, text.replace("audio = true", "audio = true\non = false")), {}
    ).journal.on
