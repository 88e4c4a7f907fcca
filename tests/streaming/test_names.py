"""What people may be called."""

from __future__ import annotations

import pytest

from streaming.wire.names import plain, shows


@pytest.mark.parametrize(
    "name",
    [
        "Ann",
        "Zo\u00eb",
        "Anna\u00a0Schmidt",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        "\U0001f469\u200d\U0001f52c",
        "<v Bob>",
        "",
    ],
)
def test_what_shows_as_it_is(name: str) -> None:
    """A space that does not break, and what some scripts and pictures are joined by, too."""
    assert shows(name)
    assert plain(name) == name.replace("\u00a0", " ")


@pytest.mark.parametrize(
    "hidden",
    [
        "\n",
        "\r",
        "\t",
        "\0",
        "\x1b",
        "\x7f",
        "\x85",
        "\u200b",
        "\u202e",
        "\u2066",
        "\u2028",
        "\u2029",
        "\ufeff",
        "\udc80",
    ],
)
def test_what_does_not(hidden: str) -> None:
    assert not shows(f"a{hidden}b")
    assert plain(f" a{hidden} {hidden}b{hidden}") == "a b"
