"""Pipecat's Deepgram service in a pipeline: URL KEY FILE SPEED. Prints each frame of text as JSON."""

import asyncio
import json
import sys

from pipecat.frames.frames import (
    EndFrame,
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
from pipecat.services.deepgram.stt import DeepgramSTTService

url, key, file, speed = sys.argv[1:]
finalized = asyncio.Event()


class Printer(FrameProcessor):
    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame):
            print(json.dumps([type(frame).__name__, {"text": frame.text}]), flush=True)
            if getattr(frame, "finalized", False):
                finalized.set()
        await self.push_frame(frame, direction)


async def main() -> None:
    stt = DeepgramSTTService(api_key=key, base_url=url.replace("http", "ws", 1))
    task = PipelineTask(Pipeline([stt, Printer()]), params=PipelineParams(audio_in_sample_rate=16000))
    speaking = asyncio.create_task(speak(task))
    await PipelineRunner(handle_sigint=False).run(task)
    await speaking


async def speak(task: PipelineTask) -> None:
    await asyncio.sleep(1)
    await task.queue_frame(VADUserStartedSpeakingFrame())
    with open(file, "rb") as audio:
        # Not the pause at its end: in it the words may become final by themselves, and of an answer to
        # Finalize without words Pipecat makes no frame.
        spoken = audio.read()[: -2 * 16_000 * 6 // 10]
    for at in range(0, len(spoken), 3200):
        await task.queue_frame(InputAudioRawFrame(spoken[at : at + 3200], 16000, 1))
        await asyncio.sleep(0.1 / float(speed))
    # What its voice detector says at the end of a turn: the service sends Finalize.
    await task.queue_frame(VADUserStoppedSpeakingFrame())
    try:
        await asyncio.wait_for(finalized.wait(), 60)
    finally:
        # CloseStream, and closed without waiting for an answer.
        await task.queue_frame(EndFrame())


asyncio.run(main())
