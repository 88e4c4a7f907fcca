"""Why SGLang and the embedded engine differ: the same tasks by SGLang and by every mixture of the embedded
engine's arithmetic, beams and windows. In SGLang's environment:

    python -m tests.e2e.sglang_words tiny.en en 24
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from engine.contract import Audio, Priority, RecognitionTask, join
from engine.local.decoder import LocalDecoder
from engine.local.settings import DecodeSettings
from engine.sglang.folders import serving_folder
from engine.weights import find_weights
from tests.support.data import DATA

from .sglang_sessions import FULL, GREEDY, differing
from .sglang_site import client, engine
from .test_sglang_speech import english, read

KINDS = {Priority.FINAL: FULL, Priority.REFRESH: GREEDY}
"""Windows of the SGLang policy, by what asks."""


def clips(language: str, count: int) -> list[Audio]:
    if language == "en":
        return [audio for audio, _ in english(count)]
    paths = sorted((DATA / "languages").glob(f"{language}-*"))[:count]
    return [read(path)[: 29 * 16_000] for path in paths]


def tasks(priority: Priority, language: str, count: int) -> list[RecognitionTask]:
    return [
        RecognitionTask(f"t{n}", f"s{n}", audio, 8_000, priority, language=language)
        for n, audio in enumerate(clips(language, count))
    ]


async def by_sglang(model: str, language: str, count: int) -> dict[Priority, list[str]]:
    folder = serving_folder(model)
    recognizer = client(await asyncio.to_thread(engine, folder), folder)
    try:
        return {
            kind: [
                join(found.words)
                for found in await asyncio.gather(*map(recognizer.recognize, tasks(kind, language, count)))
            ]
            for kind in KINDS
        }
    finally:
        await recognizer.close()


def mixtures(kind: Priority) -> Iterator[tuple[str, DecodeSettings]]:
    shipped = DecodeSettings()
    for compute, beam, same in product(("int8", "float32"), (5, 1), (False, True)):
        windows = KINDS[kind].thorough_window if same else shipped.thorough_window
        settings = replace(shipped, compute=compute, thorough_beam=beam, thorough_window=windows)
        yield f"{compute} | {beam} | {'as SGLang' if same else 'as shipped'}", settings


async def main(model: str, language: str, count: int) -> None:
    found = await by_sglang(model, language, count)
    print("| asked as | arithmetic | beam | windows | differs, % |\n|---|---|---|---|---|")  # noqa: T201
    for kind in KINDS:
        for name, settings in mixtures(kind):
            decoder = LocalDecoder(find_weights(model), name=model, threads=1, settings=settings)
            texts = [join(decoder.decode(task).words) for task in tasks(kind, language, count)]
            decoder.close()
            percent = differing(texts, found[kind], characters=language in ("zh", "ja"))
            print(f"| {kind.name.lower()} | {name} | {percent:.2f} |")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
