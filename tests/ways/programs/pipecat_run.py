"""One speech service of Pipecat in a pipeline. Prints each frame of text as JSON."""

import asyncio
import json
from collections.abc import Callable

from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor


class Printer(FrameProcessor):
    def __init__(self, last: Callable[[TranscriptionFrame], bool]) -> None:
        super().__init__()
        self._last = last
        self.heard = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame):
            print(json.dumps([type(frame).__name__, {"text": frame.text}]), flush=True)
            if isinstance(frame, TranscriptionFrame) and self._last(frame):
                self.heard.set()
        if isinstance(frame, ErrorFrame):
            print(json.dumps(["ErrorFrame", {"text": frame.error}]), flush=True)
        await self.push_frame(frame, direction)


async def run(
    stt: FrameProcessor, file: str, speed: float, last: Callable[[TranscriptionFrame], bool]
) -> None:
    """Speak the file (s16le, 16 kHz, mono), end the turn, wait for the `last` frame of text, and leave."""
    printer = Printer(last)
    # Errors go upstream, text goes down.
    pipeline = Pipeline([Printer(lambda frame: False), stt, printer])
    task = PipelineTask(pipeline, params=PipelineParams(audio_in_sample_rate=16000))
    speaking = asyncio.create_task(_speak(task, file, speed, printer.heard))
    await PipelineRunner(handle_sigint=False).run(task)
    await speaking


async def _speak(task: PipelineTask, file: str, speed: float, heard: asyncio.Event) -> None:
    await asyncio.sleep(1)
    await task.queue_frame(VADUserStartedSpeakingFrame())
    with open(file, "rb") as audio:
        # Not the pause at its end: in it the words may become final by themselves, and of an answer to
        # Finalize without words Pipecat makes no frame.
        spoken = audio.read()[: -2 * 16_000 * 6 // 10]
    for at in range(0, len(spoken), 3200):
        await task.queue_frame(InputAudioRawFrame(spoken[at : at + 3200], 16000, 1))
        await asyncio.sleep(0.1 / speed)
    # What its voice detector says at the end of a turn: the service finalizes, or commits.
    await task.queue_frame(VADUserStoppedSpeakingFrame())
    try:
        await asyncio.wait_for(heard.wait(), 60)
    finally:
        # Closed without waiting for an answer.
        await task.queue_frame(EndFrame())
