"""Where the server listens, and for whom: addresses, TLS, too many connections, and floods of all kinds."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import ssl
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from engine.fake import FakeDetector
from streaming.audio.intake import Intake
from streaming.errors import SettingsError
from streaming.serve import check_reach, listen, main, tls_of
from streaming.settings import ServerSettings, Settings, load
from streaming.sockets.door import BRIEF_S, FULL
from streaming.web.guard import PUBLIC
from streaming.wire.messages import WIDTHS, AudioFormat, Encoding
from tests.streaming.test_transport import UPGRADE, House, hello
from tests.support.keys import ADMIN, KEYS, bearer, locked
from tests.support.server import server
from tests.support.virtual import run, settle


class Bound:
    """A listening socket's address, without the socket."""

    def __init__(self, *name: Any) -> None:
        self._name = name

    def getsockname(self) -> tuple[Any, ...]:
        return self._name


def bound(host: str) -> socket.socket:
    return Bound(host, 1)  # type: ignore[return-value]


KEYED = load(
    None, {"SEAMSCRIBE_AUTH__KEYS__A__SHA256": "0" * 64, "SEAMSCRIBE_AUTH__KEYS__A__SCOPES": "speak"}
)
FLAGGED = load(None, {}, {"server.public_without_keys": True})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"])
def test_this_machine_alone_needs_no_keys(host: str) -> None:
    check_reach(bound(host), Settings())


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "192.168.1.2", "fe80::1%eth0", "::ffff:0.0.0.0", "8.8.8.8"]
)
def test_others_are_let_near_with_keys_or_a_plain_word_only(host: str) -> None:
    with pytest.raises(SettingsError, match=r"seamscribe key new.*--public-without-keys"):
        check_reach(bound(host), Settings())
    check_reach(bound(host), KEYED)
    check_reach(bound(host), FLAGGED)


def test_a_name_is_judged_by_what_it_was_bound_to() -> None:
    with listen("localhost", 0) as listener:
        check_reach(listener, Settings())
    with listen("0.0.0.0", 0) as listener, pytest.raises(SettingsError):
        check_reach(listener, Settings())


def test_the_command_refuses_before_it_loads_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--engine", "local", "--model", "/nowhere", "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "server.host: other machines can connect to 0.0.0.0" in capsys.readouterr().err


# -- TLS ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    return str(cert), str(key)


