"""deepgram-sdk 4 on a recording: URL KEY FILE SPEED. Prints what each way to ask answers."""

import io
import json
import sys
import wave

from deepgram import DeepgramApiError, DeepgramClient, DeepgramClientOptions, PrerecordedOptions

url, key, file, _ = sys.argv[1:]
rest = DeepgramClient(key, DeepgramClientOptions(url=url)).listen.rest.v("1")
buffer = io.BytesIO()
with wave.open(buffer, "wb") as out, open(file, "rb") as samples:
    out.setparams((1, 2, 16_000, 0, "NONE", ""))
    out.writeframes(samples.read())


def say(kind, content):
    print(json.dumps([kind, content], default=str), flush=True)


options = PrerecordedOptions(model="nova-2", smart_format=True, utterances=True, punctuate=True)
say("smart", rest.transcribe_file({"buffer": buffer.getvalue()}, options, timeout=200).to_dict())
try:
    rest.transcribe_url({"url": f"{url}/healthz"}, options)
except DeepgramApiError as error:
    say("url", {"status": error.status, "message": error.message})
