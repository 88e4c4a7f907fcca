"""`python -m clients.publish DIR`: the Python client as a distribution of its own, `seamscribe-client`: its
modules and the wire format they speak, under one name, with no server beside them. DIR is then built like any
project (`pip wheel DIR`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

MODULES = ("aio", "captions", "dialing", "kept", "reading", "transcripts")
NAME = "seamscribe_client"

_HERE = Path(__file__).resolve().parent
_WIRE = _HERE.parent / "streaming" / "wire"

_INIT = '''"""Seamscribe's client: live captions whose committed words never change."""

from .aio import ClientError, Deadlines, Disconnected, Refused, Stream, Unreachable, connect
from .captions import Captions, Turn
from .reading import read
from .wire.messages import AudioFormat, Encoding, Options, Start, Track

__all__ = [
    "AudioFormat",
    "Captions",
    "ClientError",
    "Deadlines",
    "Disconnected",
    "Encoding",
    "Options",
    "Refused",
    "Start",
    "Stream",
    "Track",
    "Turn",
    "Unreachable",
    "connect",
    "read",
]
'''

_PROJECT = f"""[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "seamscribe-client"
version = "{{version}}"
description = "Client for Seamscribe: live meeting transcription whose committed words never change"
license = "Apache-2.0"
requires-python = ">=3.11"
dependencies = ["msgspec>=0.20,<1", "websockets>=15,<18"]

[tool.setuptools]
packages = ["{NAME}", "{NAME}.wire"]

[tool.setuptools.package-data]
{NAME} = ["py.typed"]
"""


def publish(folder: Path, version: str = "0.1.0") -> Path:
    """Write the project into `folder`; returns its package."""
    package = folder / NAME
    (package / "wire").mkdir(parents=True, exist_ok=True)
    for name in MODULES:
        text = (_HERE / f"{name}.py").read_text(encoding="utf-8")
        (package / f"{name}.py").write_text(
            text.replace("from streaming.wire", "from .wire"), encoding="utf-8"
        )
    for file in _WIRE.glob("*.py"):
        (package / "wire" / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (package / "__init__.py").write_text(_INIT, encoding="utf-8")
    (package / "py.typed").touch()
    (folder / "pyproject.toml").write_text(_PROJECT.format(version=version), encoding="utf-8")
    return package


def main(argv: Sequence[str]) -> int:
    """The folder is the only argument."""
    if len(argv) != 1 or argv[0].startswith("-"):
        print("usage: python -m clients.publish DIR", file=sys.stderr)
        return 2
    print(publish(Path(argv[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
