"""The pages in a real browser, real speech into its microphone, the real engine behind it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import speaking
from tests.support.browser import Page, needs_browser
from tests.support.outage import failing
from tests.support.spoken import SAID, SECONDS, words

pytestmark = [pytest.mark.browser, pytest.mark.real, needs_browser]

ENDS = "belief"
"""The last word of the clip that is there whole."""
TEXT = "[...document.querySelectorAll('#transcript .text')].map(e => e.textContent).join(' ')"


async def heard(page: Page) -> list[str]:
    return words(await page.run(TEXT))


async def listen(page: Page) -> None:
    """Press Start and wait until the microphone's last word was committed, then press Stop."""
    await page.click("#go")
    await page.until(f"{TEXT}.toLowerCase().includes('{ENDS}')", 4 * SECONDS)
    await page.click("#go")
    await page.until("document.querySelector('#state').dataset.state === 'done'")


async def test_captions_from_the_microphone(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (server, tab):
        page = await tab()
        await page.open(server.http("/"))
        await page.click("#go")
        # What may still change is shown, told apart, and kept from screen readers.
        await page.until("document.querySelector('.partial')?.textContent")
        assert await page.run("document.querySelector('.partial').ariaHidden") == "true"
        await page.until("!document.querySelector('#delay').hidden")
        link = await page.run(
            "new Promise(resolve => { navigator.clipboard.writeText = async text => resolve(text);"
            " document.querySelector('#overlay').click() })"
        )
        await page.until(f"{TEXT}.toLowerCase().includes('{ENDS}')", 4 * SECONDS)
        overlay = await tab()
        await overlay.open(link)
        # One that comes late has the last lines at once; it shows committed words and nothing else.
        await overlay.until("document.querySelectorAll('.line').length")
        await page.click("#go")
        await page.until("document.querySelector('#state').dataset.state === 'done'")
        assert (await heard(page))[: len(SAID)] == SAID
        assert "nothing missing" in await page.text("#state")
        assert words(await page.text("#announcer"))
        sessions = await tab()
        await sessions.open(server.http("/sessions"))
        await sessions.until("document.querySelector('#list button')")
        await sessions.click("#list button")
        await sessions.until("document.querySelector('#transcript .text')")
        assert await heard(sessions) == await heard(page)
        assert page.errors + overlay.errors + sessions.errors == []


async def test_nothing_is_lost_with_the_network(tmp_path: Path) -> None:
    """Five seconds in the middle of speech in which nobody gets through."""
    async with speaking(tmp_path) as (server, tab), failing(server.address) as line:
        page = await tab()
        await page.open(f"{line.url}/")
        await page.click("#go")
        await page.until(f"{TEXT}.includes('best')")
        await line.fail()
        await page.until("document.querySelector('#state').dataset.state === 'waiting'")
        before = await heard(page)
        await asyncio.sleep(5)
        assert await heard(page) == before
        line.heal()
        await page.until(f"{TEXT}.toLowerCase().includes('{ENDS}')", 4 * SECONDS)
        await page.click("#go")
        await page.until("document.querySelector('#state').dataset.state === 'done'")
        assert (await heard(page))[: len(SAID)] == SAID
        assert "nothing missing" in await page.text("#state")
        id = await page.run("fetch('/v1/sessions').then(a => a.json()).then(a => a.sessions[0].session)")
        entry = server.services.sessions.find(id)
        receipt = entry.log.receipt if entry is not None else None
        assert receipt is not None
        assert receipt.gap_samples == 0
        assert receipt.samples > SECONDS * 16_000


RECORD = """
(async () => {
  const stream = await navigator.mediaDevices.getUserMedia({audio: true});
  const recorder = new MediaRecorder(stream, {mimeType: 'audio/webm;codecs=opus'});
  const socket = new WebSocket('ws://' + location.host + '/v1/stream', ['seamscribe.v1.json']);
  const messages = window.messages = [];
  window.recorder = recorder;
  let sending = Promise.resolve();
  recorder.ondataavailable = ({data}) => {
    sending = sending.then(async () => socket.send(await data.arrayBuffer()));
  };
  recorder.onstop = () => sending.then(() => socket.send(JSON.stringify({type: 'end'})));
  socket.onmessage = ({data}) => {
    const message = JSON.parse(data);
    messages.push(message);
    if (message.type === 'ready') recorder.start(250);
  };
  socket.onclose = ({code}) => { window.endCode = code; };
  socket.onopen = () => socket.send(JSON.stringify({type: 'start', audio: {encoding: 'container'}}));
})()
"""
SEGMENTS = (
    "Object.values(Object.fromEntries(messages.filter(m => m.type === 'segment').map(m => [m.id, m.text])))"
)


async def test_what_a_recorder_of_the_browser_writes_is_understood_live(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (server, tab):
        page = await tab()
        await page.open(server.http("/"))
        await page.run(RECORD)
        await page.until(
            f"window.messages && {SEGMENTS}.join(' ').toLowerCase().includes('{ENDS}')", 4 * SECONDS
        )
        assert await page.run("recorder.state") == "recording"
        await page.run("recorder.stop()")
        await page.until("window.endCode")
        assert await page.run("endCode") == 1000
        said = words(" ".join(json.loads(await page.run(f"JSON.stringify({SEGMENTS})"))))
        assert said[: len(SAID)] == SAID
        assert urlsplit(server.http("/")).port


async def test_a_file_that_is_chosen(tmp_path: Path) -> None:
    async with speaking(tmp_path) as (server, tab):
        page = await tab()
        await page.open(server.http("/"))
        await page.click("input[value=file]")
        root = await page.call("DOM.getDocument")
        field = await page.call("DOM.querySelector", nodeId=root["root"]["nodeId"], selector="#file")
        await page.call(
            "DOM.setFileInputFiles", nodeId=field["nodeId"], files=[str(tmp_path / "microphone.wav")]
        )
        await page.click("#go")
        await page.until("document.querySelector('#state').dataset.state === 'done'", 4 * SECONDS)
        assert (await heard(page))[: len(SAID)] == SAID
        # The browser's decoder leaves a file its length.
        assert "Done: 0:14" in await page.text("#state")
        assert page.errors == []
