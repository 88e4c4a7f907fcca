"""COMPLAINTS.md names tests that there are, for each complaint at least one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROW = re.compile(r"^\| (\d+) \| [^|]+ \| ((?:`[\w/.]+::\w+` ?)+)\|$", re.MULTILINE)


def named_in(path: str) -> set[str]:
    tree = ast.parse((HERE / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_complaint_has_a_test_that_exists() -> None:
    rows = ROW.findall((HERE / "COMPLAINTS.md").read_text(encoding="utf-8"))
    assert [int(number) for number, _ in rows] == list(range(1, 31))
    named = [name.split("::") for _, names in rows for name in re.findall(r"`([^`]+)`", names)]
    assert [f"{path}::{name}" for path, name in named if name not in named_in(path)] == []
    assert all(name.startswith("test_") for _, name in named)
