"""Who gets in where: every route and socket of a real server, with keys and without."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.routing import Route, WebSocketRoute
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from streaming.access import tokens
from streaming.access.auth import SUBPROTOCOL
from streaming.access.keys import Scope
from streaming.access.sites import Sites
from streaming.dialects.ways import WAYS
from streaming.sessions.services import ready_for
from streaming.web.guard import HEADERS, PUBLIC, RULES
from streaming.web.server import build, routes_of
from streaming.wire.codec import JSON_PROTOCOL
from streaming.wire.messages import Segment, Start, Word
from tests.support.keys import ADMIN, KEYS, READ, SPEAK, WATCH, bearer, key, locked
from tests.support.server import Running, server

pytestmark = pytest.mark.e2e

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW")
TOKEN = "t" * 43


def paths(running: Running, id: str = "A" * 22) -> Iterator[tuple[str, bool]]:
    """Every path that is answered, and whether by a socket."""
    fill = {
        "id": id,
        "format": "txt",
        "number": "1",
        "path:path": "some/where",
        "id:path": "a/model",
        "name": "page.js",
    }
    for route in routes_of(running.services):
        assert isinstance(route, Route | WebSocketRoute), "a kind of route that this test does not know"
        path = route.path
        for name, value in fill.items():
            path = path.replace(f"{{{name}}}", value)
        assert "{" not in path, f"{route.path} has a parameter that this test does not know"
        yield path, isinstance(route, WebSocketRoute)


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False)


def inside(running: Running) -> httpx.AsyncClient:
    """Straight into the application, for tests that ask for everything."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(build(running.services)), base_url=f"http://{running.address}"
    )


def session(running: Running, token: str | None = TOKEN) -> str:
    """One in which something was said."""
    entry = running.services.sessions.open(token, Start())
    entry.ready = ready_for(entry.id, Start(), running.services)
    entry.put(Segment(0, 1, 1, 0, 0, 400, 1, "Hello", (Word("Hello", 0, 400),), "", True))
    return entry.id


async def first_answer(
    url: str, message: dict[str, Any], headers: dict[str, str] | None = None, protocols: tuple[str, ...] = ()
) -> tuple[int, dict[str, Any]]:
    """What a socket says to its first message: the close code, and the message before it. Where it stays
    open the code is 0; where the handshake was refused, the HTTP status."""
    offered = [Subprotocol(one) for one in protocols] or None
    try:
        async with open_socket(url, additional_headers=headers, subprotocols=offered, proxy=None) as socket:
            assert socket.subprotocol is None or SUBPROTOCOL not in socket.subprotocol
            await socket.send(json.dumps(message))
            answer: dict[str, Any] = json.loads(await socket.recv())
            if answer["type"] == "error":
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd is not None
                return closed.value.rcvd.code, answer
            return 0, answer
    except InvalidStatus as error:
        return error.response.status_code, {}


async def test_nothing_is_open_but_the_public_list() -> None:
    assert {"/healthz", "/readyz"} == PUBLIC, "think twice"
    shown = {"/", "/overlay", "/sessions", "/web/page.js"}
    async with server(services=locked()) as running, inside(running) as http:
        everything = list(paths(running, session(running)))
        for path, _ in everything:
            for secret in (None, "wrong", SPEAK[:-1], "smk_", "x" * 5000):
                headers = {} if secret is None else bearer(secret)
                for method in METHODS:
                    answer = await http.request(method, path, headers=headers)
                    if path in PUBLIC | shown and method in ("GET", "HEAD"):
                        assert answer.status_code == 200
                    else:
                        assert answer.status_code == 401, (method, path, secret)
                        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert running.services.sessions.active == 1


async def test_no_socket_is_open() -> None:
    async with server(services=locked()) as running:
        everything = list(paths(running, session(running)))
        late = [rule.path for rule in RULES if rule.key_later]
        asking = {path for path, socket in everything if socket and any(p.fullmatch(path) for p in late)}
        foreign = {way.path for way in WAYS if way.key_later}
        assert len(asking) == 2 + len(foreign), "sockets that ask in their first message"
        for path in {path for path, _ in everything}:
            url = f"ws://{running.address}{path}"
            assert (await first_answer(url, {"type": "start"}, bearer("wrong")))[0] == 401
            if path in foreign:
                continue  # below
            for first in ({"type": "start"}, {"type": "start", "token": "x"}, {"type": "read", "token": "x"}):
                code, _ = await first_answer(url, first)
                assert code in ((4400, 4401) if path in asking else (401,)), (path, first)
        assert running.services.sessions.active == 1


