"""deepgram-sdk 7 on a recording: URL KEY FILE SPEED. Prints what each way to ask answers."""

import io
import json
import sys
import wave

from deepgram import DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.environment import DeepgramClientEnvironment

url, key, file, _ = sys.argv[1:]
place = DeepgramClientEnvironment(base=url, production=url, agent=url, agent_rest=url)
media = DeepgramClient(api_key=key, environment=place).listen.v1.media
samples = open(file, "rb").read()  # noqa: SIM115 - ends at once
buffer = io.BytesIO()
with wave.open(buffer, "wb") as out:
    out.setparams((1, 2, 16_000, 0, "NONE", ""))
    out.writeframes(samples)


def say(kind, content):
    print(json.dumps([kind, content], default=str), flush=True)


def ask(request, **more):
    return media.transcribe_file(request=request, model="nova-3", **more).model_dump()


say("smart", ask(buffer.getvalue(), smart_format=True, diarize=True, utterances=True, paragraphs=True))
say(
    "bare",
    ask(
        samples, encoding="linear16", request_options={"additional_query_parameters": {"sample_rate": 16000}}
    ),
)
for kind, call in (
    ("url", lambda: media.transcribe_url(url=f"{url}/healthz", model="nova-3")),
    ("no audio", lambda: ask(b"<html>")),
):
    try:
        call()
    except ApiError as error:
        say(kind, {"status": error.status_code, "body": error.body})
