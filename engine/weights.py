"""Weights that come as packages: find them, check them, hand out a folder.

`seamscribe weights [NAME] [--to DIR]`. Nothing is loaded whose SHA-256 is not the pinned one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from .contract import EngineError
from .policies import POLICIES
from .policies.opening import convert_packaged

DEFAULT_MODEL = "base"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_BLOCK = 1 << 20
REQUIRED = ("model.bin", "tokenizer.json", "config.json")
"""Files without which a folder is no model."""


class WeightsError(EngineError):
    """Weights are missing, incomplete or altered; the message names the remedy."""

    def __init__(self, message: str) -> None:
        super().__init__("weights", message, retryable=False)


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file of a model: `parts` are "package:path" and are joined in order."""

    name: str
    sha256: str
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model whose files lie in installed packages that the extra `extra` brings."""

    name: str
    extra: str
    languages: str
    files: tuple[PinnedFile, ...]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256("".join(f.sha256 for f in self.files).encode()).hexdigest()[:12]


def _pins() -> dict[str, PackagedModel]:
    pins = tomllib.loads((files(__package__) / "weights.toml").read_text("utf-8"))
    return {
        name: PackagedModel(
            name,
            pin["extra"],
            pin["languages"],
            tuple(PinnedFile(file["name"], file["sha256"], tuple(file["parts"])) for file in pin["files"]),
        )
        for name, pin in pins.items()
    }


PACKAGED: dict[str, PackagedModel] = _pins()
"""The models that come as packages, by name."""


def find_weights(model: str, *, fetch: bool = True) -> Path:
    """A folder with the verified files of `model`: packaged name, folder, or hub name (`owner/name`).

    A hub name is downloaded unless `fetch` is off; then only an earlier download counts. Raises
    `WeightsError` naming what is missing and the command that brings it.
    """
    if model in PACKAGED:
        return _packaged(PACKAGED[model])
    folder = Path(model).expanduser()
    if folder.is_dir():
        return check_folder(folder)
    if _HUB_NAME.fullmatch(model):
        return _from_hub(model, fetch=fetch)
    raise WeightsError(
        f"no model {model!r}: it is neither a packaged one ({', '.join(sorted(PACKAGED))}),"
        " nor a folder, nor a hub name (owner/name)"
    )


def check_folder(folder: Path) -> Path:
    """`folder` if it holds a converted model; raises `WeightsError` naming the file it lacks."""
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if missing:
        raise WeightsError(f"{folder} is no converted model: it lacks {', '.join(missing)}")
    return folder


def missing_packages(model: PackagedModel) -> list[str]:
    """Packages of `model` that are not installed, or lack their file."""
    parts = {part for file in model.files for part in file.parts}
    return sorted({part.partition(":")[0] for part in parts if _locate(part) is None})


def cache_dir() -> Path:
    """Where joined weights and the record of verified files live (`XDG_CACHE_HOME`)."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "seamscribe"


def _packaged(model: PackagedModel) -> Path:
    if missing := missing_packages(model):
        raise WeightsError(
            f"the weights of {model.name!r} are not installed ({', '.join(missing)});"
            f" bring them with: pip install 'seamscribe[{model.extra}]'"
        )
    sources = {file.name: [p for part in file.parts if (p := _locate(part))] for file in model.files}
    folders = {path.parent for paths in sources.values() for path in paths}
    if len(folders) == 1 and all(len(paths) == 1 for paths in sources.values()):
        folder = folders.pop()
        _verify(folder, model)
        return folder
    return _joined(model, sources)


def _locate(part: str) -> Path | None:
    """The file a "package:path" part names, without importing the package."""
    package, _, relative = part.partition(":")
    spec = find_spec(package)
    for root in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(root) / relative
        if path.is_file():
            return path
    return None


