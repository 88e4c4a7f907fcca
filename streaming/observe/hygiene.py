"""Log lines without secrets, and without lines of a client's making.

Whatever is logged, by whomever, goes through one of two formatters, of text or of JSON: they strike out
what stands where secrets stand (headers, queries, subprotocols, fields of messages), what looks like a key,
and all but the beginning of a session's id; control characters of a message are written as escapes.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

STRUCK = "***"


def short(id: str) -> str:
    """Enough of a session's id to find it in a log; whoever knows the whole may read the transcript."""
    return id[:8]


_FIELDS = r"token|read_token|api[_-]?key|key|secret|password|jwt|auth_id|authorization"
_HEADERS = r"(?:proxy-)?authorization|sec-websocket-protocol|cookie|x-api-key|kyutai-api-key|query_string"
_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    # A header as libraries debug it: `(b'authorization', b'Bearer x')`, `"Authorization": "x"`, and bare.
    (re.compile(rf"(?i)({_HEADERS})(\\?['\"]?\s*[:=,]\s*b?\\?)'[^'\n]*"), rf"\1\2'{STRUCK}"),
    (re.compile(rf"(?i)({_HEADERS})(\\?['\"]?\s*[:=,]\s*b?\\?)\"[^\"\n]*"), rf'\1\2"{STRUCK}'),
    (re.compile(rf"(?i)({_HEADERS})(\s*[:=]\s*)(?!b?\\?['\"])[^\s'\"][^'\"\n]*"), rf"\1\2{STRUCK}"),
    # The query of any address: what it holds is not ours to know.
    (re.compile(r"(?<=[\w/.\-~%*])\?[^\s'\"<>?=]*=[^\s'\"<>]*"), f"?{STRUCK}"),
    (re.compile(r"(?i)\b(seamscribe\.token\.|openai-insecure-api-key\.)[^\s,'\"]+"), rf"\1{STRUCK}"),
    # As a server traces it: some clients offer a key as a subprotocol of its own.
    (re.compile(r"(?i)(subprotocols\\?['\"]?\s*[:=]\s*[\[(])[^\])\n]*"), rf"\1{STRUCK}"),
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
    """Formats like `inner`, cleanly. A traceback keeps its lines, each behind a bar: what an exception quotes
    of a client begins no line of the log."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        clean = logging.makeLogRecord(record.__dict__)
        clean.msg, clean.args = _message(record), ()
        # Written anew: another handler may have kept it.
        clean.exc_info, clean.exc_text = None, _lines(_traceback(record), "| ")
        clean.stack_info = _lines(record.stack_info, "| ")
        return struck(self._inner.format(clean))


class JsonLines(logging.Formatter):
    """One JSON object a line, in ASCII whatever the locale: `ts` (UTC), `level`, `logger`, `message`;
    `session`, the beginning of its id, and `fields` where the record has named arguments; `exception`, a
    traceback."""

    def format(self, record: logging.LogRecord) -> str:
        message = _message(record)
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": one_line(struck(record.name)),
            "message": message,
        }
        named = record.args if isinstance(record.args, Mapping) else {}
        fields = {one_line(str(name)): _value(value, message) for name, value in named.items()}
        if "session" in fields:
            line["session"] = fields.pop("session")
        if fields:
            line["fields"] = fields
        if traceback := _lines(_traceback(record)):
            line["exception"] = struck(traceback)
        if stack := _lines(record.stack_info):
            line["stack"] = struck(stack)
        return json.dumps(line)


FORMATS: Mapping[str, logging.Formatter] = {
    "text": Clean(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")),
    "json": JsonLines(),
}
"""By the names that `server.log_format` has for them."""


def _message(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError) as error:
        text = f"{record.msg!r} cannot be formatted: {error}"
    return one_line(struck(text))


def _value(value: object, message: str) -> object:
    """A named argument as it may be known: what was struck out of the message is no field either."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = one_line(struck(str(value)))
    return text if text in message else STRUCK


def _traceback(record: logging.LogRecord) -> str | None:
    return logging.Formatter().formatException(record.exc_info) if record.exc_info else None


def _lines(text: str | None, before: str = "") -> str | None:
    return "\n".join(f"{before}{one_line(line)}" for line in text.split("\n")) if text else None
