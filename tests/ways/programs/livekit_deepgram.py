"""LiveKit's Deepgram plugin with its defaults: URL KEY FILE SPEED. Prints each event as JSON."""

import asyncio
import json
import sys

import aiohttp
from livekit import rtc
from livekit.plugins import deepgram

url, key, file, speed = sys.argv[1:]


async def main() -> None:
    async with aiohttp.ClientSession() as http:
        stt = deepgram.STT(base_url=f"{url}/v1/listen", api_key=key, http_session=http)
        stream = stt.stream()
        speaking = asyncio.create_task(speak(stream))
        async for event in stream:
            said = event.alternatives[0] if event.alternatives else None
            text, speaker = (said.text, said.speaker_id) if said is not None else ("", None)
            print(json.dumps([str(event.type), {"text": text, "speaker": speaker}]), flush=True)
        await speaking
        await stt.aclose()


async def speak(stream) -> None:
    with open(file, "rb") as audio:
        while data := audio.read(3200):
            stream.push_frame(rtc.AudioFrame(data, 16000, 1, len(data) // 2))
            await asyncio.sleep(0.1 / float(speed))
    stream.flush()
    stream.end_input()


asyncio.run(main())
