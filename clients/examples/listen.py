"""Read along with somebody's session: `python listen.py URL SESSION READ_TOKEN`."""

import asyncio
import sys

from seamscribe_client import Captions, read


async def main(url: str, session: str, token: str) -> None:
    captions = Captions()
    async for message in read(url, session, token=token):
        captions.receive(message)
    for turn in captions.turns(words=10_000):
        print(f"{turn.name or 'Somebody'}: {turn.text}")


asyncio.run(main(*sys.argv[1:4]))
