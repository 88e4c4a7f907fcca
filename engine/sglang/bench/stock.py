"""SGLang without our plugin, to compare with: a WAV file in, the stock prompt, the stock front end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.sglang.inproc import InprocTransport, open_inproc
from engine.sglang.payload import as_wav
from engine.sglang.transport import Part, Request


class StockTransport:
    """Sends what stock SGLang takes; the prompt is replaced by its own whatever is sent."""

    def __init__(self, inner: InprocTransport) -> None:
        self._inner = inner

    async def generate(self, request: Request) -> AsyncGenerator[Part, None]:
        sampling = dict(request.sampling)
        sampling.pop("custom_params", None)
        # Its prompt ends some models at once; a fixed length keeps the work the same.
        sampling["ignore_eos"] = True
        changed = replace(request, sampling=sampling, input_ids=None, text="", payload=as_wav(request.pcm))
        async for part in self._inner.generate(changed):
            yield part

    async def abort(self, rid: str) -> None:
        await self._inner.abort(rid)

    async def healthy(self) -> bool:
        return await self._inner.healthy()

    async def close(self) -> None:
        await self._inner.close()


def open_stock(folder: Path, flags: Mapping[str, Any], environment: Mapping[str, str]) -> StockTransport:
    """Start it in this process; blocks."""
    return StockTransport(open_inproc({"model_path": str(folder), **flags}, environment))
