"""`seamscribe serve`: settings, engine, sockets, signals."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn

from engine.contract import EngineError
from streaming.observe.hygiene import FORMATS
from streaming.sessions.services import Services
from streaming.sockets.door import Door, http_protocol
from streaming.sockets.transport import NO_TRACEBACK, Protocol
from streaming.web.guard import PUBLIC
from streaming.web.server import build

from .app import ENGINES, running
from .crew import LEAVING_S, Crew, share_of, watching_parent
from .errors import SettingsError
from .settings import ServerSettings, Settings, load

logger = logging.getLogger("seamscribe")

PROBES = 8
"""More connections, for a moment each, that may ask whether the server is well while all others are taken."""

STRANGERS = 256
"""Connections at once that are no session, at least: handshakes, requests, clients before `start`."""


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; 0 after a clean drain, 1 otherwise, 2 for unusable settings."""
    arguments = _parser().parse_args(argv)
    try:
        settings = load(
            arguments.config,
            overrides={
                "server.host": arguments.host,
                "server.port": arguments.port,
                "server.processes": arguments.processes,
                "engine.kind": arguments.engine,
                "engine.model": arguments.model,
                "session.speakers": arguments.speakers,
                "server.public_without_keys": arguments.public_without_keys,
                "journal.on": arguments.journal,
            },
        )
        _log(settings.server)
        own, crewed = share_of(settings, arguments.number), settings.server.processes > 1
        if crewed and arguments.inherit is None:
            return asyncio.run(command(settings, argv))
        return asyncio.run(serve(own, arguments.inherit))
    except SettingsError as error:
        return _complain(str(error), 2)
    except EngineError as error:
        return _complain(f"the engine does not start: {error}", 1)
    except ImportError as error:
        return _complain(
            f"the engine {error.name or error} is not installed: `seamscribe doctor` says what is missing", 1
        )
    except OSError as error:
        reason = error.strerror or error
        return _complain(f"cannot listen: {reason}: name another server.host or server.port", 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="seamscribe serve", description="Serve live transcription.")
    parser.add_argument("--config", type=Path, metavar="F", help="a TOML file of settings")
    parser.add_argument("--host", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on (8765); 0 takes a free one")
    parser.add_argument("--processes", type=int, metavar="N", help="how many serve on the port (1)")
    parser.add_argument("--inherit", type=int, help=argparse.SUPPRESS)  # the parent's listening socket
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)  # which of its processes
    parser.add_argument("--engine", choices=sorted(ENGINES), help="which engine (local)")
    parser.add_argument("--model", metavar="NAME|PATH", help="weights: a name or a folder")
    parser.add_argument(
        "--no-speakers",
        dest="speakers",
        action="store_const",
        const=False,
        help="tell no voices apart where a client does not ask for it",
    )
    parser.add_argument(
        "--no-journal", dest="journal", action="store_const", const=False, help="keep nothing on disk"
    )
    parser.add_argument(
        "--public-without-keys",
        action="store_const",
        const=True,
        help="listen where other machines can connect though there are no keys: whoever can may use it",
    )
    return parser


async def command(settings: Settings, argv: Sequence[str]) -> int:
    """Have `server.processes` processes serve, each started with `argv`. Raises `SettingsError`, OSError."""
    server, stop = settings.server, asyncio.Event()
    tls_of(server)
    with _signals(stop), listen(server.host, server.port) as listener:
        check_reach(listener, settings)
        fd = listener.fileno()
        child = (sys.executable, "-m", "streaming", "serve", *argv, "--inherit", str(fd))
        return await Crew(child, fd, server.processes, server.drain_s + LEAVING_S).run(stop)


async def serve(settings: Settings, inherited: int | None = None) -> int:
    """Run one server; prints a line once it listens. `inherited` is the listening socket of a parent. Raises
    what `running` raises, and OSError."""
    stop, tls = asyncio.Event(), tls_of(settings.server)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_signals(stop))
        if inherited is None:
            listener = stack.enter_context(listen(settings.server.host, settings.server.port))
        else:
            stack.enter_context(watching_parent())
            listener = stack.enter_context(socket.socket(fileno=inherited))
        check_reach(listener, settings)
        sockets, address, own_port = [listener], "", 0
        if settings.cluster.port or (settings.journal.on and settings.journal.url):
            inner = stack.enter_context(listen(settings.cluster.host, settings.cluster.port))
            check_reach(inner, settings)
            own_port = inner.getsockname()[1]
            sockets, address = [listener, inner], f"http://{place_of(inner)}"
        async with running(settings, address) as services:
            if settings.server.processes > 1:
                services = replace(services, own_port=own_port)
            server = server_for(services, tls)
            serving = asyncio.create_task(server.serve(sockets=sockets))
            stopping = asyncio.create_task(stop.wait())
            listening = asyncio.create_task(server.listening.wait())
            await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
            if server.listening.is_set():
                _announce(listener, services.dispatcher.capabilities.engine, tls is not None)
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
            stopping.cancel()
            clean = await services.sessions.drain(settings.server.drain_s)
            server.should_exit = True
            await serving
            return 0 if clean else 1


