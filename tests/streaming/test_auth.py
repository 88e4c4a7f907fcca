"""Keys, single-use tokens, where a request carries them, and what a key may use."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.access.auth import (
    ANYONE,
    LONGEST,
    SUBPROTOCOL,
    Authority,
    Caller,
    Tickets,
    TooManyTokens,
    Unauthorized,
    secret_of,
    spoken,
)
from streaming.access.keys import NAME, PREFIX, Scope, covers, digest, find, main
from streaming.access.quota import DAY_S, NOTED, KeyLimit, Quotas, forget
from streaming.access.settings import AuthSettings
from streaming.app import running
from streaming.settings import EngineSettings, JournalSettings, Settings, load
from tests.support.keys import ADMIN, KEYS, READ, SPEAK, key


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_new_key_fits_the_settings_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "bot", "--scope", "speak", "--scope", "read"]) == 0
    told = capsys.readouterr()
    secret = told.out.strip()
    assert secret.startswith(PREFIX)
    assert secret not in told.err
    environment = dict(line.split("=", 1) for line in told.err.splitlines() if line.startswith("SEAMSCRIBE"))
    auth = load(None, environment).auth
    assert find(auth.keys, secret) == "bot"
    assert auth.keys["bot"].scopes == (Scope.SPEAK, Scope.READ)


def test_the_line_for_the_settings_file_is_toml(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["new", "bot-2"])
    told = capsys.readouterr()
    section = told.err[told.err.index("[auth.keys]") : told.err.index("or for the environment")]
    file = tmp_path / "settings.toml"
    file.write_text(section, encoding="utf-8")
    assert find(load(file, {}).auth.keys, told.out.strip()) == "bot-2"


def test_two_keys_are_never_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    main(["new", "a"])
    main(["new", "a"])
    first, second = capsys.readouterr().out.split()
    assert first != second
    assert len(first) - len(PREFIX) >= 43  # 256 bits


@pytest.mark.parametrize("name", ["", "Bot", "a b", "a" * 33, "-a", "../a", "a\n"])
def test_a_key_needs_a_plain_name(name: str) -> None:
    assert not NAME.fullmatch(name)
    with pytest.raises(SystemExit) as stopped:
        main(["new", name])
    assert stopped.value.code == 2


@pytest.mark.parametrize(
    "wrong", ["", SPEAK[:-1], SPEAK + "s", SPEAK.upper(), "\ud800", "é", KEYS["bot"].sha256]
)
def test_only_the_key_itself_fits(wrong: str) -> None:
    assert find(KEYS, SPEAK) == "bot"
    assert find(KEYS, wrong) is None


def test_half_a_digest_is_no_key() -> None:
    """Of a thousand strangers' keys some digests begin, and some end, like ours."""
    strangers = [f"smk_{number}" for number in range(1000)]
    assert {find(KEYS, key) for key in strangers} == {None}
    near = {digest(key)[:2] for key in strangers} & {digest(SPEAK)[:2]}
    assert near, "none was near"


def test_admin_holds_all_and_the_others_only_themselves() -> None:
    for one in Scope:
        assert covers([Scope.ADMIN], one)
        assert [scope for scope in Scope if covers([one], scope)] == (
            list(Scope) if one is Scope.ADMIN else [one]
        )
        assert not covers([], one)


async def test_without_keys_everybody_may_all() -> None:
    authority = Authority()
    assert authority.open
    for secret in (None, "", "whatever"):
        assert await authority.caller(secret) is ANYONE
        assert await authority.admit(None, secret, Scope.ADMIN) is ANYONE


async def test_with_keys_nobody_else_is_known() -> None:
    authority = Authority(KEYS)
    for secret in (None, "", "x", "x" * (LONGEST + 1), SPEAK + " "):
        assert await authority.caller(secret) is None
        with pytest.raises(Unauthorized) as refused:
            await authority.admit(None, secret, Scope.SPEAK)
        assert refused.value.close == 4401
    assert await authority.admit(None, SPEAK, Scope.SPEAK) == Caller(
        "bot", frozenset({Scope.SPEAK}), mints=True
    )
    with pytest.raises(Unauthorized):
        await authority.admit(None, READ, Scope.SPEAK)


