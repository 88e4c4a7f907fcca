"""What is measured: sets of engine configurations, each with its loads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .checkpoints import decoder_only, encoder_decoder
from .worker import Spec

_FRONT = 256
_LIVE = (50, 100, 200, 400, 800)


def live(*streams: int, seconds: float = 10.0, **more: Any) -> tuple[dict[str, Any], ...]:
    return tuple({"kind": "live", "streams": n, "seconds": seconds, **more} for n in streams)


def burst(count: int, seconds: float = 20.0) -> dict[str, Any]:
    return {"kind": "burst", "count": count, "seconds": seconds}


def turns(*seconds: int) -> tuple[dict[str, Any], ...]:
    return tuple({"kind": "growth", "turn_s": s} for s in seconds)


def front(model: str, audio: str | None, _: Path) -> Iterator[Spec]:
    """The same work behind the stock front end and behind ours, then ours as it is used."""
    yield Spec("ours", model, audio=audio, loads=(burst(_FRONT),))
    yield Spec(
        "ours, features on the CPU, full window, 40 tokens",
        model,
        audio=audio,
        launch={"variable_window": False},
        new_tokens=40,
        loads=(burst(_FRONT),),
    )
    yield Spec("stock, 40 tokens", model, audio=audio, stock=True, new_tokens=40, loads=(burst(_FRONT),))


def tiny(model: str, audio: str | None, _: Path) -> Iterator[Spec]:
    yield Spec("real weights", model, audio=audio, loads=live(*_LIVE))
    yield Spec(
        "real weights, 4 tokenizers",
        model,
        "http",
        audio=audio,
        launch={"tokenizers": 4},
        loads=live(200, 400, 800),
    )
    yield Spec(
        "real weights, full window",
        model,
        audio=audio,
        launch={"variable_window": False},
        loads=live(200, 400),
    )


def turbo(model: str, audio: str | None, work: Path) -> Iterator[Spec]:
    folder = str(encoder_decoder(work / "turbo", Path(model)))
    random = {"load_format": "dummy"}
    yield Spec("809 M random", folder, audio=audio, flags=random, new_tokens=12, loads=live(*_LIVE[:4]))
    yield Spec(
        "809 M random, full window",
        folder,
        audio=audio,
        flags=random,
        launch={"variable_window": False},
        new_tokens=12,
        loads=live(100, 200),
    )
    yield Spec(
        "809 M random, 4 tokenizers",
        folder,
        "http",
        audio=audio,
        flags=random,
        launch={"tokenizers": 4},
        new_tokens=12,
        loads=live(200, 400, 800),
    )


def chunks(_: str, audio: str | None, work: Path) -> Iterator[Spec]:
    """Prefill pieces against the delay of live streams, alone and beside a 20 minute request."""
    folder = str(decoder_only(work / "decoder", tiny=False))
    turn = {"turn_s": 24.0}
    beside = live(50, long_s=1190, **turn)
    for chunk, mixed, loads in (
        (2048, False, (*live(50, 100, 200, 400, **turn), *beside)),
        (512, False, beside),
        (8192, False, beside),
        (2048, True, (*live(50, 200, **turn), *beside)),
    ):
        yield Spec(
            f"0.6 B random, pieces of {chunk}" + (", mixed" if mixed else ""),
            folder,
            audio=audio,
            launch={"chunk": chunk, "mixed_chunk": mixed},
            flags={"load_format": "dummy"},
            new_tokens=10,
            loads=loads,
        )


def turn_lengths(_: str, audio: str | None, work: Path) -> Iterator[Spec]:
    folder = str(decoder_only(work / "decoder", tiny=False))
    for name, env in (("windows", {}), ("one item", {"SEAMSCRIBE_SINGLE_ITEM": "1"})):
        yield Spec(
            f"0.6 B random, {name}",
            folder,
            flags={"load_format": "dummy"},
            env=env,
            new_tokens=10,
            loads=turns(5, 5, 10, 20, 40, 60, 120, 300),
        )


def sized(
    name: str,
    folder: str,
    audio: str | None,
    positions: int,
    loads: tuple[dict[str, Any], ...],
    *,
    new_tokens: int | None = None,
    way: str = "inproc",
    env: dict[str, str] | None = None,
    **launch: Any,
) -> Spec:
    """An engine that starts beside others: its cache has `positions` and no more."""
    return Spec(
        name,
        folder,
        way,
        audio=audio,
        launch={"chunk": 8192} | launch,
        flags={
            "max_total_tokens": positions // launch.get("schedulers", 1),
            "mem_fraction_static": 0.95,
            **({"load_format": "dummy"} if new_tokens else {}),
        },
        new_tokens=new_tokens,
        env=env or {},
        loads=loads,
        profile=os.environ.get("SEAMSCRIBE_STACKS"),
        port=31000 + sum(map(ord, name)) % 1000,
    )


_BRIEF: dict[str, Any] = {"seconds": 8.0, "warm_s": 3.0}
_TURN: dict[str, Any] = {**_BRIEF, "turn_s": 24.0}


def aims(model: str, audio: str | None, work: Path) -> Iterator[Spec]:
    """The loads of the live aims, with one scheduler and with two; run them with `--together 5`."""
    large = str(encoder_decoder(work / "turbo", Path(model)))
    small = str(decoder_only(work / "decoder", tiny=False))
    sampled = {"stacks": True}
    for count in (1, 2):
        tag = f", {count} schedulers" if count > 1 else ""
        loads = live(400, 800, **_BRIEF)
        if count == 1:
            loads = (*live(200, **_BRIEF), *loads, *live(400, **_BRIEF, **sampled))
        yield sized("real weights" + tag, model, audio, 400_000, loads, schedulers=count)
        loads = live(200, 400, **_TURN)
        if count == 1:
            loads = (*live(100, **_TURN), *loads, *live(200, **_TURN, **sampled))
            loads = (*loads, *live(50, long_s=1190, **_TURN), *turns(5, 5, 10, 20, 40, 60, 120, 300))
        yield sized("0.6 B random" + tag, small, audio, 150_000, loads, new_tokens=10, schedulers=count)
        loads = live(200, 400, **_BRIEF)
        if count == 1:
            loads = (*loads, *live(200, **_BRIEF, **sampled))
        yield sized("809 M random" + tag, large, audio, 150_000, loads, new_tokens=12, schedulers=count)


def interleaved(model: str, audio: str | None, work: Path) -> Iterator[Spec]:
    """Decode steps between prefill batches: how many; run it with `--together 6`."""
    large = str(encoder_decoder(work / "turbo", Path(model)))
    small = str(decoder_only(work / "decoder", tiny=False))
    sampled = live(400, **_BRIEF, stacks=True)
    for rounds in (8, 4):
        tag = f", {rounds} decode rounds"
        loads = (*live(200, 400, 800, **_BRIEF), *sampled) if rounds == 8 else live(400, 800, **_BRIEF)
        yield sized("real weights" + tag, model, audio, 250_000, loads, decode_rounds=rounds)
        loads = (*live(200, 400, **_TURN), *live(50, long_s=1190, **_TURN))
        chunk = 8192 if rounds == 8 else 2048
        yield sized(
            f"0.6 B random, pieces of {chunk}" + tag, small, audio, 120_000, loads,
            new_tokens=10, chunk=chunk, decode_rounds=rounds,
        )  # fmt: skip
        loads = live(200, 400, **_BRIEF)
        yield sized("809 M random" + tag, large, audio, 120_000, loads, new_tokens=12, decode_rounds=rounds)


def rest(model: str, audio: str | None, work: Path) -> Iterator[Spec]:
    """Over HTTP, mixed batches, one item a turn; run them with `--together 3`."""
    large = str(encoder_decoder(work / "turbo", Path(model)))
    small = str(decoder_only(work / "decoder", tiny=False))
    loads = live(400, 800, **_BRIEF)
    yield sized(
        "809 M random, 4 tokenizers", large, audio, 150_000, loads, new_tokens=12, way="http", tokenizers=4
    )
    loads = (*live(200, **_TURN), *live(50, long_s=1190, **_TURN))
    yield sized(
        "0.6 B random, mixed", small, audio, 120_000, loads, new_tokens=10, chunk=2048, mixed_chunk=True
    )
    loads = turns(5, 5, 10, 20, 40, 60, 120, 300)
    single = {"SEAMSCRIBE_SINGLE_ITEM": "1"}
    yield sized("0.6 B random, one item", small, audio, 60_000, loads, new_tokens=10, env=single)


def smoke(model: str, audio: str | None, work: Path) -> Iterator[Spec]:
    """Every path of the above at a size that a CPU can run."""
    small = {"running": 8}
    yield Spec(
        "ours",
        model,
        audio=audio,
        launch=small,
        warm_up=2,
        loads=(burst(2), *live(1, seconds=8.0, warm_s=1.0)),
    )
    yield Spec(
        "ours", model, "http", audio=audio, launch=small, warm_up=2, loads=live(1, seconds=8.0, warm_s=1.0)
    )
    yield Spec(
        "two schedulers",
        model,
        audio=audio,
        launch={"running": 8, "schedulers": 2},
        warm_up=2,
        loads=live(2, seconds=8.0, warm_s=1.0),
    )
    yield Spec("stock", model, stock=True, launch=small, new_tokens=5, warm_up=1, loads=(burst(1),))
    folder = str(decoder_only(work / "decoder", tiny=True))
    yield Spec(
        "tiny random",
        folder,
        audio=audio,
        launch={"running": 8, "chunk": 256},
        flags={"load_format": "dummy"},
        new_tokens=4,
        loads=(*turns(24), *live(2, seconds=8.0, warm_s=1.0, long_s=60)),
    )


SETS = {
    "front": front,
    "tiny": tiny,
    "turbo": turbo,
    "chunks": chunks,
    "turns": turn_lengths,
    "aims": aims,
    "interleaved": interleaved,
    "rest": rest,
    "smoke": smoke,
}
