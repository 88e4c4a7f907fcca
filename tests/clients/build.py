"""Server messages for tests, short to write."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from streaming.wire.messages import (
    Ack,
    AudioFormat,
    Ended,
    Limits,
    Ready,
    Receipt,
    Segment,
    ServerMessage,
    Span,
    Word,
)

LIMITS = Limits(
    max_packet_bytes=1 << 20, max_ahead_ms=30_000, max_session_ms=28_800_000, idle_timeout_ms=60_000
)


def ready(seq: int = 1) -> Ready:
    return Ready(seq, "s", 1, "fake", "slots", AudioFormat(), LIMITS, max_delay_ms=3000, pause_ms=600)


def words(text: str, start_ms: int = 0, each_ms: int = 500) -> tuple[Word, ...]:
    """One word every `each_ms`, each as long as 400 ms."""
    return tuple(
        Word(part, start_ms + number * each_ms, start_ms + number * each_ms + 400)
        for number, part in enumerate(text.split())
    )


def segment(
    seq: int,
    id: int,
    rev: int,
    said: Sequence[Word],
    *,
    first_word: int = 0,
    partial: str = "",
    final: bool = False,
    speaker: int | None = None,
    track: int | UnsetType = UNSET,
) -> Segment:
    text = "".join(w.text if w.space is False else f" {w.text}" for w in said).strip()
    start, end = (said[0].start_ms, said[-1].end_ms) if said else (0, 0)
    return Segment(
        seq, id, rev, first_word, start, end, speaker, text, tuple(said), partial, final, track=track
    )


def receipt(samples: int, count: int, gap: int = 0) -> Receipt:
    """All text but for a gap at the end."""
    text = samples - gap
    spans = [Span(0, text, "text")] if text else []
    if gap:
        spans.append(Span(text, samples, "gap", "overload"))
    return Receipt(
        samples=samples,
        duration_ms=samples // 16,
        words=count,
        text_samples=text,
        silence_samples=0,
        gap_samples=gap,
        text_ms=text // 16,
        silence_ms=0,
        gap_ms=gap // 16,
        spans=tuple(spans),
    )


def session(text: str, samples: int) -> list[ServerMessage]:
    """A whole short stream: a partial, half committed, all of it final, the receipt."""
    said = words(text)
    half = said[: len(said) // 2]
    return [
        ready(1),
        segment(2, 1, 1, (), partial=said[0].text),
        Ack(3, samples // 2),
        segment(4, 1, 2, half, partial=" " + " ".join(w.text for w in said[len(half) :])),
        segment(5, 1, 3, said, final=True),
        Ended(6, receipt(samples, len(said))),
    ]
