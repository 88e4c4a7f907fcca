"""One decode from audio to words, blocking: features, encoder, language, search, judgement, times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from engine.align import Times, timed_words, token_begins, token_frames
from engine.contract import (
    SAMPLE_RATE,
    Audio,
    Capabilities,
    EngineError,
    Hypothesis,
    Priority,
    RecognitionTask,
    Word,
)
from engine.mel import HOP, log_mel
from engine.policies.whisper import Output, Plan, Verdict, WhisperPolicy, expected
from engine.spread import spread_frames
from engine.tokens import FileTokens

from .greedy import Found, GreedySearch
from .settings import DecodeSettings

SHAPES_KEPT = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
"""So many shapes of matrices the runtime keeps prepared, instead of 1024: windows and prefixes of ever new
lengths fill those in some 800 decodes, with 45 MiB, and take as long."""


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """A window after the encoder; `language` is to be written, `heard` what it sounds like where asked."""

    states: Any
    language: str | None
    heard: str | None = None
    probability: float = 0.0


class LocalDecoder:
    """The loaded model; `decode` may run in as many threads at once as it was opened for."""

    def __init__(self, folder: Path, *, name: str, threads: int, settings: DecodeSettings) -> None:
        """Raises `EngineError`: "missing" without the runtime, "weights" where it refuses the folder."""
        self._settings = settings
        self._runtime = _runtime()
        self._model = _load(self._runtime, folder, threads, settings.compute)
        try:
            tokens = FileTokens.open(folder / "tokenizer.json")
            self._policy = WhisperPolicy(tokens, multilingual=bool(self._model.is_multilingual))
        except ValueError as error:
            raise EngineError("weights", f"{folder.name}: {error}", retryable=False) from error
        self._greedy = GreedySearch(folder, self._policy, rounded=settings.compute == "int8")
        self._limit_s = self._policy.window_s
        self._capabilities = Capabilities(
            engine="local",
            model=name,
            max_window_s=self._limit_s,
            languages=self._policy.languages,
            translates=self._policy.multilingual,
            concurrency=threads,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def close(self) -> None:
        """Free the model's memory; no `decode` may run."""
        self._model.unload_model()

    def decode(self, task: RecognitionTask) -> Hypothesis:
        """Decode one task in the calling thread.

        Raises `EngineError`: "audio" for audio too long or broken, "request" for what the model cannot be
        asked (language, prefix), "engine" for a failure inside the runtime.
        """
        audio = self._checked(task)
        if float(np.abs(audio).max(initial=0.0)) <= self._settings.silence_peak:
            return Hypothesis((), no_speech=1.0)
        try:
            encoded = self._encode(task, audio)
            plan = self._policy.plan(task, encoded.language)
            found = self._search(encoded, plan, task)
            output = found.output if isinstance(found, Found) else found
            verdict = self._policy.judge(output)
            words = self._words(task, audio, encoded, plan, verdict, found) if verdict.ids else ()
        except ValueError as error:
            raise EngineError("request", str(error), retryable=False) from error
        except RuntimeError as error:
            raise EngineError("engine", str(error), retryable=True) from error
        return Hypothesis(words, verdict.finish, encoded.heard, encoded.probability, output.no_speech)

    def _checked(self, task: RecognitionTask) -> Audio:
        if len(task.audio) > self._limit_s * SAMPLE_RATE:
            seconds = len(task.audio) / SAMPLE_RATE
            message = f"{seconds:.1f} s of audio exceed the model's window of {self._limit_s:g} s"
            raise EngineError("audio", message, retryable=False)
        if not np.isfinite(task.audio).all():
            raise EngineError("audio", "audio holds values that are not finite", retryable=False)
        return np.asarray(task.audio, np.float32)

    def _encode(self, task: RecognitionTask, audio: Audio) -> _Encoded:
        pinned = task.language
        rule = self._settings.thorough_window if _thorough(task) else self._settings.quick_window
        features = log_mel(audio, rule.frames(len(audio), self._limit_s), self._model.n_mels)
        states = self._model.encode(self._runtime.StorageView.from_array(features[None]))
        if not self._policy.multilingual or (pinned is not None and not task.detect):
            return _Encoded(states, pinned)
        ranked = self._model.detect_language(states)[0]
        heard, probability = expected(
            [(self._policy.language_of(token), float(chance)) for token, chance in ranked], task.likely
        )
        return _Encoded(states, pinned or heard, heard, probability)

    def _search(self, encoded: _Encoded, plan: Plan, task: RecognitionTask) -> Found | Output:
        """One hypothesis where that is enough, which is cheap behind known words; else a beam, or dice."""
        settings, rung = self._settings, plan.rung
        beam = settings.thorough_beam if _thorough(task) else settings.quick_beam
        if rung.temperature == 0 and rung.repetition_penalty == 1 and beam == 1:
            return self._greedy(np.asarray(encoded.states), plan, self._policy.draft(task))
        return self._generate(encoded, plan, beam)

    def _generate(self, encoded: _Encoded, plan: Plan, beam: int) -> Output:
        settings, rung = self._settings, plan.rung
        sampling = rung.temperature > 0
        result = self._model.generate(
            encoded.states,
            [plan.prompt],
            beam_size=1 if sampling else beam,
            length_penalty=settings.forced_length_penalty if plan.prefix else 1.0,
            max_length=_max_length(plan),
            repetition_penalty=rung.repetition_penalty,
            sampling_topk=0 if sampling else 1,
            sampling_temperature=rung.temperature if sampling else 1.0,
            suppress_blank=not plan.prefix or plan.goes_on,
            suppress_tokens=list(self._policy.suppressed),
            return_scores=True,
            return_no_speech_prob=True,
        )[0]
        ids: list[int] = result.sequences_ids[0]
        fresh = ids[len(plan.prefix) :]
        # The score is averaged over the forced tokens too, which count as certain.
        total = float(result.scores[0]) * max(len(ids), 1)
        return Output(
            ids=tuple(fresh),
            mean_logprob=total / (len(fresh) + 1),
            no_speech=float(result.no_speech_prob),
            full=len(fresh) >= plan.budget,
        )

    def _words(
        self,
        task: RecognitionTask,
        audio: Audio,
        encoded: _Encoded,
        plan: Plan,
        verdict: Verdict,
        found: Found | Output,
    ) -> tuple[Word, ...]:
        units = self._policy.units(verdict.ids)
        begin = max(task.prefix[-1].end, task.start) if task.prefix else task.start
        window = (min(begin, task.end), task.end)
        settings = self._settings
        if not settings.align:
            frames = spread_frames(audio, window[0] - task.start, units, len(verdict.ids))
            return tuple(timed_words(units, frames, (), audio, window))
        frames, chances = self._aligned(encoded, plan, verdict, found, max(len(audio) // HOP, 2))
        return tuple(timed_words(units, frames, chances, audio, window))

    def _aligned(
        self, encoded: _Encoded, plan: Plan, verdict: Verdict, found: Found | Output, heard: int
    ) -> tuple[Times, Sequence[float]]:
        """Where the words' tokens begin, and how sure each is; `heard` is the audio's length in feature
        frames."""
        if isinstance(found, Found):
            begins = token_begins(found.attention, heard // 2)
            return begins[len(plan.prefix) :][: len(verdict.ids) + 1], found.chances[: len(verdict.ids)]
        text = [*plan.prefix, *verdict.ids]
        aligned = self._model.align(encoded.states, list(plan.sot), [text], heard)[0]
        frames = token_frames(aligned.alignments, len(text))[len(plan.prefix) :]
        return frames, aligned.text_token_probs[len(plan.prefix) :]


def _thorough(task: RecognitionTask) -> bool:
    """Whether the answer is worth a beam: its words will be committed, and nobody else waits.

    Under load finals are no better than the refreshes that serve as such. A beam costs them several times as
    much, and the later an engine is, the more finals there are: it would never catch up.
    """
    match task.priority:
        case Priority.BATCH:
            return True
        case Priority.FINAL | Priority.REFRESH:
            return not task.hurry
        case Priority.FIRST:
            return False


def _max_length(plan: Plan) -> int:
    """The runtime's `max_length` for prefix + budget output tokens.

    It stops at min(max_length / 2, max_length - positions before the last control token), and the forced
    prefix counts as output.
    """
    wanted = len(plan.prefix) + plan.budget
    return max(2 * wanted, wanted + len(plan.head) - 1)


def _load(runtime: Any, folder: Path, threads: int, compute: str) -> Any:
    try:
        return runtime.models.Whisper(
            str(folder), device="cpu", compute_type=compute, inter_threads=threads, intra_threads=1
        )
    except (RuntimeError, ValueError) as error:
        raise EngineError("weights", f"{folder.name}: {error}", retryable=False) from error


def _runtime() -> Any:
    # Read when the first product of matrices is prepared.
    os.environ.setdefault(*SHAPES_KEPT)
    try:
        return import_module("ctranslate2")
    except ImportError as error:
        raise EngineError(
            "missing",
            "the embedded engine is not installed; bring it with: pip install 'seamscribe[engine]'",
            retryable=False,
        ) from error
