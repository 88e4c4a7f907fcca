"""`SglangRecognizer`: tasks to SGLang and back, over any transport, for any model policy.

One request a task: the policy writes it, a guard watches its tokens and aborts it by id when it loops, the
policy reads what came back. How a request ended is always looked at.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import OrderedDict
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from engine.contract import (
    SAMPLE_RATE,
    Capabilities,
    EngineError,
    Finish,
    Hypothesis,
    Priority,
    RecognitionTask,
)
from engine.guards import Alarm, TokenGuard
from engine.policies.serving import Ask, Follower, Reply, ServingPolicy
from engine.policies.verdict import judged, silent
from engine.tuning import Tally, logger

from .halves import LEAST, halves, joined
from .payload import to_pcm16
from .schedulers import Spread
from .transport import STALLED, Part, Request, Transport
from .warming import DRAWN, TOKENS, Warming, first_task

PRIORITIES = {Priority.FINAL: 30, Priority.FIRST: 20, Priority.REFRESH: 10, Priority.BATCH: 0}
"""Ours, smaller first, as SGLang's, larger first."""

LONG_S = 60.0
"""What a request over more audio will take is logged."""
BEYOND_S = 30.0
"""An output whose times lie so far behind its audio tells of nothing any more."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How one engine is used. Seconds; `concurrency` is the number of requests it usefully holds at once."""

    model: str
    concurrency: int = 64
    deadline_s: float = 30.0
    deadline_per_audio_s: float = 0.5
    """The deadline of long audio: so many seconds a second of it."""
    priorities: bool = True
    """Send priorities; the engine must have been started with priority scheduling."""
    stream_from: int = 48
    """Output budget in tokens from which the output is watched while it grows; shorter ones end soon."""
    stream_interval: int = 8
    """Tokens between two looks."""
    schedulers: int = 1
    """Scheduler processes of the engine."""
    engines: int = 1
    """Engines behind the transport, as far as it knows them."""
    recording_engines: int = 0
    """Those of them that take recordings only."""
    sessions: int = 4096
    """Sessions whose language is remembered."""


