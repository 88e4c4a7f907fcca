"""Sessions of our server over SGLang, and over the embedded engine made to decode as SGLang does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from clients.aio import connect
from clients.captions import Captions
from clients.play import Pace, Playback, play
from engine.contract import Audio, Capabilities, Hypothesis, Priority, RecognitionTask, Recognizer, join
from engine.detector import open_detector
from engine.dispatcher import Dispatcher, DispatchSettings, Served
from engine.local.decoder import LocalDecoder
from engine.local.recognizer import LocalRecognizer
from engine.local.settings import DecodeSettings, WindowRule
from engine.sglang.bench.clips import distance, words
from engine.sglang.windows import SMALLEST_S, STEP_S, TAIL_S
from engine.weights import find_weights
from streaming.wire.messages import Flushed, Start
from tests.support.server import Running, listening
from tests.support.services import services_of

GREEDY = DecodeSettings(
    compute="float32",
    quick_beam=1,
    thorough_beam=1,
    align=False,
    quick_window=WindowRule(SMALLEST_S, TAIL_S, STEP_S),
    thorough_window=WindowRule(SMALLEST_S, TAIL_S, STEP_S),
)
"""As SGLang decodes: no beam, weights as they are, its windows, estimated times."""
FULL = replace(GREEDY, thorough_window=WindowRule(30.0, TAIL_S, STEP_S))
"""The same for what stays as text."""


class Reference:
    """The embedded engine with SGLang's search and windows: what differs then is SGLang itself."""

    def __init__(self, model: str) -> None:
        self._partial, self._final = (
            LocalRecognizer(
                LocalDecoder(find_weights(model), name=model, threads=1, settings=settings), deadline_s=60.0
            )
            for settings in (GREEDY, FULL)
        )

    @property
    def capabilities(self) -> Capabilities:
        return self._final.capabilities

    async def recognize(self, task: RecognitionTask) -> Hypothesis:
        lasting = task.priority in (Priority.FINAL, Priority.BATCH)
        return await (self._final if lasting else self._partial).recognize(task)

    async def close(self) -> None:
        await self._partial.close()
        await self._final.close()


@asynccontextmanager
async def serving(recognizer: Recognizer, heard: list[Served] | None = None) -> AsyncIterator[Running]:
    """Our server with its real voice detector, on loopback; every decode goes into `heard`. Leaves the
    recognizer open."""
    kept, decodes = _Kept(recognizer), [] if heard is None else heard
    dispatcher = Dispatcher(kept, DispatchSettings(), decodes.append)
    async with listening(services_of(kept, dispatcher=dispatcher, detector=open_detector())) as running:
        yield running


class _Kept:
    """A recognizer that somebody else closes."""

    def __init__(self, inner: Recognizer) -> None:
        self.capabilities, self.recognize = inner.capabilities, inner.recognize

    async def close(self) -> None:
        pass


def pcm(audio: Audio) -> bytes:
    return (np.clip(audio, -1, 1) * 32767).astype("<i2").tobytes()


async def session(address: str, audio: Audio, language: str, speed: float | None) -> Captions:
    """One stream; every promise is checked: no committed word changes, the receipt covers all, no gap."""
    playback = Playback("session")
    start = Start(language=language)
    pieces = [pcm(audio[at : at + 1600]) for at in range(0, len(audio), 1600)]
    await play(playback, f"http://{address}", start, pieces, Pace(speed=speed), lambda *_: None)
    assert playback.faults() == []
    assert playback.captions.revised == 0
    return playback.captions


async def sessions_agree(
    recognizer: Recognizer, model: str, language: str, clips: Sequence[Audio], *, characters: bool = False
) -> None:
    """Sessions over both engines give the same words.

    As fast as audio is taken in: the transcripts are compared. As from a microphone a slower engine's next
    refresh hears more, and other words may be committed: there each decode is asked again from the reference.
    """
    other = Reference(model)
    heard: list[Served] = []
    said: list[list[str]] = []
    for engine in (recognizer, other):
        async with serving(engine) as running:
            said.append([(await session(running.address, c, language, None)).committed for c in clips])
    async with serving(recognizer, heard) as running:
        await session(running.address, clips[0], language, 1.0)
    answered = [(one.task, one.hypothesis) for one in heard if one.hypothesis is not None]
    live = [join(hypothesis.words) for _, hypothesis in answered]
    asked = [join((await other.recognize(task)).words) for task, _ in answered]
    await other.close()
    assert len(answered) >= 4
    assert differing(said[1], said[0], characters=characters) <= 2.0, said
    assert differing(asked, live, characters=characters) <= 2.0, (asked, live)


Step = Callable[[], Awaitable[None]]


async def nothing() -> None: ...


async def in_two_halves(address: str, audio: Audio, before: Step = nothing, after: Step = nothing) -> str:
    """What a session says that is flushed in the middle. `before` runs before the second half is sent,
    `after` while it waits. Every promise is checked, and that nothing is lost."""
    captions, middle = Captions(), len(audio) // 2
    async with connect(f"http://{address}", Start(language="en")) as stream:

        async def until_flushed(id: str) -> None:
            async for message in stream:
                captions.receive(message)
                if isinstance(message, Flushed) and message.id == id:
                    return

        await stream.send(pcm(audio[:middle]))
        await stream.flush("first")
        await until_flushed("first")
        committed = captions.committed
        assert committed
        await before()
        await stream.send(pcm(audio[middle:]))
        await stream.flush("second")
        await after()
        await until_flushed("second")
        assert captions.committed.startswith(committed)
        await stream.end()
        async for message in stream:
            captions.receive(message)
    assert captions.faults == []
    assert captions.receipt is not None
    assert captions.receipt.gap_samples == 0
    return captions.committed


def differing(expected: list[str], found: list[str], *, characters: bool = False) -> float:
    """Words (characters) of `found` that are not those of `expected`, in percent of the latter."""
    split = (lambda text: [char for char in text if char.isalnum()]) if characters else words
    wrong = sum(distance(split(a), split(b)) for a, b in zip(expected, found, strict=True))
    return 100.0 * wrong / sum(len(split(text)) for text in expected)
