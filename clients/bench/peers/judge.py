"""One judge for all: when a word is committed, how often it changes, how many are wrong. PURE.

Where a word ends is told by the offline reading of the same weights, for everybody alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from clients.bench.corpus import Clip
from clients.bench.load import Script
from clients.bench.offline import OfflineWord, Reading
from clients.bench.scoring import Errors, bare, matches, score
from clients.stats import Summary, summarize

SAME_WORD_S = 2.0
"""A word that is committed so long before it was spoken is another utterance of it."""


@dataclass(slots=True)
class Heard:
    """What one stream brought, from servers that tell their whole text again and again. Seconds on its
    clock."""

    words: list[str] = field(default_factory=list)
    """Committed, as they stand now."""
    at_s: list[float] = field(default_factory=list)
    """When each was committed."""
    revised: int = 0
    """Committed words that changed, or went."""
    first_s: float | None = None
    """When the first text came, committed or not."""
    sent_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def tell(self, committed: str, partial: str, at_s: float) -> None:
        """The present state of the text."""
        if self.first_s is None and (committed.strip() or partial.strip()):
            self.first_s = at_s
        fresh = committed.split()
        same = 0
        while same < min(len(fresh), len(self.words)) and bare(fresh[same]) == bare(self.words[same]):
            same += 1
        self.revised += len(self.words) - same
        self.words[same:] = fresh[same:]
        self.at_s[same:] = [at_s] * (len(fresh) - same)


def spoken(said: Script, read: Callable[[Clip], Reading]) -> list[OfflineWord]:
    """Every word of a stream as the weights hear it offline, on the stream's clock."""
    words, at = list[OfflineWord](), 0.0
    for gap_s, clip in said.turns:
        at += gap_s
        words += [OfflineWord(w.text, at + w.start_s, at + w.end_s) for w in read(clip).words]
        at += clip.seconds
    return words


def delays(heard: Heard, words: Sequence[OfflineWord]) -> list[float]:
    """Of each committed word that was heard offline too: from its end until it was committed."""
    found = []
    for mine, theirs in matches(heard.words, [word.text for word in words]).items():
        delay = heard.at_s[mine] - words[theirs].end_s
        if delay > -SAME_WORD_S:
            found.append(delay)
    return found


@dataclass(frozen=True, slots=True)
class Judged:
    """All streams of one server at one number of streams."""

    name: str
    streams: int
    audio_s: float
    commit: Summary
    first: Summary
    errors: Errors
    offline: Errors
    """Of the same weights over each recording of the same streams, unhurried."""
    words: int
    revised: int
    cpu_s_per_audio_s: float
    rss_max_mib: float
    faults: tuple[str, ...]
    said: tuple[tuple[str, str], ...]
    """Of each stream: the reference and what was committed; whoever doubts a difference compares them."""

    def holds(self, commit_s: float) -> bool:
        """Whether all words came in time."""
        return self.commit.p95 is not None and self.commit.p95 <= commit_s and not self.faults


def judge(
    name: str,
    streams: Sequence[tuple[Script, Heard]],
    read: Callable[[Clip], Reading],
    cpu_s: float,
    rss_mib: float,
) -> Judged:
    """Sum up; rates come from summed counts."""
    late, first, errors, offline = list[float](), list[float](), Errors(), Errors()
    for said, heard in streams:
        words = spoken(said, read)
        late += delays(heard, words)
        if heard.first_s is not None and words:
            first.append(heard.first_s - words[0].start_s)
        language = said.turns[0][1].language
        errors += score(said.reference, " ".join(heard.words), language)
        for _, clip in said.turns:
            offline += score(clip.reference, read(clip).text, language)
    audio_s = sum(heard.sent_s for _, heard in streams)
    return Judged(
        name,
        len(streams),
        audio_s,
        summarize(late),
        summarize(first),
        errors,
        offline,
        sum(len(heard.words) for _, heard in streams),
        sum(heard.revised for _, heard in streams),
        cpu_s / max(audio_s, 1e-9),
        rss_mib,
        tuple(fault for _, heard in streams for fault in heard.faults),
        tuple((said.reference, " ".join(heard.words)) for said, heard in streams),
    )
