"""The arrows between packages, model names kept out of shared code, and sizes a reader can hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from engine.policies import POLICIES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("streaming", "engine", "clients")
MAX_FILE = 400
MAX_FUNCTION = 50

# The first row whose prefix fits a module says which of our modules it may import.
ALLOWED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("streaming.wire", ("streaming.wire",)),
    ("streaming.core", ("streaming.core", "engine.contract")),
    ("streaming.sockets.bridge", ("streaming",)),
    ("streaming.dialects", ("streaming.dialects", "streaming.wire", "streaming.denial")),
    # It finds every command by name.
    ("streaming.cli", PACKAGES),
    ("streaming", ("streaming", "engine")),
    ("engine", ("engine",)),
    # The bench of speakers runs the linker alone beside the server, to tell its errors from the text's.
    ("clients.bench.speakers_direct", ("clients", "streaming.core", "engine")),
    ("clients.bench.speakers", ("clients", "streaming.core", "streaming.wire", "engine")),
    # The simulation lets meetings in by the server's own rules.
    ("clients.bench.fleet", ("clients", "streaming.sessions.capacity", "engine")),
    ("clients.bench", ("clients", "streaming.wire", "engine")),
    # What must be heard is the scripted engine's to say.
    ("clients.chaos", ("clients", "streaming.wire", "engine.fake")),
    ("clients", ("clients", "streaming.wire")),
)

# The service's floors, from the ground up: a module imports from its own floor and those below.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("streaming.core", "streaming.wire", "streaming.version", "streaming.heap", "streaming.background"),
    ("streaming.errors", "streaming.denial"),
    ("streaming.dialects", "streaming.cluster.settings", "streaming.engine_settings"),
    ("streaming.access", "streaming.audio", "streaming.observe"),
    ("streaming.settings",),
    ("streaming.kept",),
    ("streaming.cluster",),
    ("streaming.sessions",),
    ("streaming.sockets",),
    ("streaming.files",),
    ("streaming.deepgram", "streaming.openai"),
    ("streaming.web",),
    ("streaming.app", "streaming.crew"),
    ("streaming.serve", "streaming.enrol"),
    ("streaming.cli",),
    ("streaming.__main__",),
)

BESIDE = ("streaming.dialects", "streaming.access", "streaming.audio", "streaming.observe")
"""These know nothing of others on their floor."""

# Pure parts: no clock, thread, log, environment, no await.
PURE = (
    "streaming/core",
    "streaming/wire",
    "engine/queue.py",
    "engine/guards.py",
    "clients/captions.py",
    "clients/transcripts.py",
    "clients/kept.py",
    "streaming/kept/log.py",
    "streaming/kept/packed.py",
    "streaming/audio/splice.py",
    "streaming/dialects",
)
IMPURE = frozenset({"asyncio", "time", "random", "logging", "os", "socket", "threading"})

# Libraries whose own names hold a model's name; naming the library is not knowing the model.
LIBRARIES = re.compile(r"faster_whisper|faster-whisper|models\.Whisper|whisper_normalizer")


# Policies know their model. So must what runs inside SGLang, where a class takes the place of one of the same
# name, the embedded engine, whose runtime has calls for one family only, and what measures single models.
KNOWING = (
    "engine/policies/",
    "engine/sglang/plugin/",
    "engine/sglang/models/",
    "engine/sglang/bench/",
    "engine/local/decoder.py",
    "engine/local/graphs.py",
    "engine/local/greedy.py",
    "clients/bench/",
)


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every import, wherever it stands in the file; also those by a text that names
    a module of ours, for `import_module` or a table of commands."""
    module = module_of(path)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *filter(None, [base])])
            # `from streaming import wire` reaches the module streaming.wire, not all of streaming.
            yield from ((node.lineno, _deepest(base, alias.name)) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            name = f"{package}{name}" if name.startswith(".") else name
            if re.fullmatch(r"\w+(\.\w+)+", name) and _is_module(name):
                yield node.lineno, name


def _is_module(name: str) -> bool:
    place = ROOT.joinpath(*name.split("."))
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def _deepest(base: str, name: str) -> str:
    place = ROOT.joinpath(*base.split("."), name)
    return f"{base}.{name}" if place.with_suffix(".py").is_file() or place.is_dir() else base


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def test_imports_point_one_way() -> None:
    wrong = []
    for path in sources():
        module = module_of(path)
        allowed = next(names for prefix, names in ALLOWED if within(module, (prefix,)))
        wrong += [
            f"{path.relative_to(ROOT)}:{line} imports {name}"
            for line, name in imports(path)
            if within(name, PACKAGES) and not within(name, allowed)
        ]
    assert not wrong, "\n".join(wrong)


def floor(module: str) -> int:
    """How high a module of the service stands; the longest name that fits decides."""
    fits = [
        (len(name), level) for level, names in enumerate(FLOORS) for name in names if within(module, (name,))
    ]
    assert fits, f"{module} stands on no floor: put its package into FLOORS"
    return max(fits)[1]


def test_no_floor_of_the_service_rests_on_one_above() -> None:
    wrong = []
    for path in (path for path in sources() if within(module_of(path), ("streaming",))):
        module = module_of(path)
        if module == "streaming":
            continue
        for line, name in imports(path):
            if not within(name, ("streaming",)) or name == "streaming":
                continue
            mine, other = floor(module), floor(name)
            beside = any(within(module, (one,)) and not within(name, (one,)) for one in BESIDE)
            if other > mine or (beside and other == mine):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_only_the_composition_root_names_an_engine() -> None:
    adapters = ("engine.local", "engine.sglang", "engine.fake")
    may = {"streaming.app", "streaming.cli"}
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources()
        if within(module_of(path), ("streaming",)) and module_of(path) not in may
        for line, name in imports(path)
        if within(name, adapters)
    ]
    assert not wrong, "\n".join(wrong)


