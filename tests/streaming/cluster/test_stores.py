"""What every store does, whatever keeps it; and what one that is shared does with claims."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from streaming.kept.journal import cause_of
from streaming.kept.port import SessionStore
from streaming.kept.store import Store
from streaming.kept.stored import Batch, Delivery, Progress
from streaming.wire.messages import Flushed, Gap, Named
from tests.streaming.test_store import opened, segment, written
from tests.support.redis import redis_server

pytest.importorskip("redis", reason="needs the extra redis")

from streaming.cluster.redis_store import PREFIX, RedisStore
from streaming.cluster.redis_store import opened as opened_store


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_server() as url:
        yield url


def shared(url: str, process: str = "a", **settings: int) -> RedisStore:
    """One process's view of what all keep."""
    return RedisStore(url, process, **settings)


def emptied(url: str) -> str:
    store = shared(url)
    store.redis.flushall()
    store.close()
    return url


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    made: SessionStore
    if request.param == "sqlite":
        made = Store(tmp_path / "j.sqlite3", most_deliveries=3)
    else:
        made = shared(emptied(request.getfixturevalue("url")), most_deliveries=3)
    yield made
    made.close()


def test_a_session_is_read_back_newest_states_in_order(store: SessionStore) -> None:
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


def test_states_of_nobody_are_not_kept(store: SessionStore) -> None:
    """A reader may still name somebody in a session that was just deleted."""
    store.write(Batch(states={("s", "named:2"): (8, Named(0, 2, "Ann"))}))
    written(store, "s")
    found = store.load("s")
    assert found is not None
    assert len(found.states) == 1


def test_sessions_expire_by_age_and_by_size_oldest_first_and_never_while_they_live(
    store: SessionStore,
) -> None:
    written(store, "old", 1, ended=10)
    written(store, "living", 2)
    written(store, "spared", 3, ended=5)
    written(store, "new", 4, "long " * 50_000, ended=100)
    written(store, "newest", 5, ended=100)
    assert store.expire(50, 1 << 30, frozenset({"spared"})) == ["old"]
    assert store.expire(0, 600_000, frozenset({"spared"})) == ["new"]
    assert store.expire(0, 600_000, frozenset(), {"newest": 1 << 30}) == ["spared", "newest"]
    assert [id for id, _ in store.unfinished()] == ["living"]
    assert {summary.id for summary in store.page(9)} == {"living"}


