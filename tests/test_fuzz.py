"""A slice of `python -m tests.fuzz`, and whether it would find what is wrong: in each decoder one bug is
planted.

A planted bug is what somebody might write: an error of another kind, a loop that does not end, memory by a
length that was only promised, a check that was left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import streaming.access.auth
import streaming.observe.hygiene
from engine.sglang import forms as engine_forms
from streaming.access import naming, posting, sites
from streaming.audio import demux, splice
from streaming.audio import samples as audio
from streaming.core import framing
from streaming.dialects import bots, deepgram, kyutai, openai_realtime, query, vosk
from streaming.kept import packed, stored
from streaming.sockets import greeting
from streaming.web import listing, minting
from streaming.wire import codec, signature
from tests.fuzz.runner import Target, run
from tests.fuzz.targets import TARGETS

SLICE = 400
BY_NAME = {target.name: target for target in TARGETS}


@pytest.mark.parametrize("name", BY_NAME)
def test_nothing_is_found(name: str) -> None:
    target = BY_NAME[name]
    outcome = run(target, max(20, round(SLICE * min(target.share, 1))), seed=1)
    assert outcome.findings == []


def test_the_same_seed_gives_the_same_cases() -> None:
    seen: list[list[bytes]] = [[], []]
    for cases in seen:
        run(Target("x", [b"seed"], lambda case, _, cases=cases: cases.append(case), ()), 50, seed=3)  # type: ignore[misc]
    assert seen[0] == seen[1]
    assert len(set(seen[0])) > 25


@pytest.mark.parametrize("fault", ["raises", "hangs", "grows"])
def test_a_fault_of_each_kind_is_a_finding(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "hangs":  # the others need no deadline, and on a busy machine would miss a short one
        monkeypatch.setattr("tests.fuzz.runner.DEADLINE_S", 0.05)

    def decode(case: bytes, choices: Random) -> object:
        if fault == "raises":
            raise ZeroDivisionError
        while fault == "hangs":
            pass
        return bytearray(32 << 20)

    (finding, *_) = run(Target("x", [b"seed"], decode, (ValueError,)), 1).findings
    assert {"raises": "ZeroDivisionError", "hangs": "over", "grows": "32 MiB"}[fault] in finding.what


def raising(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError


def reading(real: Callable[..., Any], wrong: Callable[[Any], bool], *arguments: Any, **named: Any) -> Any:
    """As `real`, but fails on what `wrong` knows: a case that the author has not thought of."""
    if any(wrong(argument) for argument in arguments):
        raise ZeroDivisionError
    return real(*arguments, **named)


def has(mark: str) -> Callable[[Any], bool]:
    def wrong(value: Any) -> bool:
        text = value.decode("latin-1") if isinstance(value, bytes | bytearray) else value
        return isinstance(text, str) and mark in text

    return wrong


def _patched(place: Any, name: str, mark: str) -> tuple[Any, str, Any]:
    return place, name, partial(reading, getattr(place, name), has(mark))


async def _anyone(*_: object) -> streaming.access.auth.Caller:
    return streaming.access.auth.ANYONE


async def _itself(_: object, secret: str | None) -> str | None:
    return secret


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "json": (codec, "_refusal", raising),
    "msgpack": (codec, "_garbage", raising),
    "json server": (codec, "_PATH", None),
    "msgpack server": (codec, "_refusal", raising),
    "packed": (packed, "Segment", raising),
    "name": (naming, "fit", lambda name: name),
    "signature": (signature, "_FORM", re.compile(r"t=([0-9]+),v1=([0-9a-f]{64}).*")),
    "pcm_s16le": (framing.Framer, "finish", lambda self: np.zeros(0, np.float32)),
    "pcm_f32le": (audio, "_sound", lambda samples: samples),
    "mulaw": (audio, "stride", lambda format: 1),
    "alaw": (framing.Framer, "finish", lambda self: np.zeros(0, np.float32)),
    "splice": (splice.Splice, "rejoin", lambda self: None),
    "framing": (framing.Framer, "finish", lambda self: np.zeros(0, np.float32)),
    "deepgram": _patched(deepgram, "json_of", "Fin"),
    "kyutai": (kyutai, "shown", raising),
    "openai-realtime": _patched(openai_realtime, "json_of", "update"),
    "twilio": _patched(bots, "json_of", "inbound"),
    "recall": _patched(bots, "json_of", "Ann"),
    "attendee": _patched(bots, "json_of", "mixed"),
    "acs": _patched(bots, "json_of", "PCM"),
    "vosk": _patched(vosk, "json_of", "\x00"),
    "deepgram query": (query, "_wrong", raising),
    "recordings": (demux, "_mixed", lambda samples, tracks: np.log(samples)),
    "journal": (stored, "Damaged", raising),
    "engine": (engine_forms, "part_of", lambda message: raising()),
    "webhook answer": (posting, "MOST_HEADERS", "much"),
    "http": (streaming.access.auth.Authority, "caller", _anyone),
    "websocket": (greeting, "decoded", raising),
    "token order": (minting, "shown", raising),
    "secrets": (streaming.access.auth.Authority, "caller", _itself),
    "sites": (sites.Sites, "welcome", lambda self, origin, host: True),
    "log lines": (streaming.observe.hygiene, "_RULES", ()),
    "webhook url": _patched(posting, "urlsplit", "["),
    "addresses": (posting, "_carried", lambda address: None),
    "queries": (listing, "_NUMBER", re.compile(r"[^.]+")),
}


def test_a_bug_is_planted_in_every_decoder() -> None:
    assert PLANTED.keys() == BY_NAME.keys()


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, bug = PLANTED[name]
    monkeypatch.setattr(place, attribute, bug)
    assert run(BY_NAME[name], SLICE, seed=1, memory=False).findings
