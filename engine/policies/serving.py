"""What a model policy must tell a serving mechanism: how to ask, how to read, what it can take.

PURE. The mechanism (`engine/sglang`) holds one policy and knows no model; a policy knows no transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.contract import Finish, Hypothesis, RecognitionTask
from engine.guards import Alarm, GuardLimits


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Numbers of one model. Three limits never share one: `native_s` is what the *model* takes in a
    request; what the scheduler wants per chunk and what an endpoint lets a user send are settings."""

    native_s: float
    """Longest audio of one request, seconds."""
    audio_tokens_per_s: float
    """Positions that a second of audio takes in the KV cache."""
    context_tokens: int
    """Prompt and output together, audio included where it shares the positions."""
    kv_bytes_per_token: int | None
    """Bytes of KV cache a position takes; None where it depends on the size of the family's member."""
    chunked_prefill: bool
    """Whether a prompt may be cut into pieces by the scheduler."""
    prefix_cache: bool
    """Whether a prompt's beginning is found again in the KV cache."""
    translates: bool = False
    word_times: bool = False
    forced_prefix: bool = True
    context_text: bool = True
    speaker_tags: bool = False
    recording_s: float | None = None
    """Audio of one request that a recording is best given; None: no more than live windows have."""
    window_s: float | None = None
    """Audio of a live window at most, where that is more than the scheduler's."""
    budget_per_s: float = 8.0
    """Output tokens that a second of audio may take, and has to have room for."""
    tries: int = 3
    """Steps of its retry ladder."""
    languages: tuple[str, ...] = ()
    pipeline: str | None = None
    """The class that configures it for SGLang-Omni; None where SGLang itself serves it."""
    generates: bool = True
    """Whether `/generate` takes its audio there; else the transcription route alone does."""
    gather: int = 0
    """Requests that SGLang-Omni is best made to wait for, a moment, before it prefills them together; 0: as
    it does by itself."""
    weights_gib: float | None = None
    """Where no folder of ours holds them; None: the folder tells."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, apart from its audio: a prompt as token ids or as text, and how to sample.

    `custom` goes to our plugin inside SGLang. `detects` says that the reply begins with the language.
    """

    max_new_tokens: int
    guard: GuardLimits
    input_ids: tuple[int, ...] | None = None
    text: str | None = None
    temperature: float = 0.0
    repetition_penalty: float = 1.0
    custom: Mapping[str, Any] = field(default_factory=dict)
    language: str | None = None
    detects: bool = False
    logprobs: bool = False
    follow: Callable[[], Follower] | None = None
    """Makes what tells, of an output that grows, how far into the audio it is; None: nothing does."""
    split: bool = False
    """Ask for both halves of the audio by themselves instead, cut where it is quietest."""


class Follower(Protocol):
    """Watches one output that grows."""

    def reached(self, text: str) -> float | None:
        """Seconds of the audio that the output so far has behind it; None where it does not say."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back. `text` may end in a cut character; `full`: the budget ran out."""

    ids: tuple[int, ...]
    text: str
    full: bool = False
    alarm: Alarm | None = None
    """Why a guard stopped it while it ran."""
    logprobs: tuple[float, ...] = ()
    told: bool = True
    """Whether the engine said how it ended; else nobody knows whether it is `full`."""

    @property
    def finish(self) -> Finish:
        """Why the engine ended it; what a guard's `alarm` makes of that is for `verdict.judged` to say."""
        return Finish.LENGTH if self.full else Finish.STOP


class ServingPolicy(Protocol):
    """One model's knowledge, immutable and shared between tasks."""

    @property
    def facts(self) -> ModelFacts: ...

    def ask(self, task: RecognitionTask, language: str | None) -> Ask:
        """The request for `task`; raises `ValueError` for what the model cannot be asked."""
        ...

    def detection(self, task: RecognitionTask) -> Ask | None:
        """A short request that only finds the language, where `task` needs one first; else None."""
        ...

    def heard(self, reply: Reply) -> tuple[str | None, float]:
        """The language that a `detection` reply names, and its probability (0 where not known)."""
        ...

    def astray(self, ask: Ask, reply: Reply) -> str | None:
        """Where an unforced reply did something else than transcribe: the language to ask again with."""
        ...

    def read(self, task: RecognitionTask, ask: Ask, reply: Reply) -> Hypothesis:
        """Words after the task's prefix; never raises for anything a model may write. One that finds a loop
        by itself keeps its first round, and says `Finish.LOOP`."""
        ...


class LanguageUntold:
    """What the policies of models have in common that never say which language they heard."""

    def detection(self, task: RecognitionTask) -> Ask | None:
        return None

    def heard(self, reply: Reply) -> tuple[str | None, float]:
        return None, 0.0

    def astray(self, ask: Ask, reply: Reply) -> str | None:
        return None
