"""`seamscribe captions`: what a session commits, sent on to where people see captions already.

Only committed words are sent, each once. What cannot be sent in time is dropped, oldest first, and counted:
captions that are late are worse than none.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from streaming.wire.lines import joined
from streaming.wire.messages import Segment, ServerMessage
from streaming.wire.render import speaker_name
from streaming.wire.telling import Telling, track_of

from .arguments import address
from .dialing import DEFAULT_URL, KEY, ClientError
from .reading import read
from .senders import NotSent, Obs, Sender, Zoom

TOKEN = "SEAMSCRIBE_READ_TOKEN"
PASSWORD = "OBS_PASSWORD"
BATCH_S = 0.3
"""Words that are committed within it go together."""
WAITING = 200
"""Characters that may wait: some ten seconds of speech."""


class Feed:
    """Committed words as text that was not taken yet. Pure."""

    def __init__(self) -> None:
        self._telling = Telling()
        self._speaker: tuple[int, str | None] | None = None
        self._text = ""
        self.dropped = 0
        """Characters that waited too long."""

    def receive(self, message: ServerMessage) -> bool:
        """Whether there is news in it."""
        if not isinstance(message, Segment):
            return False
        words = self._telling.tell(message)
        if not words:
            return False
        text = joined(words)
        speaker = track_of(message), speaker_name(message)
        if speaker != self._speaker:
            text = f">> {speaker[1]}: {text}" if speaker[1] else f">> {text}"
            self._speaker = speaker
        spaced = self._text and (words[0].space is not False or text.startswith(">> "))
        self._text += f" {text}" if spaced else text
        if (over := len(self._text) - WAITING) > 0:
            at = self._text.find(" ", over)
            cut = at + 1 if at >= 0 else over
            self.dropped += cut
            self._text = self._text[cut:]
        return True

    def take(self) -> str:
        """All of it."""
        text, self._text = self._text, ""
        return text.strip()


@dataclass(frozen=True, slots=True)
class Place:
    """Which session, where, and by what right."""

    url: str
    session: str
    token: str | None
    key: str | None


async def relay(place: Place, sender: Sender) -> tuple[int, int]:
    """Until the session has ended: captions that were sent, and lost. Raises `ClientError`."""
    feed, news, over = Feed(), asyncio.Event(), asyncio.Event()
    sent = lost = 0
    said = ""

    async def pump() -> None:
        nonlocal sent, lost, said
        while not (over.is_set() and not news.is_set()):
            await news.wait()
            if not over.is_set():
                await asyncio.sleep(BATCH_S)
            news.clear()
            if not (text := feed.take()):
                continue
            try:
                await sender.send(text)
                sent += 1
            except NotSent as error:
                lost += 1
                if str(error) != said:
                    said = str(error)
                    print(f"not shown: {said}", file=sys.stderr)

    pumping = asyncio.create_task(pump())
    try:
        async for message in read(place.url, place.session, token=place.token, key=place.key):
            if pumping.done():
                break  # it failed, as is raised below: nothing is shown any more
            if feed.receive(message):
                news.set()
        over.set()
        news.set()
        await pumping
    finally:
        pumping.cancel()
        await asyncio.wait([pumping])
        await sender.close()
    return sent, lost


def main(argv: Sequence[str]) -> int:
    """0: all captions were sent; 1: some were lost; 3: no such session, or no server."""
    parser = argparse.ArgumentParser(
        prog="seamscribe captions",
        description="Send a session's captions to a Zoom meeting, or into the stream that OBS sends.",
        epilog=f"Secrets are read from the environment: {TOKEN} (the session's read token) or {KEY} (a key"
        f" with the scope read), and {PASSWORD} (of OBS's websocket server).",
    )
    parser.add_argument("session", help="the session's id: GET /v1/sessions lists them")
    parser.add_argument("--to", nargs=2, metavar=("KIND", "URL"), required=True, help="zoom URL, or obs URL")
    parser.add_argument(
        "--url", type=address, default=DEFAULT_URL, help="of the Seamscribe server (%(default)s)"
    )
    parser.add_argument("--lang", default="en-US", help="what Zoom is told (%(default)s)")
    arguments = parser.parse_args(argv)
    kind, url = arguments.to
    try:
        if kind not in ("zoom", "obs"):
            raise ValueError(f"--to {kind}: use zoom or obs")
        obs = kind == "obs"
        sender: Sender = Obs(url, os.environ.get(PASSWORD, "")) if obs else Zoom(url, arguments.lang)
    except ValueError as error:
        parser.error(str(error))
    token = os.environ.get(TOKEN) or None
    place = Place(arguments.url, arguments.session, token, None if token else os.environ.get(KEY) or None)
    try:
        sent, lost = asyncio.run(relay(place, sender))
    except ClientError as error:
        print(f"seamscribe captions: {error}", file=sys.stderr)
        return 3
    print(f"{sent} captions sent, {lost} lost", file=sys.stderr)
    return 1 if lost else 0
