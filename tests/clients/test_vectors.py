"""What our clients in Python and in the browser must do alike, written once: `tests/vectors`."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.captions import Captions
from streaming.wire.codec import JsonCodec
from streaming.wire.lines import HANGING, columns, fill, joined
from streaming.wire.messages import Word

TESTS = Path(__file__).resolve().parents[1]
NODE = shutil.which("node")


def vectors(name: str) -> Any:
    return json.loads((TESTS / "vectors" / f"{name}.json").read_text(encoding="utf-8"))


def word(text: str) -> Word:
    """A vector's word: a leading space stands for itself."""
    return Word(text.strip(), 0, 0) if text.startswith(" ") else Word(text, 0, 0, space=False)


@pytest.mark.parametrize(("text", "width"), vectors("lines")["columns"].items())
def test_columns(text: str, width: int) -> None:
    assert columns(text) == width


@pytest.mark.parametrize("case", vectors("lines")["fill"], ids=lambda case: case["name"])
def test_lines(case: dict[str, Any]) -> None:
    assert [joined(line) for line in fill(map(word, case["words"]), case["limit"])] == case["lines"]


@pytest.mark.parametrize("case", vectors("captions"), ids=lambda case: case["name"])
def test_captions(case: dict[str, Any]) -> None:
    captions = Captions()
    for message in case["messages"]:
        captions.receive(JsonCodec().decode_server(json.dumps(message)))
    turns = [
        {"speaker": turn.speaker, "name": turn.name, "text": turn.text, "partial": turn.partial}
        for turn in captions.turns(1_000)
    ]
    assert turns == case["turns"]


WORDS = st.lists(
    st.sampled_from([" a", " the", " extraordinarily", "今", "天", "。", "「", "'s", " ok,"]), max_size=40
)


@given(WORDS, st.integers(4, 42))
def test_lines_that_are_shown_never_change(said: list[str], limit: int) -> None:
    words = [word(text) for text in said]
    lines = fill(words, limit)
    assert [w for line in lines for w in line] == words
    for n in range(len(words)):
        shown = fill(words[:n], limit)
        assert shown[:-1] == lines[: max(0, len(shown) - 1)]
        assert all(lines[len(shown) - 1][: len(line)] == line for line in shown[-1:])
    assert all(columns(joined(line)) <= limit + HANGING or len(line) == 1 for line in lines)


@pytest.mark.skipif(NODE is None, reason="no node: the browser's modules are tested with it")
def test_the_browsers_modules() -> None:
    """The pure modules of `clients/web`, by node's own test runner."""
    assert NODE is not None
    files = sorted(map(str, (TESTS / "web").glob("*.test.mjs")))
    done = subprocess.run(
        [NODE, "--test", *files], capture_output=True, text=True, timeout=100, check=False, cwd=TESTS
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    assert "# fail 0" in done.stdout
