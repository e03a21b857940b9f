"""Pictures of every page in both themes, over the prepared lake: `make screenshots`.

With a folder as argument they go there, else to docs/console; names after it choose pages.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import headgate.packages  # noqa: F401  makes tables, jobs and commands known
import tests.console.today  # noqa: F401  before the story is read
from api.app import create_app
from infra.config.settings import Settings, load
from infra.kafka.client import free_port
from infra.spark.session import session
from infra.streaming.lake import Lake
from tests.api.desk import TOKEN
from tests.console.conftest import FLAGS, Watched, serve
from tests.console.furnished import furnish, tell_jobs
from tests.console.places import places
from tests.console.story import prepare

SIZE = {"width": 1360, "height": 850}
LOGIN = "login"
STORY = "demo-story"
"""The first page of `headgate demo` when its story is through: it takes a run of its own."""
OWN = (LOGIN, STORY)
"""What is no page of the prepared lake."""
SPARK = {
    "search-spark": "/search?sql=SELECT+source,+round(avg(severity_id),+2)+AS+severity,"
    "+count(*)+AS+events%0AFROM+silver.events+GROUP+BY+source+ORDER+BY+events+DESC"
}
"""What Spark alone answers: not among the places, whose tests have a Spark of their own."""
OIDC = {"issuer": "https://id.example.com", "client_id": "headgate", "label": "Example ID",
        "roles": {"security": "analyst"}}  # fmt: skip


def main(folder: Path, chosen: Sequence[str] = ()) -> int:
    """Write the pictures, of all pages or of those that are named."""
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    if program is None:
        print("no chromium on this machine: apt-get install chromium", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    if not chosen or STORY in chosen:
        with tempfile.TemporaryDirectory() as home, sync_playwright() as running:
            browser = running.chromium.launch(executable_path=program, args=FLAGS)
            _take_story(browser, _told_by_demo(Path(home)), folder)
            browser.close()
    if list(chosen) == [STORY]:
        return 0
    with tempfile.TemporaryDirectory() as home:
        spark = session(load(home=Path(home)), "screenshots")
        (own := Path(home) / "rules").mkdir()
        rules = {"rules": [str(own)]}
        lake = Lake(spark, load(home=Path(home), api={"token": TOKEN}, alerts=rules))
        lake.ensure()
        desk = prepare(lake, prompt=True)
        furnish(desk)
        spark.stop()
        serving: Iterator[str] = serve(desk.app)
        site = next(serving)
        with sync_playwright() as running:
            browser = running.chromium.launch(executable_path=program, args=FLAGS)
            for theme in ("light", "dark"):
                paths = places(desk) | SPARK
                wanted = {name: paths[name] for name in chosen or paths if name not in OWN}
                _take(browser, site, theme, wanted, folder, lake.settings)
            if not chosen or LOGIN in chosen:
                _take_login(browser, lake.settings.home, folder)
            browser.close()
        next(serving, None)
    return 0


def _take(
    browser: Any, site: str, theme: str, paths: dict[str, str], folder: Path, settings: Settings
) -> None:
    context = browser.new_context(viewport=SIZE)
    context.add_cookies([{"name": "headgate_theme", "value": theme, "url": site}])
    watched = Watched(context.new_page(), site).sign_in()
    for name, path in paths.items():
        tell_jobs(settings)
        page = watched.go(path)
        page.wait_for_timeout(400)
        if page.locator(".big-number").count():
            raise SystemExit(f"{path}: {page.inner_text('main')}")
        page.screenshot(path=folder / f"{name}-{theme}.png")
        print(f"{name}-{theme}.png", flush=True)
    context.close()


def _told_by_demo(home: Path) -> Settings:
    """Run the demo to its end; its settings, in which the API's token is ours."""
    program = str(Path(sys.executable).with_name("headgate"))
    command = [program, "--home", str(home), "demo", "--once"]
    ports = ["--kafka-port", str(free_port()), "--api-port", str(free_port())]
    subprocess.run([*command, *ports], check=True)
    return load(home=home, api={"token": TOKEN})


def _take_story(browser: Any, settings: Settings, folder: Path) -> None:
    serving: Iterator[str] = serve(create_app(settings))
    site = next(serving)
    for theme in ("light", "dark"):
        _take(browser, site, theme, {STORY: "/?since=-6h"}, folder, settings)
    next(serving, None)


def _take_login(browser: Any, home: Path, folder: Path) -> None:
    """The sign-in as people of an identity provider see it."""
    api = {"token": TOKEN, "oidc": OIDC, "console_url": "https://desk.example.com"}
    serving: Iterator[str] = serve(create_app(load(home=home, api=api)))
    site = next(serving)
    for theme in ("light", "dark"):
        context = browser.new_context(viewport=SIZE)
        context.add_cookies([{"name": "headgate_theme", "value": theme, "url": site}])
        page = Watched(context.new_page(), site).go("/login")
        page.screenshot(path=folder / f"{LOGIN}-{theme}.png")
        context.close()
    next(serving, None)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else Path("docs/console"), sys.argv[2:]))
