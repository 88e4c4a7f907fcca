"""What a request to SGLang is and what comes back, whichever way it travels."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engine.contract import EngineError

STALLED = "stalled"
"""Cause of an `EngineError`: a server took the request and has said nothing for longer than it may."""
_ENDS = (None, "stop", "length", "abort")


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One generate call. `pcm` is 16-bit little-endian mono at 16 kHz; one of `input_ids` and `text`."""

    rid: str
    pcm: bytes
    sampling: Mapping[str, Any]
    input_ids: tuple[int, ...] | None = None
    text: str | None = None
    priority: int | None = None
    logprobs: bool = False
    stream: bool = True
    scheduler: int | None = None
    """Which of several schedulers behind one engine takes it."""
    recording: bool = False
    """Whether nobody waits for it word by word: for servers of its own, where there are any."""
    payload: bytes | None = None
    """Audio as a file instead of samples, for an engine without our plugin; in process only."""


@dataclass(frozen=True, slots=True)
class Part:
    """The output so far: everything is cumulative. `finish` is None while it goes on, else one of "stop",
    "length", "abort"."""

    ids: tuple[int, ...]
    text: str
    finish: str | None
    detail: str = ""
    logprobs: tuple[float, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    """0 where nobody counts them."""
    told: bool = True
    """Whether the engine tells why an output ended; else "stop" means no more than that it did."""


class Transport(Protocol):
    """Carries requests to one or many engines."""

    def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        """Parts until one has a `finish`. Closing the iterator early aborts the request in the engine.

        Raises `EngineError` and nothing else.
        """
        ...

    async def abort(self, rid: str) -> None:
        """Stop the request `rid` in the engine; unknown ids are ignored, failures too."""
        ...

    async def healthy(self) -> bool:
        """Whether at least one engine answers."""
        ...

    async def close(self) -> None: ...


def part_of(message: Mapping[str, Any]) -> Part:
    """The part that one of SGLang's output dictionaries holds; raises `EngineError` for anything else.

    The list of ids is copied: while streaming SGLang goes on appending to the one it hands out.
    """
    try:
        meta = message["meta_info"]
        reason = meta.get("finish_reason")
        kind, detail = (None, "") if reason is None else (str(reason["type"]), str(reason.get("message", "")))
        if kind not in _ENDS:
            raise ValueError(f"finish reason {kind!r}")
        chances = tuple(float(entry[0]) for entry in meta.get("output_token_logprobs") or ())
        return Part(
            ids=tuple(int(token) for token in message.get("output_ids") or ()),
            text=str(message.get("text") or ""),
            finish=kind,
            detail=detail,
            logprobs=chances,
            prompt_tokens=int(meta.get("prompt_tokens") or 0),
            cached_tokens=int(meta.get("cached_tokens") or 0),
            output_tokens=int(meta.get("completion_tokens") or 0),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise EngineError(
            "garbage", f"the engine's answer makes no sense: {error!r}", retryable=True
        ) from error
