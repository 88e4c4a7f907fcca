"""No secret in a log, whoever writes it: a canary through every route and error, everything at debug."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.client import connect as open_socket
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

import streaming
from streaming.access.auth import SUBPROTOCOL
from streaming.dialects.ways import WAYS
from streaming.observe.hygiene import FORMATS, STRUCK, Clean, JsonLines, one_line, struck
from streaming.serve import server_for
from streaming.wire.codec import JSON_PROTOCOL
from tests.support.foreign import dial, places
from tests.support.keys import ADMIN, SPEAK, locked
from tests.support.server import Running, server
from tests.support.virtual import settle

LEVELS = ("debug", "info", "warning", "error", "exception")

CANARY = "canary0123456789ABCDEF-_canary"

LINES = (
    f"> Authorization: Bearer {CANARY}",
    f"authorization: Token {CANARY}",
    f"[(b'host', b'x'), (b'authorization', b'Bearer {CANARY}'), (b'accept', b'*/*')]",
    f'{{"Authorization": "Bearer {CANARY}", "a": 1}}',
    f"> Sec-WebSocket-Protocol: seamscribe.v1.json, seamscribe.token.{CANARY}",
    f"(b'sec-websocket-protocol', b'token, {CANARY}')",
    f"subprotocols ['seamscribe.v1.json', 'seamscribe.token.{CANARY}']",
    f"openai-insecure-api-key.{CANARY}",
    f'127.0.0.1:1 - "GET /v1/sessions/abc/events?token={CANARY}&after=3 HTTP/1.1" 403',
    f'127.0.0.1:1 - "WebSocket /v1/stream?x=1&jwt={CANARY}" [accepted]',
    f"ws://127.0.0.1:8765/v1/stream?api_key={CANARY}",
    f"> GET /?{CANARY}=1 HTTP/1.1",
    f'{{"type": "start", "token": "{CANARY}"}}',
    f"Start(version=1, token='{CANARY}')",
    f"Resume(session='x', token='{CANARY}', last_seq=0)",
    f'< TEXT \'{{"read_token":"{CANARY}","token":"{CANARY}"}}\' [99 bytes]',
    f'b\'{{"token":"{CANARY}"}}\'',
    f"secret = '{CANARY}'",
    f"Cookie: a={CANARY}; b={CANARY}",
    f"refused: smk_{CANARY} is nobody's",
    f"GET /v1/sessions/abcdefgh{CANARY}/transcript.txt",
    f"Bearer {CANARY}",
)


@pytest.mark.parametrize("line", LINES)
def test_a_secret_is_struck_out_wherever_secrets_stand(line: str) -> None:
    clean = struck(line)
    assert CANARY not in clean
    assert "canary" not in clean.lower().replace("abcdefghcanary", "")
    assert struck(clean) == clean
    for form in FORMATS.values():
        assert CANARY not in form.format(logging.LogRecord("x", logging.INFO, "x", 1, line, (), None))


@pytest.mark.parametrize(
    "line",
    [
        "session abcdefgh started",
        "session abcdefgh ended: done, 12.3 s",
        "client refused: unknown_field: speed: unknown field: leave it out; known here: version, audio",
        "voices are not told apart: the networks are missing: run `seamscribe weights speakers`",
        "what is this? nothing = something",
        "the engine takes 12 tokens a word",
        "webhook 1234abcd failed: HTTP 500",
    ],
)
def test_what_an_operator_reads_stays(line: str) -> None:
    assert struck(line) == line


@given(st.text())
def test_a_message_is_one_line_whatever_a_client_wrote(text: str) -> None:
    assert len(f"a{one_line(text)}b".splitlines()) == 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in one_line(text))


def formatted(record: logging.LogRecord) -> str:
    return Clean(logging.Formatter("%(levelname)s %(message)s")).format(record)


def test_no_log_line_of_a_clients_making() -> None:
    record = logging.LogRecord(
        "x", logging.INFO, "x", 1, "refused: %s", ("a\nINFO forged\x1b[2J\u2028b",), None
    )
    assert formatted(record) == "INFO refused: a\\nINFO forged\\x1b[2J\\u2028b"
    for args in (("no number",), ({"other": 1},)):
        broken = logging.LogRecord("x", logging.INFO, "x", 1, "%(n)d", args, None)
        assert "cannot be formatted" in formatted(broken)
        assert "cannot be formatted" in parsed(broken)["message"]


def parsed(record: logging.LogRecord) -> dict[str, Any]:
    line = JsonLines().format(record)
    assert line.isascii()
    assert len(line.splitlines()) == 1
    found: dict[str, Any] = json.loads(line)
    return found


def named(text: str, fields: Mapping[str, object]) -> logging.LogRecord:
    return logging.LogRecord("seamscribe", logging.WARNING, "x", 1, text, (fields,), None)


def test_a_line_of_json_has_its_session_and_its_named_arguments() -> None:
    record = named(
        "session %(session)s ended: %(reason)s, %(audio_s).1f s",
        {"session": "abcdefgh", "reason": "done", "audio_s": 12.345},
    )
    record.created = 1_700_000_000.25
    assert parsed(record) == {
        "ts": "2023-11-14T22:13:20.250+00:00",
        "level": "warning",
        "logger": "seamscribe",
        "message": "session abcdefgh ended: done, 12.3 s",
        "session": "abcdefgh",
        "fields": {"reason": "done", "audio_s": 12.345},
    }
    plain = parsed(logging.LogRecord("x", logging.INFO, "x", 1, "a %s", ("b",), None))
    assert (plain["message"], set(plain)) == ("a b", {"ts", "level", "logger", "message"})


@given(st.text(), st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.binary(), st.text()))
def test_a_line_of_json_is_one_line_of_json_whatever_a_client_wrote(text: str, value: object) -> None:
    found = parsed(named("refused: %(reason)s, %(value)s", {"reason": text, "value": value}))
    for said in (found["message"], found["fields"]["reason"], str(found["fields"]["value"])):
        assert one_line(said) == said


def test_what_is_struck_out_of_the_message_is_struck_out_of_its_fields() -> None:
    found = parsed(
        named("> authorization: %(what)s\n%(why)s %(n)d", {"what": CANARY, "why": f"Bearer {CANARY}", "n": 3})
    )
    assert CANARY not in json.dumps(found)
    assert found["fields"] == {"what": STRUCK, "why": f"Bearer {STRUCK}", "n": 3}


def test_every_line_of_ours_names_its_arguments() -> None:
    """Else they were no fields in JSON, and no session could be searched for."""
    root, wrong, seen = Path(streaming.__file__).parent, [], 0
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger."):
                seen += 1
                text, *arguments = node.args
                literal = isinstance(text, ast.Constant) and isinstance(text.value, str)
                if literal and "%" in ast.literal_eval(text):
                    literal = not re.search(r"%(?!\()", ast.literal_eval(text)) and len(arguments) == 1
                if node.func.attr in LEVELS and not literal:  # type: ignore[attr-defined]
                    wrong.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert seen > 20
    assert wrong == []


def test_a_traceback_keeps_its_lines_and_no_secret() -> None:
    try:
        raise ValueError(f"Authorization: Bearer {CANARY}")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "failed", (), sys.exc_info())
    record.exc_text = f"kept by another handler: token='{CANARY}'"
    text = formatted(record)
    assert "Traceback" in text
    assert len(text.splitlines()) > 3
    assert CANARY not in text
    told = parsed(record)
    assert "Traceback" in told["exception"]
    assert CANARY not in json.dumps(told)
    assert record.exc_text.endswith(f"{CANARY}'"), "the record is not ours to change"


@pytest.mark.parametrize("words", ["a\n2026-11-30 05:49:42,000 INFO seamscribe forged", "a\r\x1b[2J\u2028b"])
def test_what_an_exception_quotes_of_a_client_begins_no_line(words: str) -> None:
    try:
        raise ValueError(words)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "x", 1, "failed", (), sys.exc_info(), sinfo=words)
    first, *others = formatted(record).splitlines()
    assert first == "ERROR failed"
    assert [line for line in others if not line.startswith("| ")] == []
    assert not any(ord(c) < 32 for line in others for c in line)
    assert "ValueError" in parsed(record)["exception"]


class Lines(logging.Handler):
    """What a handler of ours would have written in either format, and what a plain one would."""

    def __init__(self) -> None:
        super().__init__()
        self.clean: list[str] = []
        self.plain: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.clean += [form.format(record) for form in FORMATS.values()]
        self.plain.append(logging.Formatter().format(record))


@contextlib.contextmanager
def everything_logged() -> Iterator[Lines]:
    lines, root = Lines(), logging.getLogger()
    names = (
        "",
        "seamscribe",
        "uvicorn",
        "uvicorn.error",
        "uvicorn.access",
        "uvicorn.asgi",
        "websockets",
        "asyncio",
    )
    levels = {name: logging.getLogger(name).level for name in names}
    root.addHandler(lines)
    for name in names:
        logging.getLogger(name).setLevel(5)
    try:
        yield lines
    finally:
        root.removeHandler(lines)
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


async def knock(running: Running, http: httpx.AsyncClient) -> None:
    """With the canary in every place that may hold a secret, at every door."""
    bodies = ('{"name": "x"}', "{", f'{{"token": "{CANARY}"}}')
    for path in (
        "/healthz", "/metrics", "/v1/sessions", "/v1/sessions/x/transcript.txt", "/v1/sessions/x/speakers/1",
        "/v1/tokens", "/v1/stream", "/nowhere", f"/v1/sessions/{CANARY}/transcript.txt", "/v1/sessions/%00",
    ):  # fmt: skip
        for method in ("GET", "POST", "PUT", "DELETE"):
            for headers in (
                {"Authorization": f"Bearer {CANARY}"},
                {"Authorization": f"Token {CANARY}", "Cookie": f"token={CANARY}"},
                {"Authorization": f"Bearer {ADMIN}", "X-Api-Key": CANARY},
            ):
                for body in bodies if path == "/v1/tokens" else bodies[:1]:
                    url = running.http(f"{path}?token={CANARY}&jwt={CANARY}")
                    await http.request(method, url, headers=headers, content=body)
    secret = Subprotocol(SUBPROTOCOL + CANARY)
    firsts = (
        {"type": "start", "token": CANARY},
        {"type": "resume", "session": "x", "token": CANARY},
        {"type": "read", "token": CANARY},
        {"type": "start", "token": CANARY, "nonsense": CANARY},
        {"type": "start", "token": [CANARY]},
    )
    for path in ("/v1/stream", "/v1/sessions/x/events", "/nowhere"):
        for first in firsts:
            for protocols in (None, [Subprotocol(JSON_PROTOCOL), secret], [secret]):
                for value in ("", f"Bearer {SPEAK}", f"Basic {CANARY}"):
                    shown = {"Authorization": value} if value else None
                    url = f"ws://{running.address}{path}?token={CANARY}"
                    with contextlib.suppress(InvalidStatus, ConnectionClosed):
                        async with open_socket(
                            url, subprotocols=protocols, additional_headers=shown, proxy=None
                        ) as socket:
                            await socket.send(json.dumps(first))
                            await socket.recv()


async def knock_as_others(running: Running) -> None:
    """The same at the doors of other protocols, wherever their clients bring a key."""
    for way in WAYS:
        for secret in (CANARY, SPEAK):
            for place in places(way, secret):
                with contextlib.suppress(InvalidStatus, ConnectionClosed, TimeoutError):
                    async with dial(running, way, place) as socket:
                        await socket.send(json.dumps({"token": secret}))
                        await socket.send("no JSON")
                        async with asyncio.timeout(1):
                            while True:
                                await socket.recv()


@pytest.mark.e2e
async def test_a_canary_through_every_route_and_error_reaches_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    made = uvicorn.Config.__init__

    def telling(self: uvicorn.Config, *arguments: object, **named: object) -> None:
        made(self, *arguments, **{**named, "access_log": True})  # type: ignore[arg-type]

    monkeypatch.setattr(uvicorn.Config, "__init__", telling)
    with everything_logged() as lines:
        async with server(services=locked()) as running, httpx.AsyncClient(trust_env=False) as http:
            await knock(running, http)
            await knock_as_others(running)
            broken = running.services.sessions.find
            running.services.sessions.find = lambda id: 1 / 0  # type: ignore[assignment,method-assign,return-value]
            with contextlib.suppress(httpx.HTTPError):
                await http.get(
                    running.http(f"/v1/sessions/x/transcript.txt?token={CANARY}"),
                    headers={"Authorization": f"Bearer {ADMIN}"},
                )
            running.services.sessions.find = broken  # type: ignore[method-assign]
            await settle()
    assert "ZeroDivisionError" in "".join(lines.plain), "errors were logged"
    assert CANARY in "".join(lines.plain), "else this test sees nothing"
    assert len([line for line in lines.clean if line.startswith("{") and json.loads(line)]) == len(
        lines.plain
    )
    for secret in (CANARY, ADMIN, SPEAK):
        assert not [line for line in lines.clean if secret in line]


@pytest.mark.e2e
async def test_the_server_as_it_is_set_up_writes_no_access_log() -> None:
    async with server() as running:
        config = server_for(running.services).config
        assert (config.access_log, config.log_config) == (False, None)
