"""Headless Chromium, driven over its own debugging protocol: no other program, no other library."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = pytest.mark.skipif(PROGRAM is None, reason="no Chromium: apt-get install chromium")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--mute-audio",
    "--remote-debugging-port=0",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)
_STEP_S = 30.0


class Page:
    """One tab. `errors` holds what its console complained of and every exception, oldest first."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []

    async def listen(self) -> None:
        """Take what the browser says, until it closes."""
        async for text in self._socket:
            message = json.loads(text)
            if "id" in message:
                answer = self._answers.pop(message["id"])
                if not answer.done():  # who asked may have gone
                    answer.set_result(message)
            elif message["method"] == "Runtime.exceptionThrown":
                details = message["params"]["exceptionDetails"]
                self.errors.append(details.get("exception", {}).get("description", details["text"]))
            elif message["method"] == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                entry = message["params"]["entry"]
                self.errors.append(f"{entry['text']} {entry.get('url', '')}")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the debugging protocol and its result."""
        id = next(self._ids)
        answer = self._answers[id] = asyncio.get_running_loop().create_future()
        await self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        async with asyncio.timeout(_STEP_S):
            message = await answer
        assert "error" not in message, f"{method}: {message['error']}"
        result: dict[str, Any] = message["result"]
        return result

    async def open(self, url: str) -> None:
        """Go there, and wait until the page and its modules have run."""
        await self.call("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href.startsWith('http')")

    async def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited, exceptions are raised here."""
        result = await self.call(
            "Runtime.evaluate",
            expression=expression,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def until(self, expression: str, seconds: float = _STEP_S) -> None:
        """Wait until a JavaScript expression holds."""
        try:
            async with asyncio.timeout(seconds):
                while not await self.run(f"!!({expression})"):  # noqa: ASYNC110 - the page tells nobody
                    await asyncio.sleep(0.05)
        except TimeoutError:
            shown = await self.run("document.body.innerText")
            raise AssertionError(f"never: {expression}\n{self.errors}\n{shown}") from None

    async def text(self, selector: str) -> str:
        return str(await self.run(f"document.querySelector({selector!r}).textContent"))

    async def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        await self.call("Page.bringToFront")
        box = await self.run(
            f"(() => {{const e = document.querySelector({selector!r});"
            " e.scrollIntoView({block: 'nearest'}); const {x, y, width, height} = e.getBoundingClientRect();"
            " return {x: x + width / 2, y: y + height / 2}})()"
        )
        for type in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=type, button="left", clickCount=1, **box)

    async def type(self, text: str) -> None:
        """Into whatever has the focus."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str) -> None:
        code = {"Enter": 13, "Escape": 27, "Tab": 9, " ": 32}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            extra = {"text": text} if text and kind == "keyDown" else {}
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **extra)

    async def size(self, width: int, height: int, *, mobile: bool = False) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=mobile,
        )


@asynccontextmanager
async def chromium(
    folder: Path, *, microphone: Path | None = None, flags: Sequence[str] = ()
) -> AsyncIterator[Callable[[], Any]]:
    """A browser with a new profile in `folder`, whose microphone hears the WAV file once; yields what opens a
    tab."""
    assert PROGRAM is not None
    profile = folder / "profile"
    heard = (f"--use-file-for-fake-audio-capture={microphone}%noloop",) if microphone else ()
    process = await asyncio.create_subprocess_exec(
        PROGRAM,
        *_FLAGS,
        *heard,
        *flags,
        f"--user-data-dir={profile}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        address = await _address(profile / "DevToolsActivePort", process)
        async with _tabs(address, folder) as tab:
            yield tab
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(_STEP_S):
            await process.wait()


async def _address(file: Path, process: asyncio.subprocess.Process) -> str:
    async with asyncio.timeout(_STEP_S):
        while len(lines := _lines(file)) != 2:
            assert process.returncode is None, f"Chromium ended with {process.returncode}"
            await asyncio.sleep(0.05)
    port, path = lines
    return f"ws://127.0.0.1:{port}{path}"


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.is_file() else []


@asynccontextmanager
async def _tabs(address: str, folder: Path) -> AsyncIterator[Callable[[], Any]]:
    listeners: list[asyncio.Task[None]] = []
    sockets: list[ClientConnection] = []

    async def attach(url: str) -> Page:
        socket = await connect(url, max_size=None, proxy=None, ping_interval=None)
        sockets.append(socket)
        page = Page(socket)
        listeners.append(asyncio.create_task(page.listen()))
        return page

    browser = await attach(address)

    async def tab() -> Page:
        made = await browser.call("Target.createTarget", url="about:blank")
        page = await attach(f"{address.partition('/devtools')[0]}/devtools/page/{made['targetId']}")
        for domain in ("Page", "Runtime", "Log"):
            await page.call(f"{domain}.enable")
        return page

    await browser.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    try:
        yield tab
    finally:
        for socket in sockets:
            await socket.close()
        await asyncio.gather(*listeners, return_exceptions=True)