@pytest.mark.parametrize("parameters", [{}, {"token": "x"}, {"token": READ}])
async def test_a_call_shows_its_key_when_it_starts(parameters: dict[str, str]) -> None:
    assert [way.path for way in WAYS if way.key_later] == ["/twilio"], "each needs a test like this"
    start = {"event": "start", "start": {"tracks": ["inbound"], "customParameters": parameters}}
    async with server(services=locked()) as running:
        async with open_socket(f"ws://{running.address}/twilio", proxy=None) as socket:
            await socket.send(json.dumps(start))
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
        assert running.services.sessions.active == 0


async def test_every_route_says_what_it_needs_and_takes_no_other_key() -> None:
    needs = {
        "/metrics": {WATCH},
        "/v1/sessions": {ADMIN},
        "/v1/sessions/ID/transcript.txt": {READ},
        "/v1/sessions/ID/audio.flac": {READ},
        "/v1/stream": {SPEAK},
    }
    async with server(services=locked()) as running, client() as http:
        id = session(running)
        for path, allowed in needs.items():
            for secret in (SPEAK, READ, WATCH, ADMIN):
                answer = await http.get(running.http(path.replace("ID", id)), headers=bearer(secret))
                assert (answer.status_code == 403) is (secret not in {*allowed, ADMIN}), (path, secret)
        for secret, status in ((SPEAK, 200), (READ, 403), (ADMIN, 200)):
            url = running.http(f"/v1/sessions/{id}/speakers/1")
            put = await http.put(url, headers=bearer(secret), json={"name": "Ada"})
            assert put.status_code == status
        for secret in (SPEAK, READ, WATCH, TOKEN):
            gone = await http.delete(running.http(f"/v1/sessions/{id}"), headers=bearer(secret))
            assert gone.status_code == 403


async def test_a_sessions_own_tokens_open_this_session_only() -> None:
    async with server(services=locked()) as running, client() as http:
        mine, other = session(running), session(running, "another")
        read = tokens.read_token(TOKEN)
        for secret, speaks in ((TOKEN, True), (read, False)):
            got = await http.get(running.http(f"/v1/sessions/{mine}/transcript.txt"), headers=bearer(secret))
            assert (got.status_code, got.text) == (200, "Speaker 1: Hello\n")
            put = await http.put(
                running.http(f"/v1/sessions/{mine}/speakers/1"), headers=bearer(secret), json={"name": "Ada"}
            )
            assert put.status_code == (200 if speaks else 403)
            await http.delete(running.http(f"/v1/sessions/{mine}/speakers/1"), headers=bearer(TOKEN))
            for path in (
                f"/v1/sessions/{other}/transcript.txt",
                "/v1/sessions",
                "/metrics",
                f"/v1/sessions/{other}",
            ):
                assert (await http.get(running.http(path), headers=bearer(secret))).status_code == 401
            for query in (f"?token={secret}", ""):
                url = f"ws://{running.address}/v1/sessions/{mine}/events{query}"
                code, answer = await first_answer(url, {"type": "read", "token": secret})
                assert (code, answer["type"]) == (0, "ready")
                assert not {"token", "read_token"} & set(answer)
        # One that was made without a token is not opened by an empty one.
        got = await http.get(
            running.http(f"/v1/sessions/{session(running, None)}/transcript.txt"),
            headers={"Authorization": "Bearer"},
        )
        assert got.status_code == 401


