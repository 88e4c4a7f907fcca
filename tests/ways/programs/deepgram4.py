"""deepgram-sdk 4: URL KEY FILE SPEED. Prints each message as JSON."""

import asyncio
import json
import sys

from deepgram import DeepgramClient, DeepgramClientOptions, LiveOptions, LiveTranscriptionEvents

url, key, file, speed = sys.argv[1:]


async def main() -> None:
    client = DeepgramClient(key, DeepgramClientOptions(url=url.replace("http", "ws", 1)))
    connection = client.listen.asyncwebsocket.v("1")
    summary = asyncio.Event()

    def heard(kind):
        async def told(self, result=None, **named) -> None:
            message = next((one for one in (result, *named.values()) if hasattr(one, "to_dict")), None)
            print(json.dumps([kind, message.to_dict() if message is not None else {}]), flush=True)
            if kind == "Metadata":
                summary.set()

        return told

    for event, kind in (
        (LiveTranscriptionEvents.Transcript, "Results"),
        (LiveTranscriptionEvents.Metadata, "Metadata"),
        (LiveTranscriptionEvents.SpeechStarted, "SpeechStarted"),
        (LiveTranscriptionEvents.UtteranceEnd, "UtteranceEnd"),
        (LiveTranscriptionEvents.Error, "Error"),
    ):
        connection.on(event, heard(kind))
    options = LiveOptions(
        model="nova-2",
        encoding="linear16",
        sample_rate=16000,
        interim_results=True,
        punctuate=True,
        vad_events=True,
        utterance_end_ms="1000",
    )
    assert await connection.start(options)
    with open(file, "rb") as audio:
        while data := audio.read(3200):
            await connection.send(data)
            await asyncio.sleep(0.1 / float(speed))
    await connection.finalize()
    # Its `finish` does not wait for the summary.
    await connection.send(json.dumps({"type": "CloseStream"}))
    await asyncio.wait_for(summary.wait(), 60)
    await connection.finish()


asyncio.run(main())
