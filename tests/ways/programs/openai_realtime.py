"""openai 3, realtime, by commit and by voice: URL KEY FILE SPEED. Prints each event as JSON."""

import asyncio
import base64
import json
import sys

from openai import AsyncOpenAI

url, key, file, speed = sys.argv[1:]
TURNS = {"commit": None, "voice": {"type": "server_vad", "silence_duration_ms": 500}}


async def main() -> None:
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key)
    # Both at once, each a session of its own.
    await asyncio.gather(*(listen(client, name, turns) for name, turns in TURNS.items()))
    secret = await client.realtime.client_secrets.create(session={"type": "transcription"})
    browser = AsyncOpenAI(base_url=f"{url}/v1", api_key=secret.value)
    async with browser.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        event = await connection.recv()
        print(json.dumps(["secret", event.model_dump()]), flush=True)


async def listen(client: AsyncOpenAI, name: str, turns: dict | None) -> None:
    async with client.realtime.connect(extra_query={"intent": "transcription"}) as connection:
        session = {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 16000},
                    "transcription": {"model": "any", "language": "en"},
                    "turn_detection": turns,
                    "noise_reduction": {"type": "near_field"},
                }
            },
        }
        await connection.session.update(session=session)
        speaking = asyncio.create_task(speak(connection))
        last = None
        async for event in connection:
            print(json.dumps([name, event.model_dump()]), flush=True)
            if speaking.done() and event.type == "input_audio_buffer.committed":
                last = event.item_id
            if event.type == "conversation.item.done" and event.item.id == last:
                return


async def speak(connection) -> None:
    with open(file, "rb") as audio:
        while data := audio.read(3200):
            await connection.input_audio_buffer.append(audio=base64.b64encode(data).decode())
            await asyncio.sleep(0.1 / float(speed))
    await connection.input_audio_buffer.commit()
    await asyncio.sleep(0)


asyncio.run(main())
