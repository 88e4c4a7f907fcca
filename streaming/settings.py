"""One frozen tree of settings, read once: defaults, then a TOML file, then the environment, then the
command line. Nothing else of the service reads the environment.

Three numbers that must not be mixed up live in three places: `engine.max_window_s` is what the *model*
may be given in one request, `session.window_s` what the *scheduler* wants to give it, and `limits.*` what
this *endpoint* lets one user send.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from engine.contract import FRAME
from streaming.access.posting import target_of
from streaming.access.settings import (
    AuthSettings,
    PrivacySettings,
    SiteSettings,
    check_access,
    check_audio,
    check_keys,
)
from streaming.cluster.settings import ClusterSettings, check_cluster
from streaming.core.judging import MISSING
from streaming.core.settings import SessionSettings
from streaming.core.spans import to_samples, to_seconds
from streaming.observe.tracing import TracingSettings

from .engine_settings import LONGEST_S, Count, Positive, check_engine
from .engine_settings import EncoderSettings as EncoderSettings
from .engine_settings import EngineSettings as EngineSettings
from .errors import SettingsError

ENV_PREFIX = "SEAMSCRIBE_"
"""`SEAMSCRIBE_SERVER__PORT=9000` sets server.port: section and key, two underscores between."""

LEAST_SECRET = 16
"""Characters of a secret that signs."""

LISTS = frozenset({"engine.servers", "engine.recording_servers", "sites.hosts", "sites.origins"})
"""Settings that are several texts: commas stand between them in the environment. So with a key's scopes."""


class ServerSettings(Struct, frozen=True, forbid_unknown_fields=True):
    host: Annotated[str, Meta(pattern=r"\S")] = "127.0.0.1"
    """An address or a name, an IPv6 address with brackets or without; 0.0.0.0 listens everywhere."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8765
    """0 takes any free port; the line printed at start names it."""
    processes: Annotated[int, Meta(ge=1, le=256)] = 1
    """How many serve on the port; all other numbers hold for each of them."""
    drain_s: Positive = 10.0
    """How long running sessions may take to finish after SIGTERM."""
    keep_finished_s: Annotated[float, Meta(ge=0, le=LONGEST_S)] = 300.0
    """How long the transcript of a finished session can be fetched."""
    keep_finished: Annotated[int, Meta(ge=0)] = 200
    """How many finished sessions are kept at most."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    """Of the log on stderr; json writes an object a line."""
    tls_cert: str = ""
    """A file with the certificate and its chain (PEM); empty speaks plain HTTP."""
    tls_key: str = ""
    """A file with its private key (PEM)."""
    public_without_keys: bool = False
    """Whether to listen where others than this machine can connect though there are no keys."""


class JournalSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What outlives the process."""

    on: bool = True
    url: str = ""
    """Of a Redis that several processes share, as redis://host:6379/0 (extra `redis`); empty: a file."""
    path: str = ""
    """Folder, of this server alone; empty takes `seamscribe/journal` in the user's data folder."""
    keep_s: Positive = 7 * 86_400.0
    """So long after their end sessions are kept."""
    max_bytes: Annotated[int, Meta(ge=1 << 20)] = 4 << 30
    """Of more than this the oldest sessions are deleted, their audio counted."""
    required: bool = False
    """Whether the server is not ready for new sessions while it cannot be written; those that run go on."""
    audio: bool = False
    """Whether the audio is kept too, as FLAC (needs the extra `files`), with nothing struck out."""


class WebhookSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Who is told that a session has ended; needs the journal."""

    url: str = ""
    """Where to POST; empty tells nobody."""
    secret: str = ""
    """Signs each message; 16 characters at least."""
    segments: bool = False
    """Whether segments that are final are told too."""
    allow_private: bool = False
    """Whether the address may be on this machine or network."""
    deadline_s: Positive = 10.0
    """How long one try may take."""
    give_up_s: Positive = 86_400.0
    """How long a message is tried again."""
    most: Count = 10_000
    """Messages that may wait; of more the oldest are dropped."""


class LimitSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """What this endpoint takes from its users."""

    max_sessions: Count = 64
    """Live sessions at once; one more is refused: 503, or 1013 where its socket is open already."""
    retry_after_s: Positive = 5.0
    """When a refused client is told to come back."""
    max_session_s: Positive = 8 * 3600.0
    """Audio of one session."""
    max_packet_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 1 << 20
    """Size of one message."""
    max_backlog_s: Positive = 30.0
    """Speech that may wait undecoded before the socket is not read for a while."""
    start_timeout_s: Positive = 10.0
    """How long a request may take to come whole, and after the handshake `start`."""
    idle_timeout_s: Positive = 120.0
    """How long a connected client may send no audio. Less than `resume_s` would end the session of a client
    whose connection broke without a word before it is back."""
    resume_s: Annotated[float, Meta(ge=0, le=LONGEST_S)] = 120.0
    """How long a session goes on without a client; 0: not at all."""
    max_readers: Annotated[int, Meta(ge=0)] = 64
    """Readers of one session at once, its client not counted."""
    max_files: Count = 4
    """Recordings over HTTP at once, those that are still coming counted."""
    max_file_bytes: Annotated[int, Meta(ge=1024)] = 512 << 20
    """Size of one recording over HTTP; it is on the disk while it is read."""
    finish_s: Positive = 90.0
    """How long the last decodes of a session may take before what they miss is declared a gap; those of a
    recording as much longer as its audio is."""
    slow_reader_s: Positive = 15.0
    """How long one message to the client may take."""
    outbox: Annotated[int, Meta(ge=16, le=512)] = 256
    """Messages that may wait for the client before its audio is not read for a while."""


class AdmissionSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """When new sessions are refused for the sake of those that run."""

    on: bool = True
    stretch: Annotated[float, Meta(ge=1, le=6)] = 1.3
    """How much rarer refreshes may become before."""
    queue_s: Positive = 0.5
    """95 of 100 decodes are to wait less for the engine."""
    commit_s: Positive = 4.0
    """95 of 100 words are to be committed sooner."""
    commit_ratio: Annotated[float, Meta(gt=1, le=100)] = 1.35
    """The same, as a multiple of what is measured without load."""
    burst: Annotated[int, Meta(ge=0)] = 0
    """Sessions that may begin at once before any was measured; 0: two for each decode that runs at once."""
    memory_bytes: Annotated[int, Meta(ge=0)] = 0
    """What this process may use; 0: nine tenths of the machine's, or of its container's."""


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    server: ServerSettings = ServerSettings()
    auth: AuthSettings = AuthSettings()
    sites: SiteSettings = SiteSettings()
    privacy: PrivacySettings = PrivacySettings()
    session: SessionSettings = SessionSettings()
    engine: EngineSettings = EngineSettings()
    encoder: EncoderSettings = EncoderSettings()
    journal: JournalSettings = JournalSettings()
    webhooks: WebhookSettings = WebhookSettings()
    limits: LimitSettings = LimitSettings()
    admission: AdmissionSettings = AdmissionSettings()
    tracing: TracingSettings = TracingSettings()
    cluster: ClusterSettings = ClusterSettings()


def voices_folder(settings: Settings, environment: Mapping[str, str] | None = None) -> Path:
    """Where enrolled voices are kept (`XDG_DATA_HOME`)."""
    return _folder(settings.encoder.voices, "voices", environment)


def journal_folder(settings: Settings, environment: Mapping[str, str] | None = None) -> Path:
    """Where the journal is kept."""
    return _folder(settings.journal.path, "journal", environment)


def _folder(named: str, name: str, environment: Mapping[str, str] | None) -> Path:
    if named:
        return Path(named).expanduser()
    data = (os.environ if environment is None else environment).get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "seamscribe" / name


_PATH = re.compile(r" - at `\$\.?([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_SCOPES = re.compile(r"auth\.keys\.[^.]+\.scopes")


def load(
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings of this process. `overrides` has dotted paths, None values are skipped.

    Raises `SettingsError` naming the path and the layer of what cannot be used.
    """
    environment = os.environ if environment is None else environment
    tree: dict[str, Any] = {}
    if file is not None:
        tree = _read(file)
        _check(tree, f"in {file}", strict=True)
    settings = Settings()
    for where, pairs in (
        ("in the environment", _from_environment(environment)),
        ("on the command line", (overrides or {}).items()),
    ):
        for path, value in pairs:
            if value is not None:
                _put(tree, path, value, where)
        settings = _check(tree, where, strict=False)
    return settings


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read ({error.strerror}): name an existing file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: is not TOML: {error}") from None


def _from_environment(environment: Mapping[str, str]) -> Iterable[tuple[str, str | list[str]]]:
    for name in sorted(environment):
        # Names without the double underscore are other programs' (a client's key, say).
        if name.startswith(ENV_PREFIX) and "__" in name:
            path, value = name.removeprefix(ENV_PREFIX).lower().replace("__", "."), environment[name]
            yield (
                path,
                [part for raw in value.split(",") if (part := raw.strip())]
                if path in LISTS or _SCOPES.fullmatch(path)
                else value,
            )


