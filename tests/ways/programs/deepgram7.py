"""deepgram-sdk 7: URL KEY FILE SPEED. Prints each message as JSON, and how it was closed."""

import asyncio
import json
import sys

from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from deepgram.listen.v1.types import ListenV1Configure

url, key, file, speed = sys.argv[1:]
socket_url = url.replace("http", "ws", 1)


async def main() -> None:
    place = DeepgramClientEnvironment(base=url, production=socket_url, agent=socket_url, agent_rest=url)
    client = AsyncDeepgramClient(api_key=key, environment=place)
    async with client.listen.v1.connect(
        model="nova-3",
        encoding="linear16",
        sample_rate="16000",
        interim_results="true",
        punctuate="true",
        vad_events="true",
        utterance_end_ms="1000",
        diarize="true",
    ) as connection:
        await connection.send_configure(ListenV1Configure(keyterms=[]))
        speaking = asyncio.create_task(speak(connection))
        async for message in connection:
            print(json.dumps([type(message).__name__, message.model_dump()]), flush=True)
        await speaking


async def speak(connection) -> None:
    with open(file, "rb") as audio:
        while data := audio.read(3200):
            await connection.send_media(data)
            await asyncio.sleep(0.1 / float(speed))
    await connection.send_keep_alive()
    await connection.send_finalize()
    await connection.send_finalize()
    await connection.send_close_stream()


asyncio.run(main())
