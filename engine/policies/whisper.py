"""Whisper of every size, English-only and multilingual: prompt, limits, output grammar, acceptance.

PURE and without any id of its own: everything is resolved from the tokenizer. Shared by each mechanism
that runs this family.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from engine.contract import SAMPLE_RATE, Finish, RecognitionTask, Word, join
from engine.tokens import TokenTable
from engine.units import Unit, is_wordless, split_units

from .ladder import Rung, rung_of

WINDOW_S = 30.0
"""Audio the encoder was trained on."""
POSITIONS = 448
"""Prompt and output together."""
MAX_CONTEXT = POSITIONS // 2 - 1
"""Tokens of earlier text, `<|startofprev|>` not counted."""
FRAME_S = 0.02
"""Time one encoder position stands for."""

SURE = 0.7
"""A language less probable than this is a guess: of half a second of speech `base` gives the likeliest
0.5-0.6, right or wrong."""

GOES_ON = SAMPLE_RATE // 2
"""Voiced samples behind known words that cannot be the end of the last of them."""

_SPELLED = {"jv": "jw"}
"""Languages whose token has another name than the code of today."""
_TOKENS_PER_S = {"latin": 8.0, "other": 14.0, "stacked": 26.0}
"""Output a speaker can cause in a second: fast English stays under 8; a Han character costs up to three
tokens, and vowel signs of Indic scripts three each."""
_LATIN = (
    " en es fr de it pt nl sv no da fi is ca gl eu ro pl cs sk sl hr bs et lv lt hu tr az id ms jw su tl sw"
    " sq cy br oc lb af mt mi la ht haw ln mg sn so yo ha uz tk vi fo nn "
)
_STACKED = " my km th lo ka hy am ta te kn ml si bo bn gu pa ne hi mr sa as "

_SIGNS = '"#()*+/:;<=>@[\\]^_`{|}~「」『』♩♪♫♬♭♮♯'
_SIGN_PAIRS = "<< >> <<< >>> -- --- -( -[ (' (\" (( )) ((( ))) [[ ]] {{ }} ♪♪ ♪♪♪"
"""Signs of captions, music and mark-up: nobody says them, and they lead into descriptions of sounds."""


def expected(ranked: Sequence[tuple[str, float]], likely: Sequence[str]) -> tuple[str, float]:
    """The language heard and its probability, of all by falling probability: the first, or where that is a
    guess the first of those that are `likely`."""
    language, chance = ranked[0]
    if chance < SURE:
        return next((each for each in ranked if each[0] in likely), ranked[0])
    return language, chance


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The control tokens of one vocabulary."""

    end: int
    start: int
    previous: int
    no_speech: int
    no_timestamps: int
    transcribe: int
    translate: int
    start_of_lm: int

    @classmethod
    def of(cls, tokens: TokenTable) -> SpecialIds:
        """Resolve them; raises `ValueError` naming the one the vocabulary lacks."""

        def need(*names: str) -> int:
            for name in names:
                found = tokens.id(name)
                if found is not None:
                    return found
            raise ValueError(f"the tokenizer has no {names[0]}: not a vocabulary of this family")

        return cls(
            end=need("<|endoftext|>"),
            start=need("<|startoftranscript|>"),
            previous=need("<|startofprev|>"),
            no_speech=need("<|nospeech|>", "<|nocaptions|>"),
            no_timestamps=need("<|notimestamps|>"),
            transcribe=need("<|transcribe|>"),
            translate=need("<|translate|>"),
            start_of_lm=need("<|startoflm|>"),
        )


LADDER = (
    Rung(context=True),
    Rung(context=False),
    Rung(context=False, temperature=0.2, repetition_penalty=1.02),
    Rung(context=False, temperature=0.4, repetition_penalty=1.05),
)
"""`RecognitionTask.attempt` picks the rung; the last one stays.

The penalty is slight because people repeat words: 1.1 rewrote "ask what you can do for your country".
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """One request: `head` up to and with `<|notimestamps|>`, then the words the output must begin with."""

    head: tuple[int, ...]
    prefix: tuple[int, ...]
    budget: int
    """Most tokens to generate after the prefix."""
    rung: Rung
    sot: tuple[int, ...]
    """The part of `head` that names language and task."""
    goes_on: bool = False
    """Speech lies behind the prefix, so the output begins with a word and not with the end."""

    @property
    def prompt(self) -> list[int]:
        return [*self.head, *self.prefix]


@dataclass(frozen=True, slots=True)
class Output:
    """What came back: generated ids without prompt and prefix, and the model's own doubts."""

    ids: tuple[int, ...]
    mean_logprob: float
    no_speech: float
    full: bool
    """The budget ran out before the end-of-text token."""


