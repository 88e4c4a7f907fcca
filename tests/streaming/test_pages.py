"""The pages as they are served: all there is, nothing from elsewhere, and how they are kept by browsers."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from streaming.access.sites import Sites
from streaming.web.pages import PAGES
from streaming.web.server import build
from tests.support.keys import locked
from tests.support.server import server

WEB = Path(__file__).resolve().parents[2] / "clients" / "web"


class _Page(HTMLParser):
    """Addresses that a page asks for, and what a strict policy does not let it have."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self._in = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        for name, value in attrs:
            if name in ("src", "href"):
                self.addresses.append(value or "")
            if name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in ("script", "style") and data.strip():
            self.inline.append(f"{self._in}: {data}")


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with server(services=locked()) as running:
        transport = httpx.ASGITransport(build(running.services))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{running.address}") as client:
            yield client


async def test_every_page_is_there_with_all_that_it_asks_for(http: httpx.AsyncClient) -> None:
    asked = set()
    for path in PAGES:
        answer = await http.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        page = _Page(answer.text)
        assert page.inline == []
        asked |= set(page.addresses)
    modules = [f"/web/{file.name}" for file in WEB.glob("*.js")]
    for module in modules:
        text = (await http.get(module)).text
        asked |= {f"/web/{name}" for name in re.findall(r"""(?:from |URL\()"\./([\w.]+)\"""", text)}
    # Nothing from elsewhere, and no file that no page wants.
    files = {f"/web/{file.name}" for file in WEB.iterdir() if file.suffix != ".html"}
    assert asked == files | {"/", "/sessions"}
    for address in asked:
        answer = await http.get(address)
        assert answer.status_code == 200, address
        if address.endswith(".js"):
            assert answer.headers["content-type"].startswith("text/javascript")


async def test_pages_run_nothing_but_our_own_files(http: httpx.AsyncClient) -> None:
    for path in (*PAGES, "/web/page.js"):
        headers = (await http.get(path)).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "microphone=(self)" in headers["permissions-policy"]
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"


async def test_what_a_browser_has_is_not_sent_again(http: httpx.AsyncClient) -> None:
    first = await http.get("/web/page.js")
    assert first.headers["cache-control"] == "no-cache"
    again = await http.get("/web/page.js", headers={"if-none-match": f'"other", {first.headers["etag"]}'})
    assert (again.status_code, again.content) == (304, b"")
    changed = await http.get("/web/page.js", headers={"if-none-match": '"other"'})
    assert changed.status_code == 200


@pytest.mark.parametrize(
    "path", ["/web/nothing.js", "/web/%2e%2e", "/web/%2e%2e%2faio.py", "/web/index.html/x"]
)
async def test_nothing_else_is_there(http: httpx.AsyncClient, path: str) -> None:
    assert (await http.get(path)).status_code in (401, 404)


async def test_a_listed_site_may_use_the_modules() -> None:
    site = "https://meet.example"
    async with server(services={"sites": Sites(origins=frozenset({site}))}) as running:
        transport = httpx.ASGITransport(build(running.services))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{running.address}") as http:
            answer = await http.get("/web/captions.js", headers={"origin": site})
            assert answer.headers["access-control-allow-origin"] == site
            assert answer.headers["cross-origin-resource-policy"] == "cross-origin"
            refused = await http.get("/web/captions.js", headers={"origin": "https://evil.example"})
            assert refused.status_code == 403
