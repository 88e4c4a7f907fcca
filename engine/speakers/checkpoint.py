"""Tensors out of a PyTorch checkpoint, without torch and without running anything it holds.

A checkpoint is a zip archive: `data.pkl`, a pickle program that describes dictionaries of tensors, and one
raw file a storage. Python's own unpickler calls what a pickle names; this reader interprets the few opcodes
that plain tensors need and has no way to call anything. Whatever it does not know it refuses.
"""

from __future__ import annotations

import io
import pickletools
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Tensor = npt.NDArray[Any]

MAX_BYTES = 256 << 20
"""Of a whole checkpoint, unpacked."""
MAX_OPCODES = 1_000_000

_DTYPES: dict[str, np.dtype[Any]] = {
    "torch FloatStorage": np.dtype("<f4"),
    "torch DoubleStorage": np.dtype("<f8"),
    "torch HalfStorage": np.dtype("<f2"),
    "torch LongStorage": np.dtype("<i8"),
    "torch IntStorage": np.dtype("<i4"),
}
_ORDERED = "collections OrderedDict"
_REBUILD = "torch._utils _rebuild_tensor_v2"
_GLOBALS = frozenset({_ORDERED, _REBUILD, *_DTYPES})
_VALUES = frozenset(
    [
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "NEWTRUE", "NEWFALSE", "NONE"),
    ]
)


class CheckpointError(ValueError):
    """The file is no checkpoint of plain tensors; the message says where it is not."""


@dataclass(frozen=True, slots=True)
class _Global:
    """A name of the pickle; a name only."""

    name: str


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: np.dtype[Any]
    key: str


_MARK = object()


def read_checkpoint(data: bytes) -> dict[str, Any]:
    """The dictionary a zip checkpoint holds, its tensors as arrays of their own.

    Values are arrays, strings, numbers, booleans, None, lists, tuples and dictionaries of these. Raises
    `CheckpointError` for anything else: other opcodes or names, a truncated or oversized archive, a tensor
    that reaches out of its storage.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MAX_BYTES:
                raise CheckpointError(f"unpacked it has more than {MAX_BYTES} bytes")
            members = {entry.filename: archive.read(entry) for entry in archive.infolist()}
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise CheckpointError(f"no zip archive, or a damaged one: {error}") from error
    programs = [name for name in members if name.rpartition("/")[2] == "data.pkl"]
    if len(programs) != 1:
        raise CheckpointError(f"it holds {len(programs)} files data.pkl, not one")
    root = programs[0].removesuffix("data.pkl")
    storages = {n.removeprefix(f"{root}data/"): d for n, d in members.items() if n.startswith(f"{root}data/")}
    try:
        found = _Interpreter(storages).run(members[programs[0]])
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"data.pkl is not one of plain tensors: {error}") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"it holds a {type(found).__name__}, not a dictionary")
    return found


class _Interpreter:
    """The pickle machine with plain data only: a stack, a memo, no calls."""

    def __init__(self, storages: Mapping[str, bytes]) -> None:
        self._storages = storages
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self, program: bytes) -> object:
        # Python warns of strange escapes in texts, which are refused anyway.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            for count, (opcode, argument, _) in enumerate(pickletools.genops(program)):
                if count >= MAX_OPCODES:
                    raise CheckpointError(f"more than {MAX_OPCODES} opcodes")
                if opcode.name == "STOP":
                    return self._stack.pop()
                self._step(opcode.name, argument)
        raise CheckpointError("no end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append({"NEWTRUE": True, "NEWFALSE": False}.get(name, argument))
            return
        match name:
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                stack.append(_MARK)
            case "GLOBAL":
                if argument not in _GLOBALS:
                    raise CheckpointError(f"it names {argument!r}, which no plain tensor needs")
                stack.append(_Global(argument))
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "EMPTY_TUPLE":
                stack.append(())
            case "TUPLE":
                stack.append(tuple(self._marked()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                count = int(name[-1])
                stack[-count:] = [tuple(stack[-count:])]
            case "BINPUT" | "LONG_BINPUT":
                self._memo[argument] = stack[-1]
            case "MEMOIZE":
                self._memo[len(self._memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(self._memo[argument])
            case "SETITEM" | "SETITEMS":
                items = self._marked() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
                self._plain(dict).update(zip(items[::2], items[1::2], strict=True))
            case "APPEND" | "APPENDS":
                items = self._marked() if name == "APPENDS" else [stack.pop()]
                self._plain(list).extend(items)
            case "BINPERSID":
                stack.append(self._storage(stack.pop()))
            case "REDUCE":
                arguments = stack.pop()
                stack.append(self._made(stack.pop(), arguments))
            case "BUILD":  # the state of an ordered dictionary (torch notes versions in it): not wanted
                stack.pop()
                self._plain(dict)
            case _:
                raise CheckpointError(f"it holds the opcode {name}, which plain tensors do not need")

    def _marked(self) -> list[Any]:
        """What lies above the newest mark, taken off with it."""
        items: list[Any] = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _plain(self, kind: type) -> Any:
        if type(self._stack[-1]) is not kind:
            raise CheckpointError(f"a {kind.__name__} was to be filled, but there is none")
        return self._stack[-1]

    def _storage(self, identity: Any) -> _Storage:
        """("storage", type, key, device, count) names one raw file."""
        kind, dtype, key = identity[:3]
        known = _DTYPES.get(dtype.name) if isinstance(dtype, _Global) else None
        if kind != "storage" or known is None:
            raise CheckpointError("a storage of an unknown kind")
        return _Storage(known, key)

    def _made(self, maker: Any, arguments: Any) -> Any:
        if maker == _Global(_ORDERED) and arguments == ():
            return {}
        if maker == _Global(_REBUILD):
            return self._tensor(*arguments[:4])
        raise CheckpointError("it calls what plain tensors do not need")

    def _tensor(self, storage: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
        """A C-ordered copy of the view (offset, shape and strides in elements) of a storage."""
        if not isinstance(storage, _Storage):
            raise CheckpointError("a tensor without a storage")
        flat = np.frombuffer(self._storages[storage.key], storage.dtype)
        if any(n < 1 for n in shape) or any(n < 0 for n in strides) or len(shape) != len(strides):
            raise CheckpointError(f"a tensor of shape {shape} and strides {strides}")
        if offset < 0 or offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) >= len(flat):
            raise CheckpointError("a tensor reaches out of its storage")
        if int(np.prod(shape, dtype=object)) > len(flat):
            raise CheckpointError("a tensor larger than its storage")
        steps = tuple(s * flat.itemsize for s in strides)
        return np.lib.stride_tricks.as_strided(flat[offset:], shape, steps).copy()