@dataclass(frozen=True, slots=True)
class AcceptRules:
    """When an output is text, when it is a loop, and when it is nothing.

    Neither doubt alone tells: digital silence gives "you" at -0.6, real speech after a long pause a
    no-speech probability of 0.6. Their sum does, on clips of speech, room tone, music and silence.
    """

    no_speech: float = 0.5
    doubt: float = 1.15
    """Bound on no-speech probability + half the negative mean log-probability."""
    max_compression: float = 2.4
    min_repeats: int = 4


@dataclass(frozen=True, slots=True)
class Verdict:
    """`ids` that may become words and how the decode ended."""

    ids: tuple[int, ...]
    finish: Finish


class WhisperPolicy:
    """Model knowledge for one vocabulary; immutable and safe to share."""

    window_s = WINDOW_S

    def __init__(self, tokens: TokenTable, *, multilingual: bool, rules: AcceptRules | None = None) -> None:
        self.tokens = tokens
        self.multilingual = multilingual
        self.special = SpecialIds.of(tokens)
        self.rules = rules or AcceptRules()
        self.suppressed = self._suppressed()
        self.languages = self._languages() if multilingual else ("en",)

    def sot(self, language: str | None, *, translate: bool = False) -> tuple[int, ...]:
        """The start sequence; English-only vocabularies know neither language nor task. Raises `ValueError`
        for what the model does not know."""
        language = language or "en"
        if language not in self.languages:
            known = f"{len(self.languages)} languages" if self.multilingual else "English"
            raise ValueError(f"language {language!r} is not one of the {known} this model knows")
        if not self.multilingual and translate:
            raise ValueError("a model that knows English alone does not translate")
        if not self.multilingual:
            return (self.special.start,)
        language_id = self.tokens.id(f"<|{_SPELLED.get(language, language)}|>")
        assert language_id is not None
        task = self.special.translate if translate else self.special.transcribe
        return (self.special.start, language_id, task)

    def language_of(self, token: str) -> str:
        """The code of a language token such as `<|en|>`."""
        name = token.strip("<|>")
        return next((code for code, spelled in _SPELLED.items() if spelled == name), name)

    def plan(self, task: RecognitionTask, language: str | None) -> Plan:
        """Prompt and budget for `task` in `language`; output goes before context when both do not fit.

        Raises `ValueError` for a language the model does not know and for a prefix that leaves no room.
        """
        rung = rung_of(LADDER, task.attempt)
        sot = self.sot(language, translate=task.translate)
        start = (*sot, self.special.no_timestamps)
        prefix = self._prefix(task.prefix)
        budget = self.budget(task, language)
        room = POSITIONS - len(start) - len(prefix) - 1
        if room < 1:
            raise ValueError(f"a forced prefix of {len(prefix)} tokens leaves no room for output")
        budget = min(budget, room)
        context = self._context(task, room - budget) if rung.context else ()
        head = (self.special.previous, *context, *start) if context else start
        goes_on = bool(prefix) and task.voiced >= GOES_ON
        return Plan(head, prefix, budget, rung, sot, goes_on)

    def budget(self, task: RecognitionTask, language: str | None) -> int:
        """Output tokens that speech after the prefix can cause, with some slack for short windows."""
        begin = max(task.prefix[-1].end, task.start) if task.prefix else task.start
        seconds = max(task.end - begin, 0) / SAMPLE_RATE
        code = "en" if task.translate else language or "en"
        kind = "latin" if f" {code} " in _LATIN else "stacked" if f" {code} " in _STACKED else "other"
        return math.ceil(seconds * _TOKENS_PER_S[kind]) + 10

    def draft(self, task: RecognitionTask) -> tuple[int, ...]:
        """The task's draft as it would be written after its prefix."""
        if not task.draft:
            return ()
        space = " " if task.draft[0].space else ""
        return tuple(self.tokens.encode(space + join(task.draft)))

    def judge(self, output: Output) -> Verdict:
        """Sort an output into text, nothing, cut text or a loop; loops keep their first round only."""
        ids = tuple(token for token in output.ids if token < self.special.end)
        doubtful = output.no_speech > self.rules.no_speech
        silent = doubtful and output.no_speech - output.mean_logprob / 2 > self.rules.doubt
        text = b"".join(self.tokens.piece(token) for token in ids)
        whole = text.decode("utf-8", "ignore")
        keep = loop_start(ids, self.rules.min_repeats)
        if output.full and not silent and not whole:
            return Verdict((), Finish.LENGTH)  # cut inside its first character
        if silent or is_wordless(whole) or (doubtful and keep is not None):
            return Verdict((), Finish.STOP)
        if keep is not None:
            return Verdict(ids[:keep], Finish.LOOP)
        if len(text) > 80 and len(text) / len(zlib.compress(text)) > self.rules.max_compression:
            return Verdict((), Finish.LOOP)
        return Verdict(ids, Finish.LENGTH if output.full else Finish.STOP)

    def units(self, ids: Sequence[int]) -> list[Unit]:
        """Words or characters that `ids` spell, each with its stretch of the sequence."""
        return split_units([self.tokens.piece(token) for token in ids])

    def _prefix(self, words: Sequence[Word]) -> tuple[int, ...]:
        if not words:
            return ()
        space = " " if words[0].space else ""
        return tuple(self.tokens.encode(space + join(words)))

    def _context(self, task: RecognitionTask, room: int) -> tuple[int, ...]:
        """Hotwords, then the newest text before the window, together at most `room` tokens."""
        room = min(MAX_CONTEXT, room - 1)
        if room < 1:
            return ()
        hot: list[int] = []
        if task.hotwords:
            hot = self.tokens.encode(" " + ", ".join(task.hotwords) + ".")[: room // 2]
        text = task.context.strip()
        ids = self.tokens.encode(f" {text}") if text else []
        space = room - len(hot)
        if len(ids) > space:
            ids = self._from_word(ids[len(ids) - space :])
        return (*hot, *ids)

    def _from_word(self, ids: list[int]) -> list[int]:
        """Drop the rest of a word or character that truncation cut in two."""
        for index, token in enumerate(ids):
            first = self.tokens.piece(token)[:1]
            if first == b" " or first >= b"\xe3":
                return ids[index:]
        return []

    def _languages(self) -> tuple[str, ...]:
        names = (self.tokens.name(i) for i in range(self.special.start + 1, self.special.translate))
        return tuple(self.language_of(name) for name in names if name)

    def _suppressed(self) -> tuple[int, ...]:
        """Ids never to be generated: notation, sounds, and every control token but the end."""
        found: set[int] = set()
        for sign in (*_SIGNS, *_SIGN_PAIRS.split()):
            for text in (sign, f" {sign}"):
                ids = self.tokens.encode(text)
                # The signs from U+2640 on take several tokens; their first one is theirs alone.
                if len(ids) == 1 or 0x2640 <= ord(sign[0]) <= 0x267F:
                    found.add(ids[0])
        found.update(self.tokens.encode(text)[0] for text in (" -", " '"))
        special = self.special
        found.update((special.start, special.previous, special.no_speech, special.no_timestamps))
        found.update((special.transcribe, special.translate, special.start_of_lm))
        return tuple(sorted(found))


def loop_start(ids: Sequence[int], min_repeats: int) -> int | None:
    """Where the second round of a repetition at the end begins; None where there is none.

    A phrase counts when it stands `min_repeats` times in a row; single tokens need twice that, because
    people do say "no no no no".
    """
    size = len(ids)
    for period in range(1, size // min_repeats + 1):
        repeats = 1
        while (repeats + 1) * period <= size and all(
            ids[size - 1 - i] == ids[size - 1 - i - repeats * period] for i in range(period)
        ):
            repeats += 1
        if repeats >= (2 * min_repeats if period == 1 else min_repeats):
            return size - (repeats - 1) * period
    return None
