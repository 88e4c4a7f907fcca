"""`seamscribe engine`: models by name or folder, what fits, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from engine.sglang import launcher
from engine.sglang.flags import Machine
from tests.engine.real import needs_weights


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "find_machine", lambda: Machine(memory_gib=16.0))


@needs_weights("tiny.en")
def test_a_packaged_name_is_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main(["tiny.en", "--print"]) == 0
    shown = capsys.readouterr()
    assert "--model-path" in shown.out
    assert "bytes a position" in shown.err
    assert "refused" not in shown.err


@needs_weights("tiny.en")
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--recording", "60"], "takes 30 s"),
        (["--memory-fraction", "0.99"], "exceeds the 16 GiB"),
        (["--", "--mem-fraction-static", "0.08"], "positions"),
        (["--", "--chunked-prefill-size", "4096"], "must be -1"),
    ],
)
def test_what_cannot_work_is_refused(
    arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert launcher.main(["tiny.en", "--print", *arguments]) == 2
    shown = capsys.readouterr()
    assert reason in shown.err
    assert shown.out == ""


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("--port", "0", "use 1 to 65535"),
        ("--port", "99999", "use 1 to 65535"),
        ("--running", "0", "use 1 to 8192"),
        ("--running", "many", "use 1 to 8192"),
        ("--chunk", "-1", "use 1 to"),
        ("--tokenizers", "0", "use 1 to 128"),
        ("--memory-fraction", "5", "use 0.05 to 0.99"),
        ("--memory-fraction", "nan", "use 0.05 to 0.99"),
        ("--recording", "-5", "use 0 to 86400"),
    ],
)
def test_numbers_that_cannot_be_are_refused_before_anything_starts(
    name: str, value: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        launcher.main(["tiny.en", "--print", f"{name}={value}"])
    assert ended.value.code == 2
    assert f"argument {name}: '{value}' cannot be: {remedy}" in capsys.readouterr().err


def test_models_of_the_other_server_and_unknown_ones_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert launcher.main(["moss_td", "--print"]) == 2
    assert "name the folder of its weights" in capsys.readouterr().err
    assert launcher.main(["nowhere", "--print"]) == 2
    assert "no model 'nowhere'" in capsys.readouterr().err