@pytest.mark.e2e
async def test_tls_is_spoken_in_modern_versions_only(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    context = tls_of(ServerSettings(tls_cert=cert, tls_key=key))
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    async with server(services=locked(), tls=context) as running:
        trusting = ssl.create_default_context(cafile=cert)
        async with httpx.AsyncClient(trust_env=False, verify=trusting) as http:
            answer = await http.get(f"https://{running.address}/metrics", headers=bearer(ADMIN))
            assert answer.status_code == 200
            assert answer.headers["strict-transport-security"].startswith("max-age=")
        reader, writer = await asyncio.open_connection(*running.address.split(":"))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"200" not in await reader.read(100)
        writer.close()


def test_a_certificate_that_is_none_is_told(tmp_path: Path, certificate: tuple[str, str]) -> None:
    (tmp_path / "x").write_text("x")
    for cert, key in (
        (str(tmp_path / "none"), "y"),
        (str(tmp_path / "x"), str(tmp_path / "x")),
        (certificate[0],) * 2,
    ):
        with pytest.raises(SettingsError, match=r"^server\.tls_cert: "):
            tls_of(ServerSettings(tls_cert=cert, tls_key=key))
    assert tls_of(ServerSettings()) is None


# -- the door ----------------------------------------------------------------------------------------

REQUEST = b"GET %s HTTP/1.1\r\nHost: here\r\n\r\n"


def full(spare: int = 2) -> House:
    house = House(hello, most=1, spare=spare, asked=PUBLIC)
    house.connect()
    return house


def test_a_full_house_still_says_whether_it_is_well() -> None:
    async def main() -> None:
        house = full()
        for path in sorted(PUBLIC):
            asking = house.connect()
            asking.protocol.data_received(REQUEST % path.encode())
            await settle()
            assert asking.written.endswith(b"hello")
            assert asking.lost
        other = house.connect()
        other.protocol.data_received(REQUEST % b"/v1/sessions")
        await settle()
        assert other.written.startswith(b"HTTP/1.1 503")
        assert b"retry-after: 5" in other.written.lower()
        assert other.lost

    run(main())


def test_no_websocket_comes_in_by_the_spare_door() -> None:
    async def main() -> None:
        house = full()
        sneaking = house.connect()
        sneaking.protocol.data_received(f"GET /healthz HTTP/1.1\r\n{UPGRADE}\r\n".encode())
        assert sneaking.written.startswith(b"HTTP/1.1 503")
        await asyncio.sleep(1)
        assert sneaking.lost

    run(main())


def test_the_spare_door_is_small_and_nobody_stands_in_it() -> None:
    async def main() -> None:
        house = full()
        standing = [house.connect() for _ in range(2)]
        late = house.connect()
        assert late.written.endswith(FULL.encode())
        await asyncio.sleep(BRIEF_S + 1)
        assert all(one.lost and one.written.startswith(b"HTTP/1.1 503") for one in standing)
        assert len(house.state.connections) == 1

    run(main())


# -- floods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flood",
    [
        b"GET / HTTP/1.1\r\nHost: here\r\n" + b"X: y\r\n" * 100_000,
        b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"y" * 1_000_000,
        b"GET /" + b"y" * 1_000_000,
        b"GET /v1/listen?" + b"keyterm=x&" * 100_000,
        b"GET / HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer " + b"y" * 1_000_000,
        b"\0" * 1_000_000,
    ],
    ids=["headers", "header", "target", "query", "key", "zeros"],
)
def test_a_flood_of_headers_is_refused_and_not_kept(flood: bytes) -> None:
    async def main() -> None:
        house = House(hello)
        transport = house.connect()
        for at in range(0, len(flood), 16_384):
            if transport.closing:
                break
            transport.protocol.data_received(flood[at : at + 16_384])
        await settle()
        assert transport.written.split()[1] in (b"400", b"431")
        assert at <= 8 * 16_384, "most of it was never read"
        await asyncio.sleep(60)
        assert transport.lost

    run(main())


@pytest.mark.parametrize("encoding", list(WIDTHS))
@pytest.mark.parametrize("channels", [1, 8])
def test_a_packet_of_audio_grows_by_a_bounded_factor(encoding: Encoding, channels: int) -> None:
    """Small bytes that become much audio: the least bytes a sample, at the rate that grows most."""

    async def main() -> None:
        format = AudioFormat(encoding=encoding, sample_rate=8_000, channels=channels)
        packet = bytes(1 << 20)
        intake = Intake(format, FakeDetector(), channels, 1 << 30)
        tracemalloc.start()
        samples = 0
        async for frames, _ in intake.feed(packet):
            samples += sum(frame.size for frame in frames)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert samples <= 2 * (1 << 20) + 16_000
        assert peak < 64 * len(packet)

    run(main())


@pytest.mark.e2e
@pytest.mark.e2e
async def test_half_a_handshake_has_a_deadline(
    certificate: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.serve.HANDSHAKE_S", 0.05)
    cert, key = certificate
    async with server(tls=tls_of(ServerSettings(tls_cert=cert, tls_key=key))) as running:
        reader, writer = await asyncio.open_connection(*running.address.split(":"))
        async with asyncio.timeout(20):  # asyncio's own deadline is a minute
            assert await reader.read() == b""
        writer.close()


async def test_nothing_is_decompressed() -> None:
    """A client may offer to; what it sends compressed anyway is a broken frame, and nothing of it is kept."""
    async with server() as running, connect(running.stream, compression="deflate") as socket:
        assert "Sec-WebSocket-Extensions" not in socket.response.headers  # type: ignore[union-attr]
        assert socket.protocol.extensions == []


async def test_a_body_that_drips_or_never_ends_is_not_waited_for() -> None:
    async with server(services=locked(KEYS), start_timeout_s=0.3) as running:
        for body in (b"{", b"x" * 100_000):
            reader, writer = await asyncio.open_connection(*running.address.split(":"))
            writer.write(
                b"POST /v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n"
                + f"Authorization: Bearer {ADMIN}\r\n\r\n".encode()
                + body
            )
            answer = await asyncio.wait_for(reader.read(), 10)
            assert answer.split()[1] in (b"408", b"413")
            writer.close()