async def test_a_token_for_a_browser_works_once_wherever_it_is_carried() -> None:
    async with server(services=locked()) as running, client() as http:

        async def token() -> str:
            made = await http.post(running.http("/v1/tokens"), headers=bearer(SPEAK), json={})
            assert made.status_code == 201
            assert made.json()["scope"] == "speak"
            assert made.headers["cache-control"] == "no-store"
            return str(made.json()["token"])

        for _ in range(2):
            one, two, three = await token(), await token(), await token()
            by_subprotocol = (JSON_PROTOCOL, SUBPROTOCOL + one)
            assert (await first_answer(running.stream, {"type": "start"}, None, by_subprotocol))[0] == 0
            assert (await first_answer(running.stream, {"type": "start"}, None, by_subprotocol))[0] == 401
            assert (await first_answer(running.stream, {"type": "start", "token": two}))[0] == 0
            code, answer = await first_answer(running.stream, {"type": "start", "token": two})
            assert (code, answer["code"], answer["field"]) == (4401, "unauthorized", "token")
            assert two not in json.dumps(answer)
            assert (await first_answer(running.stream, {"type": "start"}, bearer(three)))[0] == 0
            assert (await first_answer(running.stream, {"type": "start"}, bearer(three)))[0] == 401


async def test_of_many_who_show_one_token_at_once_one_gets_in() -> None:
    async with server(services=locked()) as running, client() as http:
        made = await http.post(running.http("/v1/tokens"), headers=bearer(SPEAK), json={})
        first = {"type": "start", "token": made.json()["token"]}
        codes = [
            code
            for code, _ in await asyncio.gather(*[first_answer(running.stream, first) for _ in range(20)])
        ]
        assert sorted(codes) == [0] + 19 * [4401]


async def test_a_token_of_one_key_never_has_more_than_the_key() -> None:
    async with server(services=locked()) as running, client() as http:

        async def mint(secret: str, body: Any) -> httpx.Response:
            return await http.post(
                running.http("/v1/tokens"), headers=bearer(secret), content=json.dumps(body)
            )

        assert (await mint(SPEAK, {"scope": "read"})).status_code == 403
        assert (await mint(SPEAK, {"scope": "admin"})).status_code == 403
        assert (await mint(ADMIN, {"scope": "admin"})).status_code == 403
        assert (await mint(WATCH, {"scope": "watch"})).status_code == 403
        assert (await mint(READ, {})).status_code == 403
        assert (await mint(SPEAK, {"seconds": 3600})).json()["expires_in_s"] == 60
        assert (await mint(SPEAK, {"session": "abc"})).status_code == 400
        wrong_ones: list[Any] = [{"seconds": 0}, {"seconds": "x"}, {"scope": "all"}, {"x": 1}, []]
        for bad in (*wrong_ones, {"scope": "read", "session": "../x"}):
            refused = await mint(READ, bad)
            assert refused.status_code == 400, bad
            assert refused.text.startswith("body: ")
        id, other = session(running), session(running, "another")
        token = (await mint(READ, {"scope": "read", "session": id})).json()["token"]
        wrong = f"ws://{running.address}/v1/sessions/{other}/events"
        assert (await first_answer(wrong, {"type": "read", "token": token}))[0] == 4401
        token = (await mint(READ, {"scope": "read", "session": id})).json()["token"]
        right = f"ws://{running.address}/v1/sessions/{id}/events"
        assert (await first_answer(right, {"type": "read", "token": token}))[0] == 0
        again = await mint(token, {})
        assert again.status_code == 401
        token = (await mint(ADMIN, {"scope": "speak"})).json()["token"]
        assert (await mint(token, {})).status_code == 403


async def test_who_leaves_tokens_lie_gets_no_more_of_them() -> None:
    async with server(services=locked(most=8)) as running, client() as http:
        answers = [
            await http.post(running.http("/v1/tokens"), headers=bearer(SPEAK), json={}) for _ in range(3)
        ]
        assert [answer.status_code for answer in answers] == [201, 201, 429]
        assert answers[-1].headers["retry-after"] == "60"
        assert (
            await http.post(running.http("/v1/tokens"), headers=bearer(READ), json={"scope": "read"})
        ).is_success


async def test_a_secret_alone_among_the_subprotocols_is_told_to_bring_a_language() -> None:
    async with server(services=locked()) as running:
        assert (await first_answer(running.stream, {}, bearer(SPEAK), (SUBPROTOCOL + "x",)))[0] == 400


