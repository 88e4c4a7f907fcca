"""The embedded engine: CTranslate2 on CPU threads, off the event loop.

One worker thread a core, each with a single compute thread: int8 decoding gets slower with more, and two
tasks on two cores finish sooner than one after the other on both.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.align import spread_frames, timed_words, token_frames
from engine.contract import Audio, Capabilities, EngineError, Hypothesis, Priority, RecognitionTask, Word
from engine.mel import log_mel
from engine.policies import load_policy
from engine.tokens import FileTokens

from .settings import DecodeSettings

if TYPE_CHECKING:
    from engine.policies.whisper import Output, Plan, Verdict, WhisperPolicy

_POLICY = "whisper"
"""The one family that this mechanism runs."""


@dataclass(frozen=True, slots=True, eq=False)
class _Encoded:
    """A window after the encoder, with the language heard in it."""

    states: Any
    language: str | None
    probability: float


class LocalRecognizer:
    """A `Recognizer` on this machine's cores; also callable synchronously through `decode`."""

    def __init__(self, folder: Path, *, name: str, threads: int, settings: DecodeSettings) -> None:
        self._settings = settings
        self._tokens = FileTokens.open(folder / "tokenizer.json")
        self._runtime: Any = import_module("ctranslate2")
        self._model = _load(self._runtime, folder, threads)
        self._policy: WhisperPolicy = load_policy(_POLICY)(
            self._tokens, multilingual=bool(self._model.is_multilingual)
        )
        self._limit_s: float = self._policy.window_s
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="recognizer")
        self._closed = False
        self._capabilities = Capabilities(
            engine="local",
            model=name,
            max_window_s=self._limit_s,
            languages=self._policy.languages,
            concurrency=threads,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @property
    def settings(self) -> DecodeSettings:
        return self._settings

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        """Decode in a worker thread; cancelling drops a queued task and ignores a running one's result.

        Raises `EngineError`: "deadline" and "closed" besides those of `decode`.
        """
        if self._closed:
            raise EngineError("closed", "the engine is shut down", retryable=False)
        work = self._pool.submit(self.decode, task)
        try:
            async with asyncio.timeout(self._settings.deadline_s):
                return await asyncio.wrap_future(work)
        except TimeoutError:
            raise EngineError(
                "deadline", f"no result within {self._settings.deadline_s:g} s", retryable=True
            ) from None

    async def close(self) -> None:
        """Start no more tasks and wait for those that run; later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
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
            output = self._generate(encoded, plan, task.priority)
            verdict = self._policy.judge(output)
            words = self._words(task, audio, encoded, plan, verdict) if verdict.ids else ()
        except ValueError as error:
            raise EngineError("request", str(error), retryable=False) from error
        except RuntimeError as error:
            raise EngineError("engine", str(error), retryable=True) from error
        heard = (
            self._policy.language_of(encoded.language) if encoded.probability and encoded.language else None
        )
        return Hypothesis(words, verdict.finish, heard, encoded.probability, output.no_speech)

    def _checked(self, task: RecognitionTask) -> Audio:
        if len(task.audio) > self._limit_s * 16_000:
            raise EngineError(
                "audio",
                f"{len(task.audio) / 16_000:.1f} s of audio exceed the model's window of {self._limit_s:g} s",
                retryable=False,
            )
        if not np.isfinite(task.audio).all():
            raise EngineError("audio", "audio holds values that are not finite", retryable=False)
        return np.asarray(task.audio, np.float32)

    def _encode(self, task: RecognitionTask, audio: Audio) -> _Encoded:
        rule = self._settings.final_window if _is_final(task.priority) else self._settings.refresh_window
        features = log_mel(audio, rule.frames(len(audio), self._limit_s), self._model.n_mels)
        states = self._model.encode(self._runtime.StorageView.from_array(features[None]))
        pinned = self._policy.language_code(task.language) if task.language else None
        if not self._policy.multilingual:
            return _Encoded(states, pinned, 0.0)
        if pinned is not None and not self._settings.always_detect:
            return _Encoded(states, pinned, 0.0)
        token, probability = self._model.detect_language(states)[0][0]
        heard = token.strip("<|>")
        return _Encoded(states, pinned or heard, float(probability))

    def _generate(self, encoded: _Encoded, plan: Plan, priority: Priority) -> Output:
        from engine.policies.whisper import Output

        settings, rung = self._settings, plan.rung
        sampling = rung.temperature > 0
        beam = 1 if sampling else settings.final_beam if _is_final(priority) else settings.refresh_beam
        result = self._model.generate(
            encoded.states,
            [plan.prompt],
            beam_size=beam,
            max_length=_max_length(plan),
            repetition_penalty=rung.repetition_penalty,
            sampling_topk=0 if sampling else 1,
            sampling_temperature=rung.temperature if sampling else 1.0,
            suppress_blank=not plan.prefix,
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
    ) -> tuple[Word, ...]:
        units = self._policy.units(verdict.ids)
        begin = max(task.prefix[-1].end, task.start) if task.prefix else task.start
        window = (min(begin, task.end), task.end)
        settings = self._settings
        if not (settings.final_align if _is_final(task.priority) else settings.refresh_align):
            frames = spread_frames(audio, window[0] - task.start, units, len(verdict.ids))
            return tuple(timed_words(units, frames, (), audio, window))
        text = [*plan.prefix, *verdict.ids]
        heard = max(len(audio) // 160, 2)
        aligned = self._model.align(encoded.states, list(self._policy.sot(plan.language)), [text], heard)[0]
        frames = token_frames(aligned.alignments, len(text))[len(plan.prefix) :]
        chances: Sequence[float] = aligned.text_token_probs[len(plan.prefix) :]
        return tuple(timed_words(units, frames, chances, audio, window))


def _is_final(priority: Priority) -> bool:
    return priority in (Priority.FINAL, Priority.BATCH)


def _max_length(plan: Plan) -> int:
    """The runtime's `max_length` for prefix + budget output tokens.

    It stops at min(max_length / 2, max_length - positions before the last control token), and the forced
    prefix counts as output.
    """
    wanted = len(plan.prefix) + plan.budget
    return max(2 * wanted, wanted + len(plan.head) - 1)


def _load(runtime: Any, folder: Path, threads: int) -> Any:
    try:
        return runtime.models.Whisper(
            str(folder), device="cpu", compute_type="int8", inter_threads=threads, intra_threads=1
        )
    except (RuntimeError, ValueError) as error:
        raise EngineError("weights", f"{folder.name}: {error}", retryable=False) from error


def open_recognizer(model: str, threads: int = 0, settings: DecodeSettings | None = None) -> LocalRecognizer:
    """Load `model`: a packaged name, a folder, or a hub name. `threads` 0 takes every core.

    Raises `WeightsError` where the weights are missing or altered, `EngineError("weights")` where the
    runtime refuses them.
    """
    from engine.weights import find_weights

    folder = find_weights(model)
    count = threads if threads > 0 else os.cpu_count() or 1
    return LocalRecognizer(folder, name=model, threads=count, settings=settings or DecodeSettings())