async def test_a_token_works_once_for_one_scope_and_mints_none() -> None:
    clock = Clock()
    authority = Authority(KEYS, 100, clock)
    boss = await authority.caller(ADMIN)
    assert boss is not None
    token = await authority.mint(boss, Scope.READ, 60.0, "abc")
    caller = await authority.caller(token)
    assert caller == Caller("boss", frozenset({Scope.READ}), "abc")
    assert caller.may(Scope.READ, "abc")
    assert not caller.may(Scope.READ, "abd")
    assert not caller.may(Scope.READ)
    assert not caller.may(Scope.SPEAK, "abc")
    assert await authority.caller(token) is None
    with pytest.raises(AssertionError):
        await authority.mint(caller, Scope.READ, 60.0, "abc")


async def test_a_token_expires_and_is_used_up_where_it_does_not_fit() -> None:
    clock = Clock()
    authority = Authority(KEYS, 100, clock)
    bot = await authority.caller(SPEAK)
    assert bot is not None
    late, early, wrong = [await authority.mint(bot, Scope.SPEAK, 10.0) for _ in range(3)]
    with pytest.raises(Unauthorized):
        await authority.admit(None, wrong, Scope.READ)
    assert await authority.caller(wrong) is None
    clock.now = 9.9
    assert await authority.caller(early) is not None
    clock.now = 10.0
    assert await authority.caller(late) is None


async def test_unused_tokens_are_bounded_and_no_key_takes_all_the_room() -> None:
    clock = Clock()
    tickets = Tickets(8, clock)
    one, two = Caller("one"), Caller("two")
    for _ in range(2):
        await tickets.mint(one, 10.0)
    with pytest.raises(TooManyTokens):
        await tickets.mint(one, 10.0)
    await tickets.mint(two, 10.0)
    clock.now = 10.0
    await tickets.mint(one, 10.0)
    assert len(tickets) == 1


HEADER = [(b"authorization", b"Bearer " + SPEAK.encode())]


@pytest.mark.parametrize(
    ("headers", "subprotocols", "secret"),
    [
        (HEADER, [], SPEAK),
        ([(b"authorization", b"token  abc ")], [], "abc"),
        ([(b"authorization", b"Basic abc")], [SUBPROTOCOL + "abc"], ""),
        ([(b"authorization", b"abc")], [], ""),
        ([(b"authorization", b"")], [], ""),
        ([], [], None),
        ([], ["seamscribe.v1.json"], None),
        ([], ["seamscribe.v1.json", SUBPROTOCOL + "abc"], "abc"),
        ([], [SUBPROTOCOL], ""),
        ([], ["realtime", "openai-insecure-api-key.abc"], "abc"),
        ([], ["token", "abc"], "abc"),
        ([], ["Bearer", "abc", "x"], "abc"),
        ([], ["token"], ""),
        (HEADER, [SUBPROTOCOL + "other"], SPEAK),
    ],
)
def test_where_a_request_carries_its_secret(
    headers: list[tuple[bytes, bytes]], subprotocols: list[str], secret: str | None
) -> None:
    assert secret_of(headers, subprotocols) == secret


@given(
    st.lists(
        st.sampled_from(["seamscribe.v1.json", "seamscribe.v1.msgpack", "realtime", "token", "bearer"])
        | st.sampled_from([SUBPROTOCOL, "openai-insecure-api-key."]).map(lambda prefix: prefix + "SECRET"),
        max_size=6,
    ),
    st.integers(0, 5),
)
def test_no_secret_is_among_what_may_be_answered(offered: list[str], at: int) -> None:
    offered = [*offered[:at], "token", "SECRET", *offered[at:]]
    if "token" in offered[:at] or "bearer" in offered[:at]:
        return  # a marker takes the next word for the secret: ours may be one's next but one
    assert not any("SECRET" in one for one in spoken(offered))