class SglangRecognizer:
    """A `Recognizer`; belongs to one event loop. `counters` counts what happened, by stable words."""

    def __init__(self, transport: Transport, policy: ServingPolicy, settings: ClientSettings) -> None:
        self._transport = transport
        self._policy = policy
        self._settings = settings
        self._languages: OrderedDict[str, str] = OrderedDict()
        # Every id has the same length, so that none is the beginning of another: SGLang aborts by prefix.
        self._family = secrets.token_hex(4)
        self._serial = itertools.count()
        self._closed = False
        self._warming = Warming(self._first_of_all)
        self.counters = Tally()
        facts = policy.facts
        self._spread = Spread(settings.schedulers, sticky=facts.prefix_cache)
        self._capabilities = Capabilities(
            engine="sglang",
            model=settings.model,
            max_window_s=facts.native_s,
            languages=facts.languages,
            translates=facts.translates,
            word_times=facts.word_times,
            forced_prefix=facts.forced_prefix,
            context_text=facts.context_text,
            speaker_tags=facts.speaker_tags,
            window_s=facts.window_s,
            recording_s=facts.recording_s,
            tries=facts.tries,
            concurrency=settings.concurrency,
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        """Decode one task; a cancelled one is aborted in the engine.

        Raises `EngineError`: "audio" and "request" for what the model cannot take, "deadline", "closed",
        and what the transport reports.
        """
        if self._closed:
            raise EngineError("closed", "the engine is shut down", retryable=False)
        self._check(task)
        if silent(task.audio):
            return Hypothesis((), no_speech=1.0)
        per_second = self._settings.deadline_per_audio_s
        limit = max(self._settings.deadline_s, per_second * len(task.audio) / SAMPLE_RATE)
        try:
            async with asyncio.timeout(limit):
                return await self._decode(task)
        except TimeoutError:
            self.counters.note("error_deadline", f"{limit:g} s")
            raise EngineError("deadline", f"no answer within {limit:g} s", retryable=True) from None
        except EngineError as error:
            self.counters.note(f"error_{error.cause}", str(error))
            raise

    async def close(self) -> None:
        """Refuse new tasks and let the transport go; running tasks fail or are cancelled."""
        if not self._closed:
            self._closed = True
            self._warming.cancel()
            await self._transport.close()

    async def healthy(self) -> bool:
        """Whether an engine answers, and has done so: one that has just come up is asked something first."""
        if self._closed or not await self._transport.healthy():
            return False
        if not self._warming.done:
            self._warming.begin()
        return self._warming.done

    async def warm(self) -> None:
        """Have the engines answer a first request, whose compiling nobody who speaks should wait for. Returns
        when they have, or cannot."""
        await self._warming.run()

    async def _first_of_all(self) -> None:
        """One request as all begin, and one with a little temperature, for what draws its tokens is compiled
        by itself. Raises `EngineError` where no engine that serves who speaks answers."""
        languages = self._policy.facts.languages
        task = first_task(languages[0] if languages else None)
        usual, drawn = (self._policy.ask(replace(task, attempt=n), task.language) for n in (0, DRAWN))
        for ask in (usual, drawn) if drawn.temperature > usual.temperature else (usual,):
            await self._ask_all(task, replace(ask, max_new_tokens=min(ask.max_new_tokens, TOKENS)))

    async def _ask_all(self, task: RecognitionTask, ask: Ask) -> None:
        """One request to each engine and scheduler, all at once so that no two go to the same. Raises
        `EngineError`."""
        settings, pcm = self._settings, to_pcm16(task.audio)
        live = settings.engines - settings.recording_engines
        asked = [
            replace(self._request(task, ask, pcm, scheduler), recording=recording)
            for recording, engines in ((False, live), (True, settings.recording_engines))
            for scheduler in range(settings.schedulers)
            for _ in range(engines)
        ]
        outcomes = await asyncio.gather(*map(self._only, asked))
        failures = [failure for failure in outcomes if failure is not None]
        if stalled := next((failure for failure in failures if failure.cause == STALLED), None):
            raise stalled
        if all(outcomes[: live * settings.schedulers]):
            raise failures[0]
        for failure in failures:
            logger.warning("one engine's first request failed: %(error)s", {"error": failure})

    async def _only(self, request: Request) -> EngineError | None:
        """Why there was no answer; None where there was one."""
        try:
            async with aclosing(self._transport.generate(request)) as parts:
                async for part in parts:
                    if part.finish is not None:
                        return None
        except EngineError as error:
            return error
        return EngineError("garbage", "the engine's answer ended without an end", retryable=True)

    def _check(self, task: RecognitionTask) -> None:
        seconds = len(task.audio) / SAMPLE_RATE
        if seconds > self._policy.facts.native_s:
            raise EngineError(
                "audio",
                f"{seconds:.1f} s of audio exceed the model's {self._policy.facts.native_s:g} s",
                retryable=False,
            )
        if not np.isfinite(task.audio).all():
            raise EngineError("audio", "audio holds values that are not finite", retryable=False)

    async def _decode(self, task: RecognitionTask) -> Hypothesis:
        pcm = (
            await asyncio.to_thread(to_pcm16, task.audio)
            if len(task.audio) > 960_000
            else to_pcm16(task.audio)
        )
        if task.attempt:
            self.counters.note(f"rung_{task.attempt}")
        try:
            language = task.language or await self._language(task, pcm)
            return await self._hear(task, language, pcm)
        except ValueError as error:
            raise EngineError("request", str(error), retryable=False) from error

    async def _hear(self, task: RecognitionTask, language: str | None, pcm: bytes) -> Hypothesis:
        ask = self._policy.ask(task, language)
        if ask.split and len(task.audio) >= LEAST:
            return await self._in_halves(task, language)
        if len(task.audio) > LONG_S * SAMPLE_RATE:
            self._announce(task, ask)
        reply = await self._run(task, ask, pcm)
        again = self._policy.astray(ask, reply)
        if again is not None:
            self.counters.note("astray")
            ask = self._policy.ask(task, again)
            reply = await self._run(task, ask, pcm)
        heard, alarm = judged(task, reply, self._policy.read(task, ask, reply))
        if alarm is not None:
            self.counters.note(f"alarm_{alarm.value}")
        self.counters.note(f"finish_{heard.finish.value}")
        self.counters["audio_ms"] += 1000 * len(task.audio) // SAMPLE_RATE
        if heard.words:
            self.counters["reached_ms"] += 1000 * (heard.words[-1].end - task.start) // SAMPLE_RATE
            self.counters["spoken_ms"] += 1000 * len(task.audio) // SAMPLE_RATE
        if heard.language is not None:
            self._remember(task.session, heard.language)
        return heard

    async def _in_halves(self, task: RecognitionTask, language: str | None) -> Hypothesis:
        self.counters.note("split")
        first, second = halves(task)
        heard = await self._hear(first, language, to_pcm16(first.audio))
        if heard.finish is not Finish.STOP:
            return heard
        return joined(heard, await self._hear(second, language, to_pcm16(second.audio)))

    async def _language(self, task: RecognitionTask, pcm: bytes) -> str | None:
        """The session's language where the policy must know it before it can ask."""
        ask = self._policy.detection(task)
        if ask is None:
            return None
        known = self._languages.get(task.session)
        if known is None:
            self.counters["detection"] += 1
            known, _ = self._policy.heard(await self._run(task, ask, pcm))
            if known is not None:
                self._remember(task.session, known)
        return known

    def _remember(self, session: str, language: str) -> None:
        self._languages[session] = language
        self._languages.move_to_end(session)
        if len(self._languages) > self._settings.sessions:
            self._languages.popitem(last=False)

    async def _run(self, task: RecognitionTask, ask: Ask, pcm: bytes) -> Reply:
        scheduler = self._spread.take(task.session)
        try:
            return await self._watch(self._request(task, ask, pcm, scheduler), ask, task)
        finally:
            self._spread.done(scheduler)

    async def _watch(self, request: Request, ask: Ask, task: RecognitionTask) -> Reply:
        guard = TokenGuard(ask.guard)
        follower = None if ask.follow is None else ask.follow()
        last: Part | None = None
        async with aclosing(self._transport.generate(request)) as parts:
            async for part in parts:
                if part.finish is not None and last is not None and not _goes_on(last, part):
                    self.counters.note("reconciled")
                last = part
                if follower is not None and (alarm := self._follow(task, follower, part)) is not None:
                    return self._reply(part, alarm)
                alarm = guard.feed(part.ids, part.text)
                if alarm is not None:
                    return self._reply(part, alarm)
                if part.finish is not None:
                    break
        if last is None or last.finish is None:
            raise EngineError("garbage", "the engine's answer ended without an end", retryable=True)
        self.counters["prompt_tokens"] += last.prompt_tokens
        self.counters["cached_tokens"] += last.cached_tokens
        self.counters["output_tokens"] += last.output_tokens or len(last.ids)
        if last.finish == "abort":
            raise EngineError("aborted", last.detail or "the engine gave the request up", retryable=True)
        self._warming.done = True
        return self._reply(last, None)

    @staticmethod
    def _follow(task: RecognitionTask, follower: Follower, part: Part) -> Alarm | None:
        """Tell how far the output is; an alarm where that is far behind the audio's end."""
        reached = follower.reached(part.text)
        if reached is None:
            return None
        seconds = len(task.audio) / SAMPLE_RATE
        if task.progress is not None:
            task.progress(task.start + round(min(reached, seconds) * SAMPLE_RATE))
        return Alarm.FLOOD if reached > seconds + BEYOND_S else None

    def _announce(self, task: RecognitionTask, ask: Ask) -> None:
        """What a long request will take, before it starts."""
        facts, seconds = self._policy.facts, len(task.audio) / SAMPLE_RATE
        heard = round(seconds * facts.audio_tokens_per_s)
        said = {
            "seconds": seconds,
            "heard": heard,
            "said": ask.max_new_tokens,
            "both": heard + ask.max_new_tokens,
        }
        logger.info(
            "%(seconds).0f s in one request: %(heard)d positions of audio and at most %(said)d of output,"
            " %(both)d of the %(context)d that the model has",
            said | {"context": facts.context_tokens},
        )

    def _request(self, task: RecognitionTask, ask: Ask, pcm: bytes, scheduler: int) -> Request:
        stream = ask.max_new_tokens >= self._settings.stream_from
        sampling: dict[str, object] = {
            "max_new_tokens": ask.max_new_tokens,
            "temperature": ask.temperature,
            "repetition_penalty": ask.repetition_penalty,
        }
        if ask.custom:
            sampling["custom_params"] = dict(ask.custom)
        if stream:
            sampling["stream_interval"] = self._settings.stream_interval
        return Request(
            rid=f"{self._family}-{next(self._serial):012d}",
            pcm=pcm,
            sampling=sampling,
            input_ids=ask.input_ids,
            text=ask.text,
            priority=PRIORITIES[task.priority] if self._settings.priorities else None,
            logprobs=ask.logprobs,
            stream=stream,
            scheduler=scheduler if self._settings.schedulers > 1 else None,
            recording=task.priority is Priority.BATCH,
        )

    @staticmethod
    def _reply(part: Part, alarm: Alarm | None) -> Reply:
        return Reply(
            ids=part.ids,
            text=part.text,
            full=part.finish == "length",
            alarm=alarm,
            logprobs=part.logprobs,
            told=part.told,
        )


def _goes_on(last: Part, end: Part) -> bool:
    """Whether the terminal text is what was streamed, and perhaps more; outer space apart."""
    return end.text.strip().startswith(last.text.strip().rstrip("\N{REPLACEMENT CHARACTER}"))