def _joined(model: PackagedModel, sources: dict[str, list[Path]]) -> Path:
    """Join split files into the cache, once; concurrent starts do not see each other's half work."""
    target = cache_dir() / "weights" / f"{model.name}-{model.fingerprint}"
    if target.is_dir():
        with contextlib.suppress(WeightsError):
            _verify(target, model)
            return target
        shutil.rmtree(target, ignore_errors=True)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{model.name}-", dir=target.parent))
    except OSError as error:
        raise WeightsError(
            f"cannot write the joined weights below {target.parent}: {error.strerror};"
            " set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    try:
        for name, paths in sources.items():
            _concatenate(paths, work / name)
        _verify(work, model, remember=False)
        with contextlib.suppress(OSError):  # another process was first: its folder is as good
            work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    _verify(target, model)
    return target


def _concatenate(paths: Sequence[Path], target: Path) -> None:
    with target.open("wb") as out:
        for path in paths:
            with path.open("rb") as source:
                shutil.copyfileobj(source, out, _BLOCK)


def _verify(folder: Path, model: PackagedModel, *, remember: bool = True) -> None:
    """Check every pinned file; raises `WeightsError` at the first that differs.

    A file whose size and modification time are those of its last good check is not read again.
    """
    record = _read_record()
    changed = False
    for file in model.files:
        path = folder / file.name
        try:
            stat = path.stat()
        except OSError as error:
            raise WeightsError(f"{path} cannot be read: {error.strerror}") from error
        state = [stat.st_size, stat.st_mtime_ns, file.sha256]
        if record.get(str(path)) == state:
            continue
        found = sha256_of(path)
        if found != file.sha256:
            raise WeightsError(
                f"{path} is not the pinned file: SHA-256 {found[:16]}..., expected {file.sha256[:16]}...;"
                f" reinstall it with: pip install --force-reinstall 'seamscribe[{model.extra}]'"
            )
        record[str(path)] = state
        changed = True
    if changed and remember:
        _write_record(record)


def sha256_of(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _record_path() -> Path:
    return cache_dir() / "verified.json"


def _read_record() -> dict[str, object]:
    """Earlier checks; anything unreadable counts as none."""
    try:
        found = json.loads(_record_path().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write_record(record: dict[str, object]) -> None:
    """Remember good checks; where nothing can be written the next start checks again."""
    path = _record_path()
    with contextlib.suppress(OSError), _replacing(path) as temporary:
        temporary.write_text(json.dumps(record, indent=1), "utf-8")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary sibling that takes the place of `path` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _from_hub(name: str, *, fetch: bool) -> Path:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError as error:
        raise WeightsError(
            "hub names need huggingface_hub; bring it with: pip install 'seamscribe[engine]'"
        ) from error
    try:
        folder = snapshot_download(
            name, allow_patterns=["*.bin", "*.json", "vocabulary.*"], local_files_only=not fetch
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise WeightsError(
            f"{name} is not here and could not be fetched from the hub ({type(error).__name__}): check the"
            " name and the network, or give the path of a folder that holds the converted model"
        ) from error
    return check_folder(Path(folder))


def main(argv: Sequence[str]) -> int:
    """`seamscribe weights [NAME] [--to DIR [--format hf]]`: list, verify, copy or convert.

    Exit status 1 if a packaged model is missing; the speaker networks are listed, and can be done without.
    """
    from .speakers import weights as speakers  # it needs this module

    if argv and argv[0] == "speakers":
        return speakers.main(argv[1:])
    parser = argparse.ArgumentParser(
        prog="seamscribe weights",
        description="Find and verify model weights; the name `speakers` brings the speaker networks.",
    )
    parser.add_argument("name", nargs="?", help="a packaged model, a folder, or a hub name; all if left out")
    parser.add_argument("--to", type=Path, metavar="DIR", help="copy the verified files into DIR")
    parser.add_argument(
        "--format",
        choices=("native", "hf"),
        default="native",
        help="hf: as a Hugging Face folder, which SGLang and transformers load",
    )
    options = parser.parse_args(argv)
    if options.name is None:
        if options.to is not None:
            parser.error("--to needs the name of a model")
        missing = max([_report(model) for model in PACKAGED])
        speakers.report()
        return missing
    try:
        folder = find_weights(_short(options.name))
        if options.to is not None:
            if options.format == "hf":
                convert_packaged(folder, options.to)
            else:
                shutil.copytree(folder, options.to, dirs_exist_ok=True)
            folder = options.to
    except (WeightsError, OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0


def _short(name: str) -> str:
    """A packaged model's own name, also where its family stands before it."""
    for family in POLICIES:
        if (bare := name.removeprefix(f"{family}-")) in PACKAGED:
            return bare
    return name


def _report(name: str) -> int:
    try:
        folder = find_weights(name)
    except WeightsError as error:
        sys.stdout.write(f"{name}: missing: {error}\n")
        return 1
    sys.stdout.write(f"{name}: verified ({PACKAGED[name].languages}): {folder}\n")
    return 0
