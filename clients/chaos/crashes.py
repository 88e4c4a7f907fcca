"""Faults of the server itself, each with a server of its own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from clients.captions import Captions

from .machine import Machine, machine, metrics
from .talk import Trial, converse, follow

BACK_S = 20.0
"""So soon after there is room again the journal is written again."""


async def kill(drawn: random.Random, trial: Trial) -> None:
    """SIGKILL in the middle of up to four sessions, once or twice, and a new process on its journal."""

    async def strike(server: Machine) -> None:
        await asyncio.sleep(drawn.uniform(0.3, 3.0))
        await server.kill()
        await server.start()

    await _struck(drawn, trial, strike, drawn.randint(1, 2))


async def freeze(drawn: random.Random, trial: Trial) -> None:
    """The process stands still for seconds, and its clock jumps."""

    async def strike(server: Machine) -> None:
        await asyncio.sleep(drawn.uniform(0.3, 2.0))
        await server.freeze(drawn.uniform(0.5, 4.0))

    await _struck(drawn, trial, strike, drawn.randint(1, 3))


async def full_disk(drawn: random.Random, trial: Trial) -> None:
    """Nothing can be written for a while: sessions go on, the journal says so, and afterwards has it all."""

    async def strike(server: Machine) -> None:
        await asyncio.sleep(drawn.uniform(0.3, 1.5))
        before = await _errors(server)
        server.full(full=True)
        try:
            await asyncio.sleep(drawn.uniform(1.5, 3.0))
        finally:
            server.full(full=False)
        if await _errors(server) == before:
            trial.faults.append("the disk was full, and no metric said so")

    await _struck(drawn, trial, strike, 1, reread=True)


async def _struck(
    drawn: random.Random,
    trial: Trial,
    strike: Callable[[Machine], Awaitable[None]],
    times: int,
    *,
    reread: bool = False,
) -> None:
    """Speak while the faults come; `reread`: afterwards a new process must show the same sessions."""
    async with machine(*trial.engine) as server, asyncio.TaskGroup() as tasks:
        scenes = [trial.draw(drawn, 12.0, 25.0) for _ in range(drawn.randint(1, 4))]
        speaking = [
            tasks.create_task(
                converse(
                    server.url, scene, random.Random(drawn.random()), trial, talk_s=drawn.uniform(5.0, 9.0)
                )
            )
            for scene in scenes
        ]
        for _ in range(times):
            await strike(server)
            trial.struck += 1
        spoken = [await task for task in speaking]
        if not reread:
            return
        await _written(server, trial)
        await server.kill()
        await server.start()
        for scene, captions in zip(scenes, spoken, strict=True):
            shown = Captions()
            assert captions.ready is not None
            await follow(server.url, captions.ready, shown)
            trial.judge(scene, shown)


async def _written(server: Machine, trial: Trial) -> None:
    """Wait until the journal is written again."""
    for _ in range(round(BACK_S / 0.5)):
        if (await metrics(server.url)).get("seamscribe_journal_ok") == 1:
            await asyncio.sleep(0.5)  # what ended last is on its way
            return
        await asyncio.sleep(0.5)
    trial.faults.append(f"the journal is not written {BACK_S:.0f} s after there was room again")


async def _errors(server: Machine) -> float:
    values = await metrics(server.url)
    return sum(value for name, value in values.items() if name.startswith("seamscribe_journal_errors_total"))
