"""A server with SGLang's routes and no model: what our own half costs is measured against it.

    python -m engine.sglang.bench.standin --port 31900 --model DIR [--delay 0.15]

It answers each request after `--delay` seconds with as many words as are spoken in so much audio, each time
the same ones, and goes on after the words that were forced: so words are committed as behind a real engine.
What it says has nothing to do with the audio.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from engine.tokens import FileTokens

WORDS_PER_S = 2.5
_HEAD = 64
"""Characters of an audio URL before its samples, about."""
_LEAST = 4
"""Letters of a word that is said."""
_SAID = 997
"""Different words, so that no guard takes them for a loop."""


class Asked(msgspec.Struct):
    """What is read of a request."""

    rid: str
    audio_data: str
    input_ids: list[int] = []
    stream: bool = False


def vocabulary(tokens: FileTokens) -> list[int]:
    """Words that are one token each, all different."""
    found: list[int] = []
    for id in range(len(tokens)):
        piece = tokens.piece(id)
        if piece[:1] == b" " and len(piece) > _LEAST and piece[1:].isalpha() and piece.islower():
            found.append(id)
    return found[-_SAID:]


def answer(asked: Asked, words: Sequence[int], places: dict[int, int]) -> tuple[list[int], int]:
    """The tokens that go on where the prompt ends, and how many it had."""
    seconds = (len(asked.audio_data) - _HEAD) * 3 / 4 / 32_000
    forced = next((n for n, id in enumerate(reversed(asked.input_ids)) if id not in places), 0)
    before = next((places[id] + 1 for id in reversed(asked.input_ids) if id in places), 0)
    count = max(0, round(seconds * WORDS_PER_S) - forced)
    return [words[(before + n) % len(words)] for n in range(count)], len(asked.input_ids)


async def serve(port: int, folder: Path, delay_s: float) -> None:
    tokens = FileTokens.open(folder / "tokenizer.json")
    words = vocabulary(tokens)
    places = {id: place for place, id in enumerate(words)}
    decoder = msgspec.json.Decoder(Asked)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                return
            size = next(
                (
                    int(line[15:])
                    for line in head.split(b"\r\n")
                    if line.lower().startswith(b"content-length")
                ),
                0,
            )
            body, reply = await reader.readexactly(size), b"{}"
            if head.startswith(b"POST /generate"):
                asked = decoder.decode(body)
                ids, prompt = answer(asked, words, places)
                await asyncio.sleep(delay_s)
                meta = {"finish_reason": {"type": "stop"}, "prompt_tokens": prompt, "cached_tokens": 0}
                text = b"".join(map(tokens.piece, ids)).decode("utf-8", "replace")
                reply = msgspec.json.encode({"text": text, "output_ids": ids, "meta_info": meta})
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(reply) + reply)
            await writer.drain()

    server = await asyncio.start_server(talk, "127.0.0.1", port, limit=1 << 20)
    async with server:
        await server.serve_forever()


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m engine.sglang.bench.standin", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face folder: its vocabulary")
    parser.add_argument("--delay", type=float, default=0.15, help="seconds until an answer")
    options = parser.parse_args(argv)
    asyncio.run(serve(options.port, options.model, options.delay))


if __name__ == "__main__":
    main(sys.argv[1:])
