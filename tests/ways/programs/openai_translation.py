"""openai 3, a recording to English: URL KEY FILE SPEED. Prints what each way to ask answers."""

import json
import sys

from openai import OpenAI

url, key, file, _ = sys.argv[1:]
client = OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def ask(**more):
    with open(file, "rb") as recording:
        return client.audio.translations.create(file=recording, model="any", **more)


for name in ("json", "verbose_json"):
    print(json.dumps([name, ask(response_format=name).model_dump()]), flush=True)
for name in ("text", "srt", "vtt"):
    print(json.dumps([name, ask(response_format=name)]), flush=True)
