"""LiveKit's OpenAI plugin, realtime, with its defaults and with all it can set: URL KEY FILE SPEED. Prints
each event of each as JSON. Whatever `error` it is sent makes it fail."""

import asyncio
import json
import sys

from livekit import rtc
from livekit.agents import APIConnectOptions, utils
from livekit.plugins import openai

url, key, file, speed = sys.argv[1:]
OPTIONS = {
    "defaults": {},
    "all": {
        "model": "gpt-transcribe",
        "language": ["en"],
        "prompt": "A talk about printing.",
        "keywords": ["Gutenberg"],
        "turn_detection": {"type": "semantic_vad", "eagerness": "high"},
        "noise_reduction_type": "far_field",
    },
}


async def main() -> None:
    async with utils.http_context.open():
        await asyncio.gather(*(listen(name, options) for name, options in OPTIONS.items()))


async def listen(name: str, options: dict) -> None:
    stt = openai.STT(base_url=f"{url}/v1", api_key=key, use_realtime=True, **options)
    stream = stt.stream(conn_options=APIConnectOptions(max_retry=0))
    heard = asyncio.create_task(tell(name, stream))
    await speak(stream)
    # It says nothing at its end, and nothing tells it that all has come.
    await asyncio.sleep(15)
    await stream.aclose()
    await heard
    await stt.aclose()


async def tell(name: str, stream) -> None:
    async for event in stream:
        text = event.alternatives[0].text if event.alternatives else ""
        print(json.dumps([f"{name} {event.type}", {"text": text}]), flush=True)


async def speak(stream) -> None:
    with open(file, "rb") as audio:
        while data := audio.read(3200):
            stream.push_frame(rtc.AudioFrame(data, 16000, 1, len(data) // 2))
            await asyncio.sleep(0.1 / float(speed))
    for _ in range(20):
        stream.push_frame(rtc.AudioFrame(bytes(3200), 16000, 1, 1600))
        await asyncio.sleep(0.1 / float(speed))


asyncio.run(main())
