"""Speak, and print captions as they come: `python speak.py URL FILE`; FILE is s16le, 16 kHz, mono."""

import asyncio
import sys
from pathlib import Path

from seamscribe_client import Captions, Options, Start, Stream, connect


async def speak(stream: Stream, audio: bytes) -> None:
    """A microphone would give as much every tenth of a second."""
    for at in range(0, len(audio), 3200):
        await stream.send(audio[at : at + 3200])
    await stream.end()


async def main(url: str, audio: bytes) -> None:
    captions = Captions()
    start = Start(options=Options(max_delay_s=2.0))
    async with connect(url, start) as stream, asyncio.TaskGroup() as tasks:
        tasks.create_task(speak(stream, audio))
        async for message in stream:
            captions.receive(message)
    print(captions.committed)


asyncio.run(main(sys.argv[1], Path(sys.argv[2]).read_bytes()))
