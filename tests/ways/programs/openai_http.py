"""openai 3: URL KEY FILE SPEED. Prints what each way to ask answers."""

import io
import json
import sys
import wave

from openai import APIStatusError, OpenAI

url, key, file, _ = sys.argv[1:]
client = OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
buffer = io.BytesIO()
with wave.open(buffer, "wb") as out, open(file, "rb") as samples:
    out.setparams((1, 2, 16_000, 0, "NONE", ""))
    out.writeframes(samples.read())
recording = ("clip.wav", buffer.getvalue())


def say(kind, content):
    print(json.dumps([kind, content]), flush=True)


def ask(**more):
    return client.audio.transcriptions.create(file=recording, model="any", **more)


say("models", [model.id for model in client.models.list()])
say("json", ask(prompt="A talk about printing.", language="en").model_dump())
for name in ("text", "srt", "vtt"):
    say(name, ask(response_format=name))
verbose = ask(response_format="verbose_json", timestamp_granularities=["word", "segment"])
say("verbose", verbose.model_dump())
say("diarized", ask(response_format="diarized_json", chunking_strategy="auto").model_dump())
for event in ask(stream=True):
    say(event.type, event.model_dump())
for event in ask(stream=True, response_format="diarized_json"):
    say(f"diarized.{event.type}", event.model_dump())
for name, call in (
    ("translation", lambda: client.audio.translations.create(file=recording, model="any")),
    ("no audio", lambda: client.audio.transcriptions.create(file=("a.wav", b"<html>"), model="any")),
    ("no key", lambda: client.with_options(api_key="smk_wrong").models.list()),
):
    try:
        call()
    except APIStatusError as error:
        say(name, {"class": type(error).__name__, "status": error.status_code, "body": error.body})