def check_reach(listener: socket.socket, settings: Settings) -> None:
    """Refuse, with `SettingsError`, to listen where other machines can connect though nobody needs a key."""
    host = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0])
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    if (mapped or host).is_loopback or settings.auth.keys or settings.server.public_without_keys:
        return
    raise SettingsError(
        f"server.host: other machines can connect to {host}, and there are no auth.keys: make one with"
        " `seamscribe key new`, or listen on 127.0.0.1, or say --public-without-keys"
    )


def tls_of(server: ServerSettings) -> ssl.SSLContext | None:
    """What encrypts connections, TLS 1.2 at least; None for plain HTTP. Raises `SettingsError`."""
    if not server.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(server.tls_cert, server.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"server.tls_cert: {server.tls_cert} and tls_key cannot be used ({error}): name a certificate and"
            " its key, both PEM"
        ) from None
    return context


def server_for(services: Services, tls: ssl.SSLContext | None = None) -> Server:
    """A uvicorn server over running services; give it a listening socket."""
    logging.getLogger("uvicorn.error").addFilter(NO_TRACEBACK)
    limits, sessions = services.limits, services.sessions
    door = Door(
        # After a restart all clients of another server may come at once.
        max(STRANGERS, limits.max_sessions),
        limits.start_timeout_s,
        limits.retry_after_s,
        lambda: sessions.seated,
        PROBES,
        PUBLIC,
    )
    return Server(
        uvicorn.Config(
            build(services),
            lifespan="off",
            http=http_protocol(door),
            ws=Protocol,
            # A little above our own limit, so that most large packets get a message that names the remedy;
            # the rest is refused by the frame's header with 1009, unread.
            ws_max_size=2 * limits.max_packet_bytes,
            ws_per_message_deflate=False,
            ws_ping_interval=20.0,
            # While a socket is not read (back-pressure) pongs are not seen either; a dead client is found
            # by our own idle and writing deadlines.
            ws_ping_timeout=None,
            timeout_graceful_shutdown=2,
            # Nobody needs it, and it would hold ids and queries; our formatter would strike them out.
            access_log=False,
            server_header=False,
            proxy_headers=False,  # we believe nobody about where somebody comes from
            ssl_context_factory=None if tls is None else lambda config, default: tls,
            log_config=None,
        )
    )


BACKLOG = 1024
"""Connections that may wait to be accepted."""

HANDSHAKE_S = 10.0
"""How long a client may take to agree on TLS."""


class Server(uvicorn.Server):
    """Leaves the signals to us, for sessions are drained first, and says when it listens."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._listen(sockets or [])
        self.listening.set()

    async def _listen(self, sockets: list[socket.socket]) -> None:
        """As uvicorn does it, but with a deadline for TLS handshakes, of which asyncio's is a minute."""
        config, loop = self.config, asyncio.get_running_loop()

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            connection: asyncio.Protocol = made(config=config, server_state=self.server_state, app_state={})
            return connection

        # Among processes plain HTTP is spoken: only the first socket is everybody's.
        encrypted = [config.ssl, *(None for _ in sockets[1:])]
        self.servers = [
            await loop.create_server(
                # asyncio takes the backlog for the number of connections to accept at a time: more than
                # one would leave nothing to the other processes that accept from this socket.
                protocol,
                sock=one,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HANDSHAKE_S,
                backlog=1,
            )
            for one, context in zip(sockets, encrypted, strict=True)
        ]
        for one in sockets:
            one.listen(BACKLOG)
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.contextmanager
def _signals(stop: asyncio.Event) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; a second one ends the process at once."""
    loop = asyncio.get_running_loop()
    handled = (signal.SIGTERM, signal.SIGINT)

    def receive(number: signal.Signals) -> None:
        if stop.is_set():
            loop.remove_signal_handler(number)
            signal.raise_signal(number)
        logger.info("%(signal)s: finishing the running sessions", {"signal": number.name})
        stop.set()

    for number in handled:
        loop.add_signal_handler(number, receive, number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


RECEIVE_BUFFER = 1 << 18
"""Bytes of one connection that the kernel keeps for us (it doubles them): 16 s of 16-bit audio."""


@contextlib.contextmanager
def listen(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; raises OSError."""
    host = host.strip().removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=BACKLOG) as listener:
        # Audio nobody has looked at waits in the kernel, and a client's ping behind it: not for minutes.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        yield listener


def place_of(listener: socket.socket) -> str:
    """Where it listens, as URLs have it."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _announce(listener: socket.socket, engine: str, encrypted: bool) -> None:
    place = place_of(listener)
    # Other programs wait for this line on stdout.
    s = "s" if encrypted else ""
    line = f"seamscribe: listening on http{s}://{place} (ws{s}://{place}/v1/stream, engine {engine})"
    print(line, flush=True)  # noqa: T201


def _complain(message: str, status: int) -> int:
    print(f"seamscribe: {message}", file=sys.stderr)  # noqa: T201 - a command speaks on stderr
    return status


def _log(server: ServerSettings) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATS[server.log_format])
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logger.setLevel(server.log_level.upper())