def test_pure_parts_import_nothing_impure() -> None:
    wrong = []
    for path in sources():
        place = path.relative_to(ROOT).as_posix()
        if place.startswith(PURE):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            wrong += [f"{place}:{line} imports {n}" for line, n in imports(path) if n.split(".")[0] in IMPURE]
            wrong += [
                f"{place}:{node.lineno} awaits"
                for node in ast.walk(tree)
                if isinstance(node, ast.AsyncFunctionDef | ast.Await)
            ]
    assert not wrong, "\n".join(wrong)


def test_shared_code_names_no_model() -> None:
    grep = re.compile("|".join(map(re.escape, POLICIES)), re.IGNORECASE)
    shared = [path for path in sources() if not path.relative_to(ROOT).as_posix().startswith(KNOWING)]
    wrong = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(shared)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if grep.search(LIBRARIES.sub("", line))
    ]
    assert not wrong, "\n".join(wrong)


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring and decorators."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines


def test_files_of_pages_are_small_and_know_nothing_from_elsewhere() -> None:
    wrong = []
    for path in sorted((ROOT / "clients" / "web").iterdir()):
        text = path.read_text(encoding="utf-8")
        if (lines := len(text.splitlines())) > MAX_FILE:
            wrong.append(f"{path.name}: {lines} lines")
        if path.suffix == ".js":
            wrong += [
                f"{path.name} imports {name}"
                for name in re.findall(r"""^import .*?["'](.+?)["'];""", text, re.MULTILINE)
                if not name.startswith("./")
            ]
    assert not wrong, "\n".join(wrong)


def test_files_and_functions_are_small() -> None:
    wrong = []
    for path in sources():
        text, place = path.read_text(encoding="utf-8"), path.relative_to(ROOT)
        if (lines := len(text.splitlines())) > MAX_FILE:
            wrong.append(f"{place}: {lines} lines")
        wrong += [
            f"{place}:{node.lineno} {node.name}: {body_lines(node)} lines"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > MAX_FUNCTION
        ]
    assert not wrong, "\n".join(wrong)
