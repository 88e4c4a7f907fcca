"""One played stream against its reference and the offline reading. PURE."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from clients.delays import Delays, WordTimes, measure, own_times
from clients.play import Playback

from .corpus import Clip
from .offline import Reading
from .scoring import UNSPACED, Errors, matches, score

SAME_WORD_S = 1.5
"""Two opinions further apart than this are about two utterances of the word, not one."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What one stream brought."""

    name: str
    seconds: float
    live: Errors
    offline: Errors | None
    words: int
    revised: int
    """Committed words that changed."""
    samples: int
    """Of the whole clip: what a lost stream left unsent is not covered either."""
    gap_samples: int
    silence_samples: int
    delays: Delays
    commit_matched: list[float]
    """Delays of the words whose end the offline alignment knows."""
    commit_own: list[float]
    """Delays of the others, by the service's own word ends."""
    rtf: float
    """Seconds from the first sample to the receipt, per second of audio: 1 keeps up."""
    send_lag_s: float
    """The worst lateness of our own sending: above some 0.1 s the machine was too busy for the bench, or the
    server paused reading."""
    faults: list[str]
    text: str = ""
    language: str | None = None


def evaluate(clip: Clip, playback: Playback, reading: Reading | None) -> Scored:
    """Score one stream; without a reading every word end is the service's own."""
    captions, receipt = playback.captions, playback.captions.receipt
    times, known = offline_times(playback, reading, clip.language)
    delays = measure(playback, times)
    return Scored(
        name=clip.name,
        seconds=clip.seconds,
        live=score(clip.reference, captions.committed, clip.language),
        offline=score(clip.reference, reading.text, clip.language) if reading else None,
        words=len(captions.transcript),
        revised=captions.revised,
        samples=len(clip.pcm),
        gap_samples=len(clip.pcm) - (receipt.text_samples + receipt.silence_samples if receipt else 0),
        silence_samples=receipt.silence_samples if receipt else 0,
        delays=delays,
        commit_matched=[d for d, sure in zip(delays.commit, known, strict=True) if sure],
        commit_own=[d for d, sure in zip(delays.commit, known, strict=True) if not sure],
        rtf=(playback.finished_s or 0.0) / clip.seconds if clip.seconds else 0.0,
        send_lag_s=playback.lag_s,
        faults=playback.faults(),
        text=captions.committed,
        language=captions.language,
    )


def offline_times(
    playback: Playback, reading: Reading | None, language: str
) -> tuple[WordTimes, Sequence[bool]]:
    """Word times by the offline alignment where it knows the word, the service's own elsewhere; and which."""
    own = own_times(playback)
    known = [False] * len(own.ends)
    if reading is None:
        return own, known
    starts, ends = list(own.starts), list(own.ends)
    # Where a unit is a character, the two sides do not cut the text alike, and a match means nothing.
    if language not in UNSPACED:
        mine = [word.text for word in playback.captions.transcript]
        for index, other in matches(mine, [word.text for word in reading.words]).items():
            word = reading.words[other]
            if abs(word.end_s - ends[index]) <= SAME_WORD_S:
                starts[index], ends[index], known[index] = word.start_s, word.end_s, True
    return WordTimes(_voiced(starts, ends, reading.speech_starts_s), ends), known


def _voiced(starts: Sequence[float], ends: Sequence[float], onsets: Sequence[float]) -> list[float]:
    """Each start moved to where voice begins inside the word, if it does."""
    moved = []
    for start, end in zip(starts, ends, strict=True):
        index = bisect_right(onsets, end) - 1
        moved.append(max(start, onsets[index]) if index >= 0 else start)
    return moved
