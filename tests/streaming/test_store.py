"""The journal's file: what is written is read back, what is deleted is gone from the bytes too."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from streaming.kept.port import SessionStore
from streaming.kept.store import Store, StoreError
from streaming.kept.stored import Batch, Delivery, Opened, Progress
from streaming.wire.messages import Segment, Start, Word


def segment(id: int, text: str, *, final: bool = True) -> Segment:
    words = tuple(Word(word, 100 * i, 100 * i + 90, 0.5) for i, word in enumerate(text.split(), 10 * id))
    return Segment(0, id, 1, 10 * id, 1000 * id, 1000 * id + 900, 2, text, words, "", final)


def opened(created: int = 5, start: Start | None = None) -> Opened:
    return Opened(created, b"t" * 32, b"r" * 32, start or Start(language="en"))


def written(
    store: SessionStore, id: str, created: int = 5, text: str = "some words", ended: int | None = None
) -> None:
    batch = Batch(opened={id: opened(created)}, progress={id: Progress((320,), 640)})
    batch.states[id, "segment:1"] = 3, segment(1, text)
    batch.ended = {} if ended is None else {id: ended}
    store.write(batch)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "journal" / "j.sqlite3")


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    Store(tmp_path / "deep" / "j.sqlite3")
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep" / "j.sqlite3").stat().st_mode & 0o777 == 0o600


def test_what_is_deleted_is_in_no_file_any_more(tmp_path: Path) -> None:
    store = Store(tmp_path / "j.sqlite3")
    secret = "unmistakable " * 3000  # long enough for pages of its own
    written(store, "kept", text="remains")
    for text in (secret, "unmistakable", secret):  # replaced states leave nothing either
        written(store, "gone", text=text)
    store.write(Batch(deliveries={"d": Delivery("d", "gone", b"unmistakable", 1)}))
    assert b"unmistakable" in b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert store.delete("gone")
    assert not store.delete("gone")
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"unmistakable" not in everything
    assert b"gone" not in everything
    assert b"remains" in everything
    assert store.due(1 << 40, 10) == []


def test_a_file_of_before_keys_were_counted_goes_on(tmp_path: Path) -> None:
    before = Store(tmp_path / "j")
    written(before, "s")
    before.close()
    with sqlite3.connect(tmp_path / "j") as db:
        db.executescript("drop table usage; alter table sessions drop column key; pragma user_version = 1;")
    db.close()
    for store in (Store(tmp_path / "j"), Store(tmp_path / "j")):
        found = store.load("s")
        assert found is not None
        assert found.key == ""
        store.write(Batch(usage={(7, "bot"): 10}))
        assert store.usage() == [(7, "bot", 10)]
        store.close()


def test_a_foreign_or_newer_file_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, though long enough to be read as one " * 100, "utf-8")
    with pytest.raises(StoreError, match=r"journal\.path"):
        Store(tmp_path / "text")
    with sqlite3.connect(tmp_path / "newer") as db:
        db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(StoreError, match=r"version 99.*journal\.path"):
        Store(tmp_path / "newer")
