"""The checkpoint reader gives plain tensors, and runs nothing."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.speakers.checkpoint import CheckpointError, read_checkpoint

FLOATS = np.arange(12, dtype="<f4")


def archive(program: bytes, **storages: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("net/data.pkl", program)
        for key, data in storages.items():
            file.writestr(f"net/data/{key}", data)
    return out.getvalue()


def tensor(offset: int = 0, shape: str = "K\x03K\x04\x86", strides: str = "K\x04K\x01\x86") -> bytes:
    """{"w": tensor} as torch writes it: storage "0" of 12 floats, seen through offset, shape and strides."""
    view = f"K{chr(offset)}{shape}{strides}".encode("latin-1")
    return (
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storage"
        b"ctorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x0ctQ" + view + b"\x89"
        b"ccollections\nOrderedDict\n)RtRs."
    )


def test_a_tensor_is_read() -> None:
    found = read_checkpoint(archive(tensor(), **{"0": FLOATS.tobytes()}))
    assert np.array_equal(found["w"], FLOATS.reshape(3, 4))
    assert found["w"].flags.owndata


def test_a_strided_view_is_read() -> None:
    program = tensor(offset=1, shape="K\x02K\x03\x86", strides="K\x01K\x04\x86")
    found = read_checkpoint(archive(program, **{"0": FLOATS.tobytes()}))
    assert np.array_equal(found["w"], [[1, 5, 9], [2, 6, 10]])


def test_plain_settings_are_read() -> None:
    settings = {"rate": 16000, "sizes": [1, 2], "pair": (1.5, None), "on": True, "name": "x"}
    assert read_checkpoint(archive(pickle.dumps(settings, 2))) == settings


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (1, "K\x03K\x04\x86", "K\x04K\x01\x86"),
        (0, "K\x04K\x04\x86", "K\x04K\x01\x86"),
        (0, "K\x7fK\x7f\x86", "K\x00K\x00\x86"),
        (0, "K\x03K\x04\x86", "K\x01\x85"),
        (0, "J\xff\xff\xff\xffK\x04\x86", "K\x04K\x01\x86"),
    ],
)
def test_a_tensor_stays_in_its_storage(offset: int, shape: str, strides: str) -> None:
    with pytest.raises(CheckpointError):
        read_checkpoint(archive(tensor(offset, shape, strides), **{"0": FLOATS.tobytes()}))


class Evil:
    """A pickle of this runs a command where a pickle may."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.mark}'",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_nothing_a_pickle_names_is_called(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    program = pickle.dumps({"w": Evil(mark)}, protocol)
    with pytest.raises(CheckpointError):
        read_checkpoint(archive(program))
    assert not mark.exists()
    pickle.loads(program)  # the same bytes do run where they may: the pickle is a real one
    assert mark.exists()


@pytest.mark.parametrize(
    "program",
    [
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n(cos\nsystem\nX\x02\x00\x00\x00lstRs.",
        b"\x80\x02ccollections\nOrderedDict\n(X\x01\x00\x00\x00atR.",
        b"\x80\x02ctorch\nFloatStorage\n)R.",
        b"(S'ls'\nios\nsystem\n.",
        b"\x80\x02}}b",
        b"\x80\x02]}b.",
        b"\x80\x02K\x01.",
        b"\x80\x02}X\x01\x00\x00\x00at.",
        b"",
    ],
    ids=[
        "os.system",
        "arguments",
        "a type",
        "INST",
        "no end",
        "state of a list",
        "a number",
        "no mark",
        "empty",
    ],
)
def test_other_programs_are_refused(program: bytes) -> None:
    with pytest.raises(CheckpointError):
        read_checkpoint(archive(program))


def test_ordered_dictionaries_are_read_as_plain_ones() -> None:
    assert read_checkpoint(archive(pickle.dumps({"a": OrderedDict()}, 2))) == {"a": {}}


def test_truncated_archives_are_refused() -> None:
    whole = archive(tensor(), **{"0": FLOATS.tobytes()})
    for size in range(0, len(whole), 7):
        with pytest.raises(CheckpointError):
            read_checkpoint(whole[:size])


def test_a_truncated_storage_is_refused() -> None:
    with pytest.raises(CheckpointError):
        read_checkpoint(archive(tensor(), **{"0": FLOATS.tobytes()[:-4]}))


def test_an_archive_that_unpacks_to_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.speakers.checkpoint.MAX_BYTES", 100)
    with pytest.raises(CheckpointError, match="more than 100 bytes"):
        read_checkpoint(archive(tensor(), **{"0": FLOATS.tobytes()}))


@given(st.binary(max_size=200), st.integers(0, 120))
@example(rb"S'\ '" + b"\n", 0)  # of which Python warns
def test_any_bytes_give_a_dictionary_or_the_error(noise: bytes, kept: int) -> None:
    for program in (noise, tensor()[:kept] + noise):
        try:
            found = read_checkpoint(archive(program, **{"0": FLOATS.tobytes()}))
        except CheckpointError:
            continue
        assert isinstance(found, dict)