async def test_limits_of_a_key_are_told_and_given_back() -> None:
    keys = {**KEYS, "bot": key(SPEAK, Scope.SPEAK, max_sessions=1, minutes_a_day=1 / 60)}
    async with server(services=locked(keys)) as running:
        async with open_socket(running.stream, additional_headers=bearer(SPEAK), proxy=None) as socket:
            await socket.send('{"type": "start"}')
            assert json.loads(await socket.recv())["type"] == "ready"
            code, answer = await first_answer(running.stream, {"type": "start"}, bearer(SPEAK))
            assert (code, answer["code"]) == (1008, "key_limit")
            assert answer["retry_after_ms"] > 0
            assert (await first_answer(running.stream, {"type": "start"}, bearer(ADMIN)))[0] == 0
            await socket.send(bytes(2 * 16_000))
            last: dict[str, Any] = {}
            with contextlib.suppress(ConnectionClosed):
                while True:
                    last = json.loads(await socket.recv())
            assert (last["type"], last["code"]) == ("error", "key_limit")
        assert running.services.quotas.sessions("bot") == 0


async def test_a_token_in_start_is_not_kept() -> None:
    kept: list[Start] = []

    async with server(services=locked()) as running:
        sessions, opened = running.services.sessions, running.services.sessions.open

        def opening(token: str | None, start: Start, guest: str | None, **more: Any) -> Any:
            kept.append(start)
            return opened(token, start, guest, **more)

        sessions.open = opening  # type: ignore[method-assign, assignment]
        assert (await first_answer(running.stream, {"type": "start", "token": SPEAK}))[0] == 0
        assert [start.token for start in kept] == [None]


# -- other sites ------------------------------------------------------------------------------------

EVIL = "https://evil.example"


ORIGINS = (EVIL, "null", "http://127.0.0.1", "http://127.0.0.1:1", "http://localhost.evil:80", "x", "")


@pytest.mark.parametrize("more", [{}, locked()], ids=["open", "keys"])
async def test_pages_of_other_sites_get_in_nowhere(more: dict[str, Any]) -> None:
    keyed = bearer(ADMIN) if more else {}
    async with server(services=more) as running, inside(running) as http:
        everything = dict(paths(running, session(running)))
        for path, socket in everything.items():
            for origin in ORIGINS:
                for method in METHODS if origin == EVIL else ("GET", "POST"):
                    answer = await http.request(method, path, headers={**keyed, "Origin": origin})
                    assert answer.status_code == 403 or path in PUBLIC, (method, path, origin)
                    assert "access-control-allow-origin" not in answer.headers
            if socket:
                url = f"ws://{running.address}{path}"
                assert (await first_answer(url, {"type": "start"}, {**keyed, "Origin": EVIL}))[0] == 403


async def test_a_form_of_another_site_changes_nothing() -> None:
    """What a page may send without being asked: text/plain, as a form."""
    async with server() as running, client() as http:
        id = session(running)
        forged = {"Origin": EVIL, "Content-Type": "text/plain"}
        for method, path in (("POST", "/v1/tokens"), ("POST", f"/v1/sessions/{id}/speakers/1")):
            answer = await http.request(method, running.http(path), headers=forged, content='{"name": "Eve"}')
            assert answer.status_code == 403
        assert "Eve" not in (await http.get(running.http(f"/v1/sessions/{id}/transcript.txt"))).text


async def test_our_own_pages_and_listed_sites_are_welcome() -> None:
    friend = "https://captions.example.com"
    more = {**locked(), "sites": Sites(origins=frozenset({friend}))}
    async with server(services=more) as running, client() as http:
        id = session(running)
        url = running.http(f"/v1/sessions/{id}/transcript.txt")
        own = await http.get(url, headers={**bearer(READ), "Origin": f"http://{running.address}"})
        assert own.status_code == 200
        assert "access-control-allow-origin" not in own.headers
        listed = await http.get(url, headers={**bearer(READ), "Origin": friend})
        assert listed.status_code == 200
        assert listed.headers["access-control-allow-origin"] == friend
        assert listed.headers["vary"] == "Origin"
        asked = await http.request(
            "OPTIONS", url, headers={"Origin": friend, "Access-Control-Request-Method": "GET"}
        )
        assert asked.status_code == 204
        assert "authorization" in asked.headers["access-control-allow-headers"]
        assert (await http.get(url, headers={"Origin": friend})).status_code == 401
        first = {"type": "start", "token": SPEAK}
        assert (await first_answer(running.stream, first, {"Origin": friend}))[0] == 0


