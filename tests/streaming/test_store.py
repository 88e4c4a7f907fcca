"""The journal's file: what is written is read back, what is deleted is gone from the bytes too."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from streaming.store import Store, StoreError
from streaming.stored import Batch, Delivery, Opened, Progress
from streaming.wire.messages import Flushed, Gap, Named, Segment, Start, Word


def segment(id: int, text: str, *, final: bool = True) -> Segment:
    words = tuple(Word(word, 100 * i, 100 * i + 90, 0.5) for i, word in enumerate(text.split(), 10 * id))
    return Segment(0, id, 1, 10 * id, 1000 * id, 1000 * id + 900, 2, text, words, "", final)


def opened(created: int = 5, start: Start | None = None) -> Opened:
    return Opened(created, b"t" * 32, b"r" * 32, start or Start(language="en"))


def written(
    store: Store, id: str, created: int = 5, text: str = "some words", ended: int | None = None
) -> None:
    batch = Batch(opened={id: opened(created)}, progress={id: Progress((320,), 640)})
    batch.states[id, "segment:1"] = 3, segment(1, text)
    batch.ended = {} if ended is None else {id: ended}
    store.write(batch)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "journal" / "j.sqlite3")


def test_a_session_is_read_back_newest_states_in_order(store: Store) -> None:
    batch = Batch(opened={"s": opened()})
    batch.states = {
        ("s", "segment:1"): (1, segment(1, "one", final=False)),
        ("s", "gap:0"): (2, Gap(0, 5, 6, "loop", 1)),
        ("s", "flushed:x"): (4, Flushed(0, "x", 99)),
    }
    store.write(batch)
    later = Batch(progress={"s": Progress((320, 640), 960)}, voices={"s": b"v"}, keys={"s": "bot"})
    later.states = {("s", "segment:1"): (7, segment(1, "one two")), ("s", "named:2"): (8, Named(0, 2, "Ann"))}
    store.write(later)
    found = store.load("s")
    assert found is not None
    assert (found.opened, found.ended, found.voices, found.key) == (opened(), None, b"v", "bot")
    assert found.progress == Progress((320, 640), 960)
    assert [s.seq for s in found.states] == [2, 4, 7, 8]
    assert found.states[2] == replace(segment(1, "one two"), seq=7)
    assert store.load("other") is None


def test_states_of_nobody_are_not_kept(store: Store) -> None:
    """A reader may still name somebody in a session that was just deleted."""
    store.write(Batch(states={("s", "named:2"): (8, Named(0, 2, "Ann"))}))
    written(store, "s")
    found = store.load("s")
    assert found is not None
    assert len(found.states) == 1


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


def test_sessions_expire_by_age_and_by_size_oldest_first_and_never_while_they_live(store: Store) -> None:
    written(store, "old", 1, ended=10)
    written(store, "living", 2)
    written(store, "spared", 3, ended=5)
    written(store, "new", 4, "long " * 50_000, ended=100)
    written(store, "newest", 5, ended=100)
    assert store.expire(50, 1 << 30, frozenset({"spared"})) == ["old"]
    assert store.expire(0, 600_000, frozenset({"spared"})) == ["new"]
    assert store.expire(0, 600_000, frozenset(), {"newest": 1 << 30}) == ["spared", "newest"]
    assert store.unfinished() == ["living"]
    assert {summary.id for summary in store.page(9)} == {"living"}


def test_pages_go_through_all_sessions_newest_first(store: Store) -> None:
    for i in range(7):
        written(store, f"s{i}", created=i // 2)
    seen: list[str] = []
    before = None
    while page := store.page(3, before):
        seen += [summary.id for summary in page]
        before = page[-1].created, page[-1].id
    assert seen == [f"s{i}" for i in (6, 5, 4, 3, 2, 1, 0)]
    assert page == []


def test_deliveries_wait_for_their_time_and_the_oldest_go_where_there_are_too_many(tmp_path: Path) -> None:
    store = Store(tmp_path / "j.sqlite3", most_deliveries=3)
    made = {f"d{i}": Delivery(f"d{i}", "s", b"{}", i, 0, 10 * i) for i in range(5)}
    assert store.write(Batch(deliveries=made)) == 2
    assert [d.id for d in store.due(35, 9)] == ["d2", "d3"]
    assert [d.id for d in store.due(35, 1, ["d2"])] == ["d3"]
    store.tried("d2", None)
    store.tried("d3", 90)
    assert store.next_due() == 40
    assert [(d.id, d.tries) for d in store.due(99, 9)] == [("d4", 0), ("d3", 1)]


def test_what_keys_used_is_kept_until_the_day_after(store: Store) -> None:
    store.write(Batch(usage={(7, "bot"): 10, (7, "other"): 5}))
    store.write(Batch(usage={(7, "bot"): 30, (8, "bot"): 1}))
    assert sorted(store.usage()) == [(7, "bot", 30), (7, "other", 5), (8, "bot", 1)]
    store.write(Batch(usage={(9, "bot"): 2}))
    assert sorted(store.usage()) == [(8, "bot", 1), (9, "bot", 2)]


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
