"""What OpenAI's protocols have in common, HTTP or socket: events, refusals, names of speakers. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from streaming.denial import Denied

Event = tuple[str, dict[str, Any]]
"""Its type and its fields."""

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}


def body(status: int, message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    """The JSON of a refusal."""
    type = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


def deny(status: int, message: str) -> Denied:
    """As `denial.Deny`."""
    code = {401: "invalid_api_key"}.get(status)
    return body(status, f"{message}.", code), {}


def letters(speaker: int | None) -> str:
    """A, B, .. Z, AA, ..: as a column of a table is called; `?` where nobody knows."""
    if speaker is None:
        return "?"
    name = ""
    while speaker > 0:
        speaker, rest = divmod(speaker - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def frame(number: int, event: Event) -> str:
    """An event of a socket as JSON; `number` counts them."""
    type, fields = event
    return msgspec.json.encode({"type": type, "event_id": f"event_{number}", **fields}).decode()


def item(id: str, status: str, transcript: str | None) -> dict[str, Any]:
    """Something that was said, as a turn of a conversation."""
    content = [{"type": "input_audio", "transcript": transcript}]
    return {"id": id, "object": "realtime.item", "type": "message", "role": "user"} | {
        "status": status,
        "content": content,
    }