def _put(tree: dict[str, Any], path: str, value: Any, where: str) -> None:
    *sections, key = path.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise SettingsError(f"{path} {where}: {section} is a value, not a section")
    tree[key] = value


def _check(tree: dict[str, Any], where: str, *, strict: bool) -> Settings:
    # A dataclass swallows unknown keys in silence, so the session's are checked by hand.
    session = tree.get("session", {})
    known = msgspec.structs.fields(Settings)
    if isinstance(session, dict):
        fields = SessionSettings.__dataclass_fields__
        for key in session:
            if key not in fields:
                raise _unknown(f"session.{key}", fields, where)
    check_keys(tree, where, strict=strict)
    try:
        settings = msgspec.convert(tree, Settings, strict=strict)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        path = found.group(1) if found else ""
        what = text[: found.start()] if found else text
        if unknown := _UNKNOWN.search(what):
            section = next((f.type for f in known if f.name == path), Settings)
            names = [f.name for f in msgspec.structs.fields(section)]
            raise _unknown(f"{path}.{unknown.group(1)}".lstrip("."), names, where) from None
        raise SettingsError(f"{path} {where}: {what}") from None
    check_access(settings.auth, settings.sites, where)
    check_cluster(settings.cluster, settings.journal.url, audio=settings.journal.audio, where=where)
    check_audio(settings.privacy, kept=settings.journal.on and settings.journal.audio, where=where)
    if bool(settings.server.tls_cert) != bool(settings.server.tls_key):
        raise SettingsError(
            f"server.tls_cert {where}: a certificate and tls_key go together: name both files"
        )
    check_engine(settings.engine, where)
    _check_session(settings.session, where)
    _check_webhooks(settings, where)
    _check_window("session.window_s", settings.session.window_s, settings.session, where)
    if settings.engine.max_window_s is not None:
        _check_window("engine.max_window_s", settings.engine.max_window_s, settings.session, where)
    return settings


def _check_session(session: SessionSettings, where: str) -> None:
    for name, value in vars_of(session).items():
        most = LONGEST_S if name.endswith("_s") else 1.0
        if not 0 < value <= most:
            raise SettingsError(f"session.{name} {where}: {value:g} is not above 0 and at most {most:g}")
        if name.endswith("_s") and to_samples(value) < FRAME:
            raise SettingsError(f"session.{name} {where}: {value:g} is less than a frame of audio, 0.02 s")
    if to_samples(session.starve_s) < 2 * MISSING:
        raise SettingsError(
            f"session.starve_s {where}: {session.starve_s:g} is less than {to_seconds(2 * MISSING):g}; nobody"
            " can tell of less speech without a word whether it is any"
        )
    if 2 * to_samples(session.pad_s) > to_samples(session.pause_s):
        raise SettingsError(
            f"session.pad_s {where}: {session.pad_s:g} is more than half of pause_s = {session.pause_s:g};"
            " neighbouring segments would overlap"
        )
    if session.voice_off > session.voice_on:
        raise SettingsError(
            f"session.voice_on {where}: {session.voice_on:g} is less than voice_off = {session.voice_off:g};"
            " speech would end before it begins"
        )


def _check_webhooks(settings: Settings, where: str) -> None:
    webhooks = settings.webhooks
    if not webhooks.url:
        return
    try:
        target_of(webhooks.url)
    except ValueError as error:
        raise SettingsError(f"webhooks.url {where}: {error}") from None
    if len(webhooks.secret) < LEAST_SECRET:
        raise SettingsError(
            f"webhooks.secret {where}: is shorter than {LEAST_SECRET} characters, so that receivers could"
            " not tell who signed: make a longer one"
        )
    if not settings.journal.on:
        raise SettingsError(
            f"webhooks.url {where}: webhooks are sent from the journal: set journal.on = true"
        )


def _check_window(path: str, window_s: float, session: SessionSettings, where: str) -> None:
    least = session.keep_s + session.search_s + session.slack_s + 1.0
    if window_s < least:
        raise SettingsError(
            f"{path} {where}: {window_s:g} is less than {least:g}; a window must hold session.keep_s +"
            " search_s + slack_s and a second of new audio"
        )


def vars_of(session: SessionSettings) -> dict[str, float]:
    """The session's numbers by name; it has slots and so no `__dict__`."""
    values: dict[str, float] = msgspec.to_builtins(session)
    return {name: value for name, value in values.items() if not isinstance(value, bool)}


def _unknown(path: str, known: Iterable[str], where: str) -> SettingsError:
    return SettingsError(f"{path} {where}: unknown setting; known here: {', '.join(known)}")
