"""A working day in virtual time: `python -m tests.soak --hours 8`.

The server's real session code over the scripted engine and encoder and a real journal. Some sessions last the
whole time, around them others come and go: they end, are cut and resumed, or are cut and never seen again.
Prints the memory of the process as the hours pass, its slope, and what one long session takes. Exits with 1
where a session takes more than 8 MiB, memory grows by more than its transcripts, or a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from clients.bench.soak import Look, session_mib, slope
from engine.contract import SAMPLE_RATE
from engine.fake import FakeEncoder, FakeScript, say
from streaming.sessions.admission import memory_used
from tests.support.channel import MemoryChannel
from tests.support.lives import Lives, living
from tests.support.sound import s16

MIB = 1 << 20
LIMIT_MIB = 8.0
"""A session may take so much, however long it is."""
FLAT_MIB_PER_H = 1.0
"""Growth for each long session: what it said in an hour is kept, packed, and little more."""
LOOK_S = 600.0
PACKET_S = 1.0
START = {"type": "start", "audio": {"encoding": "pcm_s16le", "sample_rate": SAMPLE_RATE}}


class Forgetful(MemoryChannel):
    """A client that keeps nothing but the newest message of each type, and checks on the way that no
    committed word changes."""

    def __init__(self) -> None:
        super().__init__()
        self.newest: dict[str, Any] = {}
        self.words = 0
        self.changed = 0
        self._tail: dict[int, str] = {}

    async def send(self, data: str | bytes) -> None:
        await super().send(data)
        message = self.sent.pop()
        self.newest[message["type"]] = message
        if message["type"] == "segment":
            for index, word in enumerate(message["words"], message["first_word"]):
                self.changed += self._tail.setdefault(index, word["text"]) != word["text"]
                self.words = max(self.words, index + 1)
            for old in [i for i in self._tail if i < self.words - 500]:
                del self._tail[old]


@dataclass
class Found:
    """What the run has seen so far."""

    looks: list[Look] = field(default_factory=list)
    idle_mib: float = 0.0
    ended: int = 0
    resumed: int = 0
    vanished: int = 0
    audio_s: float = 0.0
    words: int = 0
    faults: list[str] = field(default_factory=list)


def meeting(rng: random.Random, seconds: float = 300.0) -> list[bytes]:
    """Packets of a meeting of four voices: turns with words, short pauses, now and then a long one."""
    parts, size = [], 0
    while size < seconds * SAMPLE_RATE:
        turn = say(round(rng.uniform(0.5, 25.0) * SAMPLE_RATE), rng.randrange(4))
        pause = np.zeros(round(rng.choice([0.3, 0.7, 1.5, 20.0]) * SAMPLE_RATE), np.float32)
        parts += [turn, pause]
        size += len(turn) + len(pause)
    data, step = s16(np.concatenate(parts)), round(2 * PACKET_S * SAMPLE_RATE)
    return [data[at : at + step] for at in range(0, len(data) - step + 1, step)]


def round_and_round(packets: Sequence[bytes], rng: random.Random) -> Iterator[bytes]:
    at = rng.randrange(len(packets))
    while True:
        yield packets[at % len(packets)]
        at += 1


async def speak(
    world: Lives, packets: Sequence[bytes], seconds: float, rng: random.Random, found: Found, *, breaks: float
) -> None:
    """One session of so much audio; once in `breaks` seconds, on average, its connection is cut. Half of the
    cut clients of short sessions never come back."""
    channel, sent = Forgetful(), 0.0
    world.connect(channel)
    channel.say(START)
    ready: dict[str, Any] = {}
    for packet in round_and_round(packets, rng):
        if sent >= seconds:
            break
        channel.say(packet)
        await asyncio.sleep(PACKET_S)
        sent += PACKET_S
        found.audio_s += PACKET_S
        ready = channel.newest.get("ready") or ready
        if rng.random() < PACKET_S / breaks:
            channel.cut()
            if seconds < 3600 and rng.random() < 0.5:
                found.vanished += 1
                return
            await asyncio.sleep(rng.uniform(0.1, 30.0))
            channel = await come_back(world, channel, ready)
            found.resumed += 1
    channel.say({"type": "end"})
    await over(channel)
    check(channel, found)


async def come_back(world: Lives, old: Forgetful, ready: dict[str, Any]) -> Forgetful:
    """Resume; what the server had not read is not sent again: the audio is a loop, and gaps are no matter."""
    channel = Forgetful()
    channel.words, channel.changed, channel._tail = old.words, old.changed, old._tail
    newest = max(message["seq"] for message in old.newest.values())
    world.connect(channel)
    channel.say(
        {"type": "resume", "session": ready["session"], "token": ready["token"], "last_seq": newest}
        | {"next_sample": 0}
    )
    while "ready" not in channel.newest:  # noqa: ASYNC110 - virtual time costs nothing
        await asyncio.sleep(0.1)
    return channel


async def over(channel: Forgetful) -> None:
    while channel.closed is None:  # noqa: ASYNC110 - virtual time costs nothing
        await asyncio.sleep(0.1)


def check(channel: Forgetful, found: Found) -> None:
    found.ended += 1
    found.words += channel.words
    if channel.changed:
        found.faults.append(f"{channel.changed} committed words changed")
    receipt = channel.newest.get("end", {}).get("receipt")
    if receipt is None or receipt["words"] != channel.words:
        found.faults.append(f"{channel.words} words came, but the receipt is {receipt and receipt['words']}")


async def seat(
    world: Lives, packets: Sequence[bytes], until: float, rng: random.Random, found: Found
) -> None:
    """Sessions one after the other."""
    loop = asyncio.get_running_loop()
    while (left := until - loop.time()) > 60:
        await speak(world, packets, min(rng.uniform(5, 1800), left), rng, found, breaks=600)
        await asyncio.sleep(rng.uniform(0, 60))


async def watch(world: Lives, found: Found, begin: float) -> None:
    clock = perf_counter()
    while True:
        loop, active = asyncio.get_running_loop(), world.services.sessions.active
        found.looks.append(Look(loop.time() - begin, memory_used() / MIB, active))
        print(
            f"{found.looks[-1].at_s / 3600:5.2f} h, {active} sessions, RSS {found.looks[-1].rss_mib:.1f} MiB,"
            f" {perf_counter() - clock:.0f} s passed",
            flush=True,
        )
        await asyncio.sleep(LOOK_S)


def soak(hours: float, long: int, seats: int, seed: int) -> Found:
    """Run it; `long` sessions over all of the hours, `seats` with shorter ones."""
    found, rng = Found(), random.Random(seed)
    packets = meeting(rng)

    async def body(world: Lives) -> None:
        loop = asyncio.get_running_loop()
        await speak(world, packets, 300, rng, Found(), breaks=1e9)  # what everybody shares is there then

        found.idle_mib, begin = memory_used() / MIB, loop.time()
        until = begin + 3600 * hours
        watching = asyncio.create_task(watch(world, found, begin))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(long):
                mine = random.Random(rng.random())
                tasks.create_task(speak(world, packets, 3600 * hours, mine, found, breaks=1200))
            for _ in range(seats):
                tasks.create_task(seat(world, packets, until, random.Random(rng.random()), found))
        watching.cancel()

    living(body, FakeScript(delay_s=0.05), encoder=FakeEncoder(), max_session_s=2 * 3600 * hours)
    return found


def report(found: Found, long: int) -> bool:
    """Print it; whether all is well."""
    settled = [look for look in found.looks if look.at_s >= found.looks[-1].at_s / 4]
    grown = slope(settled)
    session = session_mib(found.looks, found.idle_mib)
    print(
        f"{found.ended} sessions ended, {found.resumed} resumed, {found.vanished} never came back,"
        f" {found.audio_s / 3600:.1f} h of audio, {found.words} words\n"
        f"RSS {grown:+.2f} MiB/h after the first quarter, {long} long sessions; at the highest"
        f" {session:.2f} MiB a session above idle ({found.idle_mib:.1f} MiB)"
    )
    if session > LIMIT_MIB:
        found.faults.append(f"a session takes {session:.1f} MiB, over {LIMIT_MIB:g}")
    if grown > FLAT_MIB_PER_H * long:
        found.faults.append(f"memory grows by {grown:.1f} MiB an hour")
    for fault in found.faults:
        print(fault)
    return not found.faults


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--long", type=int, default=4, help="sessions over all of the hours")
    parser.add_argument("--seats", type=int, default=4, help="with shorter sessions one after the other")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    found = soak(options.hours, options.long, options.seats, options.seed)
    return 0 if report(found, options.long) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