async def test_a_key_has_so_many_sessions_at_once() -> None:
    quotas = Quotas({"bot": key(SPEAK, Scope.SPEAK, max_sessions=2)})
    first, _ = await quotas.lease("bot"), await quotas.lease("bot")
    with pytest.raises(KeyLimit, match="all 2 sessions of this key"):
        await quotas.lease("bot")
    (await quotas.lease("other")).close()
    first.close()
    first.close()
    assert quotas.sessions("bot") == 1
    await quotas.lease("bot")


async def test_a_key_has_so_many_minutes_a_day() -> None:
    clock = Clock()
    clock.now = 5 * DAY_S + DAY_S / 2
    quotas = Quotas({"bot": key(SPEAK, Scope.SPEAK, minutes_a_day=1.5)}, clock)
    first, second = await quotas.lease("bot"), await quotas.lease("bot")
    first.spend(16_000 * 60)
    second.spend(16_000 * 20)
    with pytest.raises(KeyLimit, match=r"1\.5 minutes") as refused:
        first.spend(16_000 * 70)
    assert refused.value.retry_after_ms == DAY_S * 500
    with pytest.raises(KeyLimit):
        await quotas.lease("bot")
    clock.now += DAY_S / 2
    (await quotas.lease("bot")).spend(16_000 * 80)
    first.spend(16_000 * 79)


async def test_what_a_key_used_is_noted_for_the_next_process() -> None:
    clock, notes = Clock(), list[tuple[int, str, int]]()
    clock.now = 5 * DAY_S
    keys = {"bot": key(SPEAK, Scope.SPEAK, minutes_a_day=2)}
    quotas = Quotas(keys, clock, lambda *note: notes.append(note))
    first, second = await quotas.lease("bot"), await quotas.lease("bot")
    unnamed = await quotas.lease("")
    for received in range(1600, 16_000 * 60, 1600):
        for lease in (first, second, unnamed):
            with suppress(KeyLimit):
                lease.spend(received)
        assert received * 2 - (notes[-1][2] if notes else 0) < NOTED
    assert len(notes) <= 16_000 * 120 // NOTED
    first.close()
    unnamed.close()
    assert notes[-1] == (5, "bot", 2 * 16_000 * 60 - 3200)
    after = Quotas(keys, clock, forget, notes[-1:])
    last = await after.lease("bot")
    last.spend(3199)
    with pytest.raises(KeyLimit):
        last.spend(3200)
    clock.now += DAY_S
    (await Quotas(keys, clock, forget, notes).lease("bot")).spend(16_000 * 119)


def test_it_is_noted_in_the_journal_where_there_is_one(tmp_path: Path) -> None:
    async def speak(*, journal: bool) -> None:
        """A process in which the key uses all that it may."""
        settings = Settings(
            engine=EngineSettings(kind="fake"),
            journal=JournalSettings(on=journal, path=str(tmp_path / "journal")),
            auth=AuthSettings({"bot": key(SPEAK, Scope.SPEAK, minutes_a_day=0.1)}),
        )
        async with running(settings) as services:
            await asyncio.sleep(0)  # or what tends the journal would be ended before it begins
            lease = await services.quotas.lease("bot")
            with pytest.raises(KeyLimit):
                lease.spend(16_000 * 6)
            lease.close()

    for _ in range(2):
        asyncio.run(speak(journal=False))
    asyncio.run(speak(journal=True))
    with pytest.raises(KeyLimit):
        asyncio.run(speak(journal=True))


async def test_without_limits_nothing_is_refused() -> None:
    quotas = Quotas()
    lease = await quotas.lease("")
    lease.spend(1 << 40)
    await quotas.lease("")
