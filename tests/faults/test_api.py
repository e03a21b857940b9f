"""kill -9 of the API while clients ask: what they were told stays true, nothing is left behind.

A client that follows the alerts keeps the cursor of the last page it has whole; another asks SQL.
The judge is plain Python over what they got and over the files in the spool.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest

from alerts.tables import ALERT
from infra.config.settings import Settings, load
from infra.kafka.client import free_port
from infra.process.subprocesses import PlatformProcess
from infra.streaming.lake import Lake
from tests.api.story import alert, insert
from tests.wait import until

SEED = 20261124
TOKEN = "a-token-of-the-tests"
QUICK_KILLS, SOAK_KILLS = 5, 50
PAGE = 3
SLOW = "SELECT count(*) AS n, :ask AS ask FROM silver.event a, silver.event b"


@pytest.mark.full
def test_the_api_is_killed_while_clients_ask(lake: Lake) -> None:
    killed(lake, QUICK_KILLS)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_api_is_killed_fifty_times(lake: Lake) -> None:
    killed(lake, SOAK_KILLS)


def killed(lake: Lake, kills: int) -> None:
    """Kill it at random moments, start it again, and hold what clients got against the files."""
    settings = load(home=lake.settings.home, api={"port": free_port(), "token": TOKEN})
    chance = random.Random(SEED)
    written = [0]
    running = api(settings)
    follower, asker = Follower(settings), Asker(settings)
    try:
        with working(follower.step), working(asker.step):
            for _ in range(kills):
                asked, seen = len(asker.answered), len(follower.seen)
                more_alerts(lake, written)
                until(lambda a=asked, s=seen: len(asker.answered) > a and len(follower.seen) > s)
                time.sleep(chance.uniform(0, 0.3))
                left = psutil.Process(running.process.pid).children(recursive=True)
                os.kill(running.process.pid, 9)  # alone: its workers must see to themselves
                running.process.wait(20)
                _, alive = psutil.wait_procs(left, timeout=10)
                assert alive == []
                running = api(settings)
            asked = len(asker.answered)
            until(lambda: len(follower.seen) == written[0] and len(asker.answered) > asked)
    finally:
        running.stop()
    assert follower.seen == [(f"alert-{n:05}", 1) for n in range(written[0])]
    assert asker.failed_otherwise == []
    assert asker.answered.items() <= noted(settings).items()
    assert list(settings.scratch_root.glob("*-*")) == []


def api(settings: Settings) -> PlatformProcess:
    """The API as a process of its own, once it answers."""
    environment = {"HEADGATE_API__TOKEN": TOKEN}
    part = PlatformProcess("api", ("api",), settings, environment=environment)
    until(lambda: answers(settings) or part.ended is not None)
    assert part.ended is None, part.last_words(20)
    return part


def answers(settings: Settings) -> bool:
    """Whether somebody listens; ready it need not be, no job runs here."""
    try:
        return httpx.get(f"{url(settings)}/healthz", timeout=2).status_code == 200
    except httpx.TransportError:
        return False


def url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.api.port}"


class Client(ABC):
    """Asks again and again; a connection that breaks says nothing about the question."""

    def __init__(self, settings: Settings) -> None:
        self.failed_otherwise: list[str] = []
        headers = {"Authorization": f"Bearer {TOKEN}"}
        self._http = httpx.Client(base_url=url(settings), headers=headers, timeout=20)

    def step(self) -> None:
        try:
            self.ask()
        except (httpx.TransportError, json.JSONDecodeError):
            time.sleep(0.05)

    @abstractmethod
    def ask(self) -> None:
        """One question; what came of it is kept."""


class Follower(Client):
    """Reads the feed from its beginning on."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.seen: list[tuple[str, int]] = []
        self._after = "start"

    def ask(self) -> None:
        answered = self._http.get("/api/v1/alerts", params={"after": self._after, "limit": PAGE})
        page = answered.json()
        if answered.status_code != 200:
            self.failed_otherwise.append(answered.text)
            return
        self.seen += [(one["alert_id"], one["revision"]) for one in page["items"]]
        self._after = page["next"]


class Asker(Client):
    """Asks SQL, each question with a number of its own."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.answered: dict[int, str] = {}
        self._number = 0

    def ask(self) -> None:
        self._number += 1
        asked = {"sql": SLOW, "params": {"ask": self._number}}
        answered = self._http.post("/api/v1/statements", json=asked)
        if answered.status_code == 200:
            self.answered[self._number] = "ok"
        elif answered.status_code == 202:
            # A busy machine: it goes on as a job, of which there are few; the next is asked.
            ended = self._http.delete(answered.headers["Location"])
            # A job that a kill took away is not there any more.
            if ended.status_code not in (200, 404):
                self.failed_otherwise.append(ended.text)
        else:
            self.failed_otherwise.append(answered.text)


@contextmanager
def working(step: Callable[[], None]) -> Iterator[None]:
    """A thread that takes one step after the other, for as long as inside."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            step()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)


def more_alerts(lake: Lake, written: list[int]) -> None:
    """A batch of alerts, each newer than the one before."""
    first = datetime(2026, 11, 20, 12, tzinfo=UTC)
    numbers = range(written[0], written[0] + 2 * PAGE + 1)
    clocks = {n: f"{first + timedelta(seconds=n):%H:%M:%S}" for n in numbers}
    insert(lake, ALERT, [alert(f"alert-{n:05}", clocks[n], sequence=numbers[0]) for n in numbers])
    written[0] = numbers[-1] + 1


def noted(settings: Settings) -> dict[int, str]:
    """The outcome of each question that left a trace, by its number."""
    found = {}
    for file in Path(settings.home, "spool", "audit").glob("[!.]*"):
        row = json.loads(file.read_text("utf-8"))
        if row["act"] == "statement":
            found[int(json.loads(row["detail"])["params"]["ask"])] = row["outcome"]
    return found
