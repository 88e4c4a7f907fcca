"""What one can do with the pages, in a real browser, with the scripted engine behind them."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.aio import connect
from streaming.app import running
from streaming.kept.transcripts import export
from streaming.settings import EngineSettings, JournalSettings, Settings
from streaming.wire.messages import AudioFormat, Start, Track
from tests.support.browser import Page, chromium, needs_browser
from tests.support.keys import ADMIN, SPEAK, locked
from tests.support.server import Running, listening, server
from tests.support.sound import s16, speech, wav
from tests.support.waiting import until

pytestmark = [pytest.mark.browser, needs_browser]

TEXT = "document.querySelector('#transcript').textContent"
# No person is there to choose a tab: what it plays is a tone that comes and goes, its picture an empty one.
SHARED = """
navigator.mediaDevices.getDisplayMedia = async () => {
  const context = new AudioContext();
  const tone = new OscillatorNode(context, {frequency: 300});
  const target = context.createMediaStreamDestination();
  tone.connect(target);
  tone.start();
  const picture = document.createElement('canvas');
  picture.getContext('2d');
  return new MediaStream([...target.stream.getTracks(), ...picture.captureStream(1).getTracks()]);
}
"""


@asynccontextmanager
async def browsing(folder: Path, **options: Any) -> AsyncIterator[tuple[Running, Callable[[], Any]]]:
    """A server, and what opens tabs of a browser whose microphone is as loud as speech for a while."""
    async with server(**options) as running, chromium(folder, microphone=loud(folder)) as tab:
        yield running, tab


def loud(folder: Path) -> Path:
    """A file for the microphone."""
    path = folder / "loud.wav"
    path.write_bytes(wav(s16(speech("." * 2 + "x" * 60))))
    return path


async def speak(page: Page, source: str = "microphone") -> None:
    """Start, and wait for committed words."""
    await page.click(f"input[value={source}]")
    await page.click("#go")
    await page.until("document.querySelector('.text')?.textContent")


async def stop(page: Page) -> None:
    await page.click("#go")
    await page.until("document.querySelector('#state').dataset.state === 'done'")


async def test_two_sources_are_two_people_who_can_be_renamed(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (running, tab):
        page = await tab()
        await page.open(running.http("/"))
        await page.run(SHARED)
        await speak(page, "both")
        await page.until(
            "new Set([...document.querySelectorAll('.speaker')].map(e => e.textContent)).size === 2"
        )
        assert await page.run("document.querySelectorAll('meter').length") == 2
        await page.until("[...document.querySelectorAll('meter')].every(m => m.value > -50)")
        await page.click(".speaker[data-speaker='1']")
        await page.type("Ada Lovelace")
        await page.press("Enter")
        await page.until(f"{TEXT}.includes('Ada Lovelace')")
        await stop(page)
        assert "Microphone" not in await page.run(TEXT)
        assert "Tab" in await page.run(TEXT)
        assert page.errors == []


async def test_done_is_said_when_the_last_words_are_there(tmp_path: Path) -> None:
    shown = "document.querySelector('.text').textContent"
    async with browsing(tmp_path) as (running, tab):
        page = await tab()
        await page.open(running.http("/"))
        await speak(page)
        # A tab behind others is given no frames to draw in.
        await page.run("window.requestAnimationFrame = () => 1")
        entry = running.services.sessions.newest()
        assert entry is not None
        before = await page.run(shown)
        await until(lambda: len(export(entry.log, "text", entry.id)) > len(before) + 20)
        await page.click("#go")
        # Looked at in the very step in which it is said.
        text = await page.run(
            "new Promise(resolve => new MutationObserver(() => {"
            f" if (document.querySelector('#state').dataset.state === 'done') resolve({shown}) }})"
            ".observe(document.querySelector('#state'), {attributes: true}))"
        )
        assert text in " ".join(export(entry.log, "text", entry.id).split())
        assert text.split()[-1] == export(entry.log, "text", entry.id).split()[-1]
        assert page.errors == []


async def test_a_file_that_is_dropped(tmp_path: Path) -> None:
    file = b64encode(loud(tmp_path).read_bytes()).decode()
    async with browsing(tmp_path) as (running, tab):
        page = await tab()
        await page.open(running.http("/"))
        await page.run(
            "const dropped = new DataTransfer();"
            f"dropped.items.add(new File([Uint8Array.from(atob('{file}'), c => c.charCodeAt(0))], 'a.wav'));"
            "document.body.dispatchEvent(new DragEvent('drop', {dataTransfer: dropped, cancelable: true}))"
        )
        await page.until("document.querySelector('#state').dataset.state === 'done'")
        assert (await page.text(".text")).startswith("two three four ")
        assert "Done: 0:31" in await page.text("#state")
        assert page.errors == []


async def test_searched_copied_and_saved(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (running, tab):
        page = await tab()
        await page.open(running.http("/"))
        await speak(page)
        await page.until(f"{TEXT}.includes('six')")
        await stop(page)
        said = await page.text(".text")
        await page.click("#search")
        await page.type("SIX")
        await page.until("document.querySelector('#found').textContent === '1 found'")
        await page.type("nowhere")
        await page.until("document.querySelector('.turn').hidden")
        await page.run("document.querySelector('#search').value = ''")
        await page.run("navigator.clipboard.writeText = async text => { window.copied = text }")
        await page.click("#copy")
        await page.until("window.copied")
        assert await page.run("copied") == said
        for format, begins in (("txt", said[:9]), ("srt", "1\n00:"), ("vtt", "WEBVTT"), ("json", "{")):
            await page.run(f"document.querySelector('#format').value = '{format}'")
            await page.click("#download")
            assert (await saved(tmp_path / f"transcript.{format}")).startswith(begins)
        assert page.errors == []


async def saved(file: Path) -> str:
    """What the browser wrote, once it is there."""
    async with asyncio.timeout(20):
        while not await asyncio.to_thread(file.is_file):  # noqa: ASYNC110 - the browser tells nobody
            await asyncio.sleep(0.05)
    return await asyncio.to_thread(file.read_text, "utf-8")


async def test_a_key_is_asked_for_and_kept_nowhere(tmp_path: Path) -> None:
    async with browsing(tmp_path, services=locked()) as (running, tab):
        page = await tab()
        await page.open(running.http("/"))
        await page.click("#go")
        for attempt in ("smk_wrong", SPEAK):
            await page.until("document.querySelector('#access').open")
            await page.type(attempt)
            await page.press("Enter")
        await page.until("document.querySelector('.text')?.textContent")
        await stop(page)
        assert await page.run("location.href") == running.http("/")
        kept = "[{...localStorage}, {...sessionStorage}, document.cookie, document.body.innerHTML]"
        assert "smk_" not in await page.run(f"JSON.stringify({kept})")
        sessions = await tab()
        await sessions.open(running.http("/sessions"))
        await sessions.until("document.querySelector('#access').open")
        await sessions.type(ADMIN)
        await sessions.press("Enter")
        # This server keeps no journal, which only who may list is told.
        await sessions.until("document.querySelector('#alert').textContent.includes('journal')")


async def test_a_token_comes_behind_the_address_and_is_taken_out_of_it(tmp_path: Path) -> None:
    services = locked()
    async with browsing(tmp_path, services=services) as (running, tab):
        caller = await services["auth"].caller(SPEAK)
        token = await services["auth"].mint(caller, next(iter(caller.scopes)), 60)
        page = await tab()
        await page.open(running.http(f"/#token={token}"))
        assert await page.run("location.href") == running.http("/")
        await speak(page)
        await stop(page)
        assert page.errors == []


async def test_the_keyboard_is_enough(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (running, tab):
        page = await tab()
        await page.open(running.http("/"))
        for _ in range(12):
            if await page.run("document.activeElement.id") == "go":
                break
            await page.press("Tab")
        await page.press("Enter")
        await page.until("document.querySelector('.text')?.textContent")
        await page.press(" ")
        await page.until("document.querySelector('#state').dataset.state === 'done'")


async def test_an_overlay_marks_speakers_and_is_the_same_after_a_reload(tmp_path: Path) -> None:
    start = Start(audio=AudioFormat(channels=2), tracks=(Track("Ann"), Track("Bob")))
    talk = np.stack([speech("xxx......xx..."), speech(".....xxx......")], axis=1).ravel()
    async with browsing(tmp_path) as (running, tab), connect(running.http(""), start) as stream:
        overlay = await tab()
        ready = stream.ready
        await overlay.open(
            running.http(
                f"/overlay?session={ready.session}&lines=4&cpl=30&clear=600#token={ready.read_token}"
            )
        )
        await stream.send(s16(talk))
        await stream.flush("all")
        reading = asyncio.create_task(drained(stream))
        lines = "JSON.stringify([...document.querySelectorAll('.line')].map(e => e.textContent))"
        await overlay.until(f"JSON.parse({lines}).length === 3")
        shown = json.loads(await overlay.run(lines))
        assert [line.split(":")[0] for line in shown] == [">> Ann", ">> Bob", ">> Ann"]
        assert await overlay.run("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
        assert not await overlay.run("document.documentElement.scrollHeight > innerHeight")
        await overlay.call("Page.reload")
        await overlay.until(f"JSON.parse({lines}).length === 3")
        assert json.loads(await overlay.run(lines)) == shown
        await stream.end()
        await reading
        assert overlay.errors == []


async def test_an_overlay_without_a_session_follows_the_newest(tmp_path: Path) -> None:
    async with browsing(tmp_path) as (running, tab):
        overlay = await tab()
        await overlay.open(running.http("/overlay?clear=600"))
        shown = "document.querySelector('#captions').textContent"
        for slots, words in (("xx......", "zero one"), (".....xx......", "five six")):
            async with connect(running.http("")) as stream:
                reading = asyncio.create_task(drained(stream))
                await stream.send(s16(speech(slots)))
                await stream.flush("all")
                await overlay.until(f"{shown} === '{words}'")
                await stream.end()
                await reading
        assert await overlay.run("document.querySelector('#problem').hidden")
        assert overlay.errors == []


async def drained(stream: Any) -> None:
    async for _ in stream:
        pass


CHECK = """
axe.run(document, {resultTypes: ['violations']}).then(({violations}) =>
  violations.map(({id, impact, nodes}) => `${impact} ${id}: ${nodes.map(n => n.html + n.failureSummary)}`))