@pytest.mark.parametrize(
    ("origin", "host", "same"),
    [
        ("http://127.0.0.1:8765", "127.0.0.1:8765", True),
        ("https://a.example", "a.example", True),
        ("https://a.example", "a.example:443", True),
        ("http://a.example", "a.example:80", True),
        ("https://A.example", "a.EXAMPLE", True),
        ("http://[::1]:8765", "[::1]:8765", True),
        ("https://a.example:8443", "a.example", False),
        ("http://a.example", "a.example:8080", False),
        ("https://a.example.evil", "a.example", False),
        ("https://a.example@evil", "a.example", False),
        ("https://evil/a.example", "a.example", False),
        ("null", "null", False),
        ("", "", False),
        ("file://", "", False),
        ("http://[::1", "[::1", False),
        ("http://a.example:x", "a.example:x", False),
    ],
)
def test_what_is_one_origin(origin: str, host: str, same: bool) -> None:
    assert Sites().welcome(origin, host) is same


@pytest.mark.parametrize(
    "host", ["rebound.example", "rebound.example:8765", "127.0.0.1.nip.example", "", "[::1", "a b"]
)
async def test_a_name_that_was_made_to_lead_here_is_not_ours(host: str) -> None:
    """DNS rebinding: for the browser such a page and we are one origin."""
    async with server() as running, client() as http:
        headers = {"Host": host, "Origin": f"http://{host}"}
        answer = await http.get(running.http("/v1/sessions"), headers=headers)
        assert answer.status_code in (400, 421)
        reader, writer = await asyncio.open_connection(*running.address.split(":"))
        writer.write(
            f"GET /v1/stream HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        assert (await reader.readline()).split()[1] in (b"400", b"421")
        writer.close()


@pytest.mark.parametrize(
    ("sites", "open", "host", "ours"),
    [
        (Sites(), True, "127.0.0.1:8765", True),
        (Sites(), True, "[::1]:8765", True),
        (Sites(), True, "192.168.1.7", True),
        (Sites(), True, "localhost:1", True),
        (Sites(), True, "LOCALHOST.", True),
        (Sites(), True, "a.example", False),
        (Sites(), True, "1", False),
        (Sites(), True, None, True),
        (Sites(), False, "a.example", True),
        (Sites(frozenset({"a.example"})), True, "a.example:443", True),
        (Sites(frozenset({"a.example"})), False, "b.example", False),
    ],
)
def test_which_names_are_ours(sites: Sites, open: bool, host: str | None, ours: bool) -> None:
    assert sites.answers_to(host, open=open) is ours


# -- paths and headers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "id",
    [
        "..",
        ".",
        "%2e%2e",
        "..%2f..%2fetc%2fpasswd",
        "%00",
        "a%0d%0ab",
        "a b",
        "x" * 129,
        "%E2%80%A8",
        "a%2f..%2fb",
        "~",
        "a;b",
    ],
)
async def test_an_id_that_is_none_reaches_nothing(id: str) -> None:
    async with server() as running:
        for method, rest in (("GET", "/transcript.txt"), ("DELETE", ""), ("PUT", "/speakers/1")):
            reader, writer = await asyncio.open_connection(*running.address.split(":"))
            target = f"/v1/sessions/{id}{rest}".replace(" ", "%20")
            writer.write(
                f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
            )
            answer = (await reader.read()).decode()
            assert answer.split()[1] == "404", answer
            writer.close()


async def test_every_answer_has_the_strict_headers() -> None:
    async with server(services=locked()) as running, client() as http:
        for path in ("/healthz", "/nowhere", "/metrics", "/v1/stream"):
            for headers in ({}, bearer(ADMIN), {"Origin": EVIL}):
                answer = await http.get(running.http(path), headers=headers)
                assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS
                assert "server" not in answer.headers
                assert "strict-transport-security" not in answer.headers
