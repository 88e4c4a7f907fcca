"""Log lines without secrets, and without lines of a client's making.

Whatever is logged, by whomever, goes through one formatter: it strikes out what stands where secrets stand
(headers, queries, subprotocols, fields of messages), what looks like a key, and all but the beginning of a
session's id; control characters of a message are written as escapes.
"""

from __future__ import annotations

import logging
import re

STRUCK = "***"

_FIELDS = r"token|read_token|api[_-]?key|key|secret|password|jwt|auth_id|authorization"
_HEADERS = r"(?:proxy-)?authorization|sec-websocket-protocol|cookie|x-api-key|kyutai-api-key|query_string"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # A header as libraries debug it: `(b'authorization', b'Bearer x')`, `"Authorization": "x"`, and bare.
    (re.compile(rf"(?i)({_HEADERS})(\\?['\"]?\s*[:=,]\s*b?\\?)'[^'\n]*"), rf"\1\2'{STRUCK}"),
    (re.compile(rf"(?i)({_HEADERS})(\\?['\"]?\s*[:=,]\s*b?\\?)\"[^\"\n]*"), rf'\1\2"{STRUCK}'),
    (re.compile(rf"(?i)({_HEADERS})(\s*[:=]\s*)(?!b?\\?['\"])[^\s'\"][^'\"\n]*"), rf"\1\2{STRUCK}"),
    # The query of any address: what it holds is not ours to know.
    (re.compile(r"(?<=[\w/.\-~%*])\?[^\s'\"<>]*=[^\s'\"<>]*"), f"?{STRUCK}"),
    (re.compile(r"(?i)\b(seamscribe\.token\.|openai-insecure-api-key\.)[^\s,'\"]+"), rf"\1{STRUCK}"),
    (re.compile(r"(?i)\b(bearer|token)\s+[\w.~+/=-]{8,}"), rf"\1 {STRUCK}"),
    (
        re.compile(rf"(?i)\b({_FIELDS})(\\?['\"]?\s*[:=][\s\[({{]*)(\\?b?['\"])[^'\"\n]*"),
        rf"\1\2\3{STRUCK}",
    ),
    (re.compile(rf"(?i)\b({_FIELDS})=[^\s&'\"]+"), rf"\1={STRUCK}"),
    (re.compile(r"\bsmk_[\w-]{8,}"), f"smk_{STRUCK}"),
    (re.compile(r"(/sessions/[\w-]{8})[\w-]+"), rf"\1{STRUCK}"),
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


def struck(text: str) -> str:
    """`text` without secrets."""
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    return text


def one_line(text: str) -> str:
    """`text` with everything that ends a line, or steers a terminal, as an escape."""
    return _CONTROL.sub(_escape, text.replace("\n", "\\n").replace("\t", "\\t"))


def _escape(found: re.Match[str]) -> str:
    return found.group().encode("unicode_escape").decode()


class Clean(logging.Formatter):
    """Formats like `inner`, cleanly. Tracebacks keep their lines, for they are ours."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        clean = logging.makeLogRecord(record.__dict__)
        clean.msg, clean.args = one_line(struck(_message(record))), ()
        clean.exc_text = None  # written anew: another handler may have kept it
        return struck(self._inner.format(clean))


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError) as error:
        return f"{record.msg!r} cannot be formatted: {error}"
