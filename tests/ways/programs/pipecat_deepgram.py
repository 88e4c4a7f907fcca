"""Pipecat's Deepgram service in a pipeline: URL KEY FILE SPEED. Prints each frame of text as JSON."""

import asyncio
import sys

from pipecat.services.deepgram.stt import DeepgramSTTService
from pipecat_run import run

url, key, file, speed = sys.argv[1:]


async def main() -> None:
    stt = DeepgramSTTService(api_key=key, base_url=url.replace("http", "ws", 1))
    # It says so itself which frame answers Finalize.
    await run(stt, file, float(speed), lambda frame: bool(getattr(frame, "finalized", False)))


asyncio.run(main())