"""


async def checked(page: Page, axe: str) -> list[str]:
    """What is wrong with a page in both themes, on a desk and on a telephone; nor is it too wide."""
    found: list[str] = []
    await page.run(axe)
    for theme in ("light", "dark"):
        await page.run(f"document.documentElement.dataset.theme = '{theme}'")
        for width in (1280, 390, 360):
            await page.size(width, 800)
            found += await page.run(CHECK)
            if await page.run("document.documentElement.scrollWidth > innerWidth"):
                found.append(f"{width} is too narrow for {await page.run('location.href')}")
    return found


async def test_accessible(tmp_path: Path, axe: str) -> None:
    """Each page in each state, with captions in it."""
    settings = Settings(
        engine=EngineSettings(kind="fake"), journal=JournalSettings(path=str(tmp_path / "journal"))
    )
    async with (
        running(settings) as services,
        listening(services) as server,
        chromium(tmp_path, microphone=loud(tmp_path)) as tab,
    ):
        page = await tab()
        await page.open(server.http("/"))
        found = await checked(page, axe)
        await page.run("document.querySelector('#options').open = true")
        await page.run(SHARED)
        await page.size(1280, 800)
        await speak(page, "both")
        await page.until("document.querySelectorAll('.turn').length > 1")
        found += await checked(page, axe)
        link = await overlay_of(page)
        for address in (link, server.http("/overlay"), link.partition("token=")[0] + "token=x"):
            overlay = await tab()
            await overlay.open(address)
            shown = "#problem:not([hidden])" if address.endswith("=x") else ".line"
            await overlay.until(f"document.querySelector('{shown}')")
            found += await checked(overlay, axe)
        await page.size(1280, 800)
        await stop(page)
        found += await checked(page, axe)
        await page.run("document.querySelector('#access').showModal()")
        found += await page.run(CHECK)
        sessions = await tab()
        await sessions.open(server.http("/sessions"))
        await sessions.until("document.querySelector('#list button')")
        found += await checked(sessions, axe)
        await sessions.size(1280, 800)
        await sessions.click("#list button")
        await sessions.until("document.querySelector('#transcript .text')")
        found += await checked(sessions, axe)
        assert found == [], "\n".join(found)


async def overlay_of(page: Page) -> str:
    """The overlay's address of the session that a page speaks in."""
    link: str = await page.run(
        "new Promise(resolve => { navigator.clipboard.writeText = async text => resolve(text);"
        " document.querySelector('#overlay').click() })"
    )
    return link