def test_pages_go_through_all_sessions_newest_first(store: SessionStore) -> None:
    for i in range(7):
        written(store, f"s{i}", created=i // 2)
    seen: list[str] = []
    before = None
    while page := store.page(3, before):
        seen += [summary.id for summary in page]
        before = page[-1].created, page[-1].id
    assert seen == [f"s{i}" for i in (6, 5, 4, 3, 2, 1, 0)]
    assert page == []


def test_deliveries_wait_for_their_time_and_the_oldest_go_where_there_are_too_many(
    store: SessionStore,
) -> None:
    written(store, "s")
    made = {f"d{i}": Delivery(f"d{i}", "s", b"{}", i, 0, 10 * i) for i in range(5)}
    assert store.write(Batch(deliveries=made)).dropped == 2
    assert [d.id for d in store.due(35, 1)] == ["d2"]
    assert [d.id for d in store.due(35, 9, ["d2"])] == ["d3"]
    store.tried("d2", None)
    store.tried("d3", 90)
    assert store.next_due() == 40
    assert [(d.id, d.tries) for d in store.due(99, 9)] == [("d4", 0), ("d3", 1)]
    assert store.delete("s")
    assert store.next_due() is None


def test_what_keys_used_is_kept_until_the_day_after(store: SessionStore) -> None:
    store.write(Batch(usage={(7, "bot"): 10, (7, "other"): 5}))
    store.write(Batch(usage={(7, "bot"): 30, (8, "bot"): 1}))
    assert sorted(store.usage()) == [(7, "bot", 30), (7, "other", 5), (8, "bot", 1)]
    store.write(Batch(usage={(9, "bot"): 2}))
    assert sorted(store.usage()) == [(8, "bot", 1), (9, "bot", 2)]


# -- claims: of a shared store alone ------------------------------------------------------------------


def lives(store: RedisStore) -> None:
    store.redis.set(f"{PREFIX}p:{store.process}", "http://somewhere", px=60_000)


def names(store: SessionStore, id: str = "s") -> list[str]:
    found = store.load(id)
    assert found is not None
    return [state.name for state in found.states if isinstance(state, Named)]


def naming(seq: int, name: str) -> Batch:
    return Batch(states={("s", f"named:{seq}"): (seq, Named(0, seq, name))})


def test_a_process_that_was_frozen_changes_nothing_that_another_has_claimed(url: str) -> None:
    frozen, other = shared(emptied(url), "a"), shared(url, "b")
    written(frozen, "s")
    written(frozen, "mine")
    assert other.claim("s")
    assert other.write(naming(8, "Bob")).lost == frozenset()
    late = naming(9, "Eve")
    late.states["mine", "named:1"] = 9, Named(0, 1, "Ann")
    late.ended["s"] = 77
    late.deliveries["d"] = Delivery("d", "s", b"{}", 1)
    assert frozen.write(late).lost == {"s"}
    assert names(frozen) == ["Bob"]
    assert names(frozen, "mine") == ["Ann"]
    assert [id for id, _ in other.unfinished()] == ["mine", "s"]
    assert other.next_due() is None
    # Nor does it later, of its own accord.
    assert frozen.write(naming(10, "Eve")).lost == {"s"}
    assert names(frozen) == ["Bob"]


def test_who_claims_again_writes_again(url: str) -> None:
    a, b = shared(emptied(url), "a"), shared(url, "b")
    written(a, "s")
    assert b.claim("s")
    assert a.claim("s")
    assert a.write(naming(8, "Ann")).lost == frozenset()
    assert b.write(naming(9, "Bob")).lost == {"s"}
    assert not a.claim("nobody")


def test_whoever_claimed_has_it_also_where_another_lets_go_of_it_late(url: str) -> None:
    a, b = shared(emptied(url), "a"), shared(url, "b")
    written(a, "s")
    lives(b)
    assert b.claim("s")
    assert b.unfinished() == []
    a.write(Batch(left={"s": True}))
    assert b.unfinished() == []


def test_who_wakes_learns_once_what_others_took(url: str) -> None:
    a, b = shared(emptied(url), "a"), shared(url, "b")
    written(a, "s")
    written(a, "mine")
    assert a.taken() == []
    assert b.claim("s")
    assert (a.taken(), b.taken()) == (["s"], [])
    assert a.write(naming(9, "Eve")).lost == {"s"}
    assert a.taken() == []


def test_what_redis_lost_is_told_and_can_be_written_anew(url: str) -> None:
    a, b = shared(emptied(url)), shared(url, "b")
    written(a, "s")
    assert b.claim("s")
    emptied(url)
    assert b.write(Batch(progress={"s": Progress((1,), 2)})).missing == {"s"}
    # The one it was taken from never heard of that, and is the first to write it anew.
    written(a, "s", text="old")
    written(b, "s", text="new")
    assert a.write(Batch(progress={"s": Progress((1,), 2)})).lost == {"s"}
    found = b.load("s")
    assert found is not None
    assert "new" in str(found.states)
    assert [summary.elsewhere for summary in a.page(9)] == [False], "nobody of them lives"


def test_what_fails_is_told_without_the_session_it_is_about() -> None:
    """Whoever knows an id may read, so none goes into a log."""
    with redis_server("--maxmemory", "1") as url:
        store = shared(url)
        with pytest.raises(store.failures, match="maxmemory") as full:
            written(store, "secret-id")
        assert cause_of(full.value) == "full"
        store.redis.config_set("maxmemory", 0)
        store.redis.set(f"{PREFIX}s:secret-id", "damaged")
        store.redis.zadd(f"{PREFIX}open", {"secret-id": 1})
        store.redis.zadd(f"{PREFIX}created", {"secret-id": 1})
        told = [str(full.value)]
        for ask in (lambda: store.load("secret-id"), store.unfinished, lambda: store.page(9)):
            with pytest.raises(store.failures, match="WRONGTYPE") as wrong:
                ask()
            told.append(str(wrong.value))
        store.close()
    assert "secret-id" not in "".join(told)


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru", "volatile-ttl"])
def test_a_redis_that_throws_away_what_is_kept_is_warned_of(
    policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    with redis_server("--maxmemory", "64mb", "--maxmemory-policy", policy) as url:
        opened_store(url, most_deliveries=3).close()
    assert ("noeviction" in caplog.text) == (policy != "noeviction")


@pytest.mark.parametrize(("ahead", "said"), [(0, ""), (3600, "3600 s ahead of"), (-86_400, "86400 s behind")])
def test_a_clock_that_is_wrong_is_warned_of(
    url: str, ahead: int, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    opened_store(url, most_deliveries=3).close()
    assert ("the clock here" in caplog.text, said in caplog.text) == (bool(ahead), True)


def test_what_was_deleted_stays_so(url: str) -> None:
    a, b = shared(emptied(url), "a"), shared(url, "b")
    written(a, "s")
    assert b.delete("s")
    assert a.write(naming(8, "Ann")).lost == {"s"}, "whoever has it still hears of it"
    written(a, "s")
    assert a.load("s") is None, "nor is it written anew by one that was frozen meanwhile"


def test_unfinished_is_what_no_living_process_has(url: str) -> None:
    a, b = shared(emptied(url), "a"), shared(url, "b")
    for number, id in enumerate(("s", "t", "u")):
        written(a, id, created=number)
    lives(a)
    assert b.unfinished() == []
    a.write(Batch(left={"t": True}))
    ((id, known),) = b.unfinished()
    assert id == "t"
    # Somebody came back to it meanwhile.
    assert a.claim("t")
    assert not b.claim("t", known)
    a.redis.delete(f"{PREFIX}p:a")
    assert [id for id, _ in b.unfinished()] == ["s", "t", "u"]
    assert all(b.claim(id, known) for id, known in b.unfinished())


def test_a_delivery_is_tried_by_one_process_at_a_time(url: str) -> None:
    a, b = shared(emptied(url), "a"), shared(url, "b")
    written(a, "s")
    a.write(Batch(deliveries={f"d{i}": Delivery(f"d{i}", "s", b"{}", i) for i in range(4)}))
    assert [d.id for d in a.due(9, 3)] == ["d0", "d1", "d2"]
    assert [d.id for d in b.due(9, 3)] == ["d3"]


def test_what_keys_used_is_counted_over_all_processes(url: str) -> None:
    a, b = shared(emptied(url), "a"), shared(url, "b")
    a.write(Batch(usage={(7, "bot"): 10}))
    b.write(Batch(usage={(7, "bot"): 5, (7, "other"): 1}))
    b.write(Batch(usage={(7, "bot"): 6, (7, "other"): 1}))
    assert sorted(a.usage()) == [(7, "bot", 16), (7, "other", 1)]
    assert a.used(7, but="a") == {"bot": 6, "other": 1}


steps = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["claim", "write"])), max_size=12)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_whoever_claimed_last_alone_writes(url: str, steps: list[tuple[str, str]]) -> None:
    """Of any order of claims and writes by three processes."""
    stores = {name: shared(url, name) for name in "abc"}
    emptied(url)
    written(stores["a"], "s")
    owner, said, numbers = "a", [], itertools.count(4)
    for name, step in steps:
        if step == "claim":
            assert stores[name].claim("s")
            owner = name
        else:
            seq = next(numbers)
            lost = stores[name].write(naming(seq, f"{name}{seq}")).lost
            assert lost == (frozenset() if name == owner else {"s"})
            said += [f"{name}{seq}"] if name == owner else []
    assert names(stores["b"]) == said
    for store in stores.values():
        store.close()
