"""Pipecat's OpenAI Realtime service in a pipeline, which commits: URL KEY FILE SPEED. Prints each frame of
text as JSON."""

import asyncio
import sys

from pipecat.services.openai.stt import OpenAIRealtimeSTTService
from pipecat_run import run

url, key, file, speed = sys.argv[1:]


async def main() -> None:
    stt = OpenAIRealtimeSTTService(api_key=key, base_url=url.replace("http", "ws", 1) + "/v1/realtime")
    await run(stt, file, float(speed), lambda frame: True)


asyncio.run(main())
