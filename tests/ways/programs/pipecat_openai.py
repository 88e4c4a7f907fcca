"""Pipecat's OpenAI Realtime service in a pipeline, which commits: URL KEY FILE SPEED. Prints each frame of
text as JSON."""

import asyncio
import json
import sys

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
from pipecat.services.openai.stt import OpenAIRealtimeSTTService

url, key, file, speed = sys.argv[1:]
final = asyncio.Event()


class Printer(FrameProcessor):
    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame):
            print(json.dumps([type(frame).__name__, {"text": frame.text}]), flush=True)
            if isinstance(frame, TranscriptionFrame):
                final.set()
        if isinstance(frame, ErrorFrame):
            print(json.dumps(["ErrorFrame", {"text": frame.error}]), flush=True)
        await self.push_frame(frame, direction)


async def main() -> None:
    stt = OpenAIRealtimeSTTService(api_key=key, base_url=url.replace("http", "ws", 1) + "/v1/realtime")
    task = PipelineTask(
        Pipeline([Printer(), stt, Printer()]), params=PipelineParams(audio_in_sample_rate=16000)
    )
    speaking = asyncio.create_task(speak(task))
    await PipelineRunner(handle_sigint=False).run(task)
    await speaking


async def speak(task: PipelineTask) -> None:
    await asyncio.sleep(1)
    await task.queue_frame(VADUserStartedSpeakingFrame())
    with open(file, "rb") as audio:
        while data := audio.read(3200):
            await task.queue_frame(InputAudioRawFrame(data, 16000, 1))
            await asyncio.sleep(0.1 / float(speed))
    # What its voice detector says at the end of a turn: the service commits.
    await task.queue_frame(VADUserStoppedSpeakingFrame())
    await asyncio.wait_for(final.wait(), 60)
    await task.queue_frame(EndFrame())


asyncio.run(main())
