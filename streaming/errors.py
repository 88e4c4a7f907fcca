"""Why a stream or the process ends early, drawn:

WireError (streaming.wire.errors)    code, message, field, close code
├── ProtocolError                    the client's fault: change the message
└── StreamError                      ours, or the situation's
    ├── Overloaded        1013       come back later
    ├── Congested         1013       come back later
    ├── Unreadable        1013       come back later
    ├── Restarting        1012       come back at once
    ├── SessionTooLong    1008       start a new session
    ├── IdleClient        4408       the client sent nothing
    ├── SlowReader        4408       the client read nothing
    ├── ResumeRefused     4404       there is nothing to go on with
    ├── ReadRefused       4404       there is nothing to read
    ├── NothingLive       1013       come back later
    ├── Replaced          4409       a newer connection has the session
    ├── Expired           1008       nobody came back
    ├── Deleted           4404       the operator deletes the session
    ├── TooManyReaders    1013       come back later
    ├── Unauthorized      4401       a key or token that does not do (auth.py)
    ├── KeyLimit          1008       what a key may have is taken (quota.py)
    └── InternalFault     1011       a bug or a dead engine
SettingsError                        the process cannot start as told
"""

from __future__ import annotations

from streaming.wire.errors import CloseCode, WireError


class StreamError(WireError):
    """The server ends a stream for a reason that is not in the client's messages."""


UNREADABLE_MS = 1000
"""When to ask again for what the journal has."""


class Overloaded(StreamError):
    def __init__(self, sessions: int, retry_after_ms: int) -> None:
        super().__init__(
            "overloaded",
            f"all {sessions} sessions are taken: try again in {retry_after_ms} ms or on another server",
            close=CloseCode.OVERLOAD,
            retry_after_ms=retry_after_ms,
        )


class Congested(StreamError):
    """One more session would make those that run wait; `cause` is where it shows."""

    def __init__(self, cause: str, retry_after_ms: int) -> None:
        super().__init__(
            "overloaded",
            f"the server works at its limit ({cause}): try again in {retry_after_ms} ms or on another server",
            close=CloseCode.OVERLOAD,
            retry_after_ms=retry_after_ms,
        )
        self.cause = cause


class Unreadable(StreamError):
    """What was kept cannot be read now."""

    def __init__(self) -> None:
        super().__init__(
            "journal",
            f"the journal cannot be read now: try again in {UNREADABLE_MS} ms",
            close=CloseCode.OVERLOAD,
            retry_after_ms=UNREADABLE_MS,
        )


class Restarting(StreamError):
    """`gaps_s` is None for a client without a session, else how much of its audio the receipt calls gaps."""

    def __init__(self, gaps_s: float | None = None) -> None:
        if gaps_s is None:
            what = "no new session begins here: connect again"
        elif gaps_s > 0:
            what = (
                f"{gaps_s:g} s of what the receipt counts are declared gaps, the rest was finished: connect"
                " again for what follows"
            )
        else:
            what = "all that the receipt counts was finished: connect again for what follows"
        super().__init__(
            "restarting", f"the server shuts down; {what}", close=CloseCode.RESTART, retry_after_ms=0
        )


class SessionTooLong(StreamError):
    def __init__(self, limit_s: float) -> None:
        super().__init__(
            "session_too_long",
            f"a session takes at most {limit_s:g} s of audio (limits.max_session_s): start a new one",
            close=CloseCode.LIMIT,
            retry_after_ms=0,
        )


class IdleClient(StreamError):
    def __init__(self, seconds: float, waiting_for: str) -> None:
        super().__init__(
            "idle",
            f"nothing came for {seconds:g} s, {waiting_for} was due: send audio, silence too, or end",
            close=CloseCode.TIMEOUT,
        )


class SlowReader(StreamError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            "slow_reader",
            f"the client read nothing for {seconds:g} s: read messages while sending audio",
            close=CloseCode.TIMEOUT,
        )


class ResumeRefused(StreamError):
    def __init__(self, why: str = "no session goes on here by this id and token") -> None:
        super().__init__(
            "resume_refused",
            f"{why}: start a new session; what was transcribed may still be fetched",
            close=CloseCode.GONE,
        )


class Replaced(StreamError):
    def __init__(self) -> None:
        super().__init__(
            "replaced",
            "the session goes on over a newer connection that has its token: do not connect again",
            close=CloseCode.REPLACED,
        )


class Expired(StreamError):
    def __init__(self, seconds: float) -> None:
        super().__init__(
            "expired",
            f"nobody came back within {seconds:g} s (ready.resume_ms), so the session was finished: start a"
            " new one for what follows",
            close=CloseCode.LIMIT,
            retry_after_ms=0,
        )


class Deleted(StreamError):
    def __init__(self) -> None:
        super().__init__(
            "deleted",
            "the operator ended this session and deletes all of it: start a new one for what follows",
            close=CloseCode.GONE,
        )


class ReadRefused(StreamError):
    def __init__(self) -> None:
        super().__init__(
            "read_refused",
            "no session is read here by this id and token: use ready.session and ready.read_token",
            close=CloseCode.GONE,
        )


class NothingLive(StreamError):
    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(
            "nothing_live",
            f"nobody speaks here now: try again in {retry_after_ms} ms",
            close=CloseCode.OVERLOAD,
            retry_after_ms=retry_after_ms,
        )


class TooManyReaders(StreamError):
    def __init__(self, readers: int, retry_after_ms: int) -> None:
        super().__init__(
            "too_many_readers",
            f"all {readers} readers of this session are there: try again in {retry_after_ms} ms",
            close=CloseCode.OVERLOAD,
            retry_after_ms=retry_after_ms,
        )


class InternalFault(StreamError):
    def __init__(self, session: str | None = None) -> None:
        which = f"the session {session}" if session else "when this was"
        super().__init__(
            "internal",
            f"the server failed: try again, and tell its operator {which}",
            close=CloseCode.FAULT,
            retry_after_ms=1000,
        )


class SettingsError(Exception):
    """A setting cannot be used; the message names its path, what is wrong and where it came from."""
