"""A prepared lake, the app that serves it, and a browser to look at it with."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.streaming.lake import Lake
from tests.api.desk import TOKEN, Desk
from tests.console.story import prepare

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WATCH = """
window.__csp = [];
document.addEventListener("securitypolicyviolation", (e) => {
  window.__csp.push(e.violatedDirective + " " + e.blockedURI);
});
"""


@pytest.fixture(scope="session")
def fresh_lake(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Lake]:
    """Lakes with all tables and no rows."""

    def make() -> Lake:
        home = tmp_path_factory.mktemp("console")
        shutil.copytree(empty_tables, home / "lake")
        return Lake(spark, load(home=home, api={"token": TOKEN}))

    return make


@pytest.fixture(scope="module")
def desk(fresh_lake: Callable[[], Lake]) -> Desk:
    """The shift of `tests.console.story`, anew for each module: its tests change alerts."""
    return prepare(fresh_lake())


@pytest.fixture(scope="module")
def site(desk: Desk) -> Iterator[str]:
    """Where the console is served."""
    yield from serve(desk.app)


def serve(app: FastAPI) -> Iterator[str]:
    """Serve an app on a free port until the caller is done."""
    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", access_log=False)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(10)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser of this machine; without one the tests say how to get it, and are skipped."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """A page, and what it did that it should not have."""

    def __init__(self, page: Any, site: str) -> None:
        self.page = page
        self.site = site
        self.dialogs: list[str] = []
        self.outside: list[str] = []
        self.errors: list[str] = []
        page.on("dialog", self._dialog)
        page.on("request", self._request)
        page.on("pageerror", lambda error: self.errors.append(str(error)))

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.site, "data:", "about:", "blob:")):
            self.outside.append(request.url)

    def go(self, path: str, rest: bool = True) -> Any:
        """Open a path, and wait until it rests, or only until it is loaded."""
        self.page.goto(self.site + path)
        self.page.wait_for_load_state("networkidle" if rest else "load")
        return self.page

    def sign_in(self, token: str = TOKEN) -> Watched:
        """Sign in with a key."""
        self.go("/login", rest=False)
        self.page.fill("#key", token)
        self.page.press("#key", "Enter")
        self.page.wait_for_url(f"{self.site}/")
        return self

    def violations(self) -> list[str]:
        """What the policy of the pages stopped on the page that is open."""
        stopped: list[str] = self.page.evaluate("window.__csp")
        return stopped


@pytest.fixture
def browse(chromium: Any, site: str) -> Iterator[Callable[..., Watched]]:
    """Opens a page in a browser of its own, signed in or not, in the theme that is asked for."""
    contexts = []

    def open_page(theme: str = "light", signed_in: bool = True, where: str = site) -> Watched:
        context = chromium.new_context(viewport={"width": 1440, "height": 900})
        context.set_default_timeout(20_000)
        context.add_init_script(WATCH)
        context.add_cookies([{"name": "headgate_theme", "value": theme, "url": where}])
        contexts.append(context)
        watched = Watched(context.new_page(), where)
        return watched.sign_in() if signed_in else watched

    yield open_page
    for context in contexts:
        context.close()
