"""The command finds its subcommands and says what is wrong in one line."""

from __future__ import annotations

import socket
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from streaming import app
from streaming.cli import COMMANDS, main
from streaming.serve import listen
from streaming.settings import EngineSettings


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 0
    assert all(name in capsys.readouterr().out for name in ["serve"])
    with pytest.raises(SystemExit) as caught:
        main(["nonsense"])
    assert caught.value.code == 2
    assert "serve" in capsys.readouterr().err


def test_the_version_is_the_installed_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"seamscribe {version('seamscribe')}\n"


def test_options_after_the_name_are_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", "--help"])
    assert caught.value.code == 0
    assert "--engine" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_names_a_module_of_ours(name: str) -> None:
    module = COMMANDS[name][0].partition(":")[0]
    assert module.split(".")[0] in {"streaming", "engine", "clients"}
    assert find_spec(module) is not None


def test_unusable_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.toml"
    file.write_text("[server]\nprot = 1\n", encoding="utf-8")
    assert main(["serve", "--engine", "fake", "--config", str(file)]) == 2
    assert "server.prot" in capsys.readouterr().err


def test_a_taken_port(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--engine", "fake", "--port", str(port)]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_no_host_is_not_every_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--engine", "fake", "--host", "", "--port", "0"]) == 2
    assert "server.host on the command line" in capsys.readouterr().err


def has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on this machine")
@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_host_may_stand_in_brackets(host: str) -> None:
    with listen(host, 0) as listener:
        assert listener.getsockname()[0] == "::1"


def test_the_fake_engine_needs_no_heavy_library() -> None:
    recognizer, _ = app.ENGINES["fake"](EngineSettings())
    assert recognizer.capabilities.engine == "fake"
