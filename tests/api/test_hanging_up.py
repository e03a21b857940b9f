"""What a caller no longer waits for ends, and holds no worker; what others wait for goes on."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from contextvars import Context
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.asking import begin_request
from api.services.console import event_search
from api.services.console.event_search import EventQuestion
from api.services.reader import Reader
from api.services.searches.search_threads import InFlight
from api.sql.worker_line import Cancelled, Ended
from ingest.tables import EVENT
from tests.api.desk import audited
from tests.api.plain_desk import PlainDesk
from tests.api.routes.test_statements import LONG
from tests.console.conftest import serve
from tests.headgate.as_code.delta_by_hand import append_rows
from tests.wait import until

TOKEN = "t" * 32
OTHER = f"{LONG} AND 1 = 1"
NEVER = "(SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range = -1) = 0"


class Site:
    """The API as it is served, whose limits would let a question run for an hour."""

    def __init__(self, home: Path) -> None:
        self.desk = PlainDesk(
            home, devices=3, searches_at_once=1, statement_seconds=3600.0, spark_engine=False
        )
        now = datetime.now(UTC)
        event = {"event_uid": "e", "time": now, "received_at": now, "source": "sshd"}
        append_rows(self.desk.settings.lake_root, EVENT, [event])

    def come(self, url: str) -> None:
        """It is served there from now on."""
        self.url = url
        self.client = httpx.Client(base_url=url, timeout=90)
        signed_in = self.client.post("/login", data={"key": TOKEN, "next": "/"})
        assert signed_in.status_code == 303
        cookie = "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())
        self._head = f"Host: x\r\nCookie: {cookie}\r\nAuthorization: Bearer {TOKEN}\r\n"

    def asked(self, line: str, body: str = "", more: str = "") -> socket.socket:
        """A connection on which something is asked."""
        where = urlsplit(self.url)
        caller = socket.create_connection((where.hostname or "", where.port or 0))
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" * bool(body)
        caller.sendall(f"{line} HTTP/1.1\r\n{self._head}{more}{length}\r\n{body}".encode())
        return caller


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("desk"))
    for url in serve(made.desk.app):
        made.come(url)
        yield made
        made.client.close()


def test_searches_whose_callers_hang_up_leave_the_worker_to_the_next(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_search, "_WITH_TEXT", f"({NEVER} AND $text <> '')")
    threads = site.desk.app.state.services.reader.threads
    with closing(site.asked("GET /search?q=a")), closing(site.asked("GET /search?q=b")):
        # One runs, so the other waits.
        until(lambda: threads.waiting == 1, what="they were not begun")
    assert site.client.get("/search").status_code == 200
    until(lambda: threads.waiting == 0, what="one still waits")
    # Two callers left; that is no fault of the server.
    until(lambda: counted(site, "/search", "499") == 2, what="they are not counted")
    assert counted(site, "/search", "503") == 0


def counted(site: Site, route: str, status: str) -> float:
    """Requests of a route that were counted with that status."""
    text = site.client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"}).text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "headgate_http_requests_total"
        and (sample.labels["route"], sample.labels["status"]) == (route, status)
    )


def test_a_statement_whose_caller_hangs_up_is_counted_as_that(site: Site) -> None:
    before = counted(site, "/api/v1/statements", "499")
    folder = site.desk.settings.home / "spool" / "audit"
    with closing(site.asked("POST /api/v1/statements", json.dumps({"sql": OTHER}))):
        until(lambda: bool(list(folder.glob(".*.begun"))), what="it was not begun")
    until(lambda: counted(site, "/api/v1/statements", "499") == before + 1, what="it is not")
    assert counted(site, "/api/v1/statements", "503") == 0


def test_a_form_that_breaks_off_is_no_fault(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("headgate.api"), "handlers", [caplog.handler])
    with closing(site.asked("POST /login", more="Content-Length: 99\r\n")):
        pass
    until(lambda: counted(site, "/login", "499") == 1, what="it is not counted")
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.full
def test_an_export_that_is_broken_off_is_no_fault(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pages, second, ends = event_search.events, threading.Event(), threading.Event()

    def endless(
        reader: Reader, question: EventQuestion, columns: Any, limit: int, cursor: str | None
    ) -> tuple[Any, str]:
        if cursor is None:
            return pages(reader, question, columns, limit, None)[0], "more"
        second.set()
        try:
            return reader.rows(f"SELECT 1 AS x WHERE {NEVER}", needs=("silver.event",)), "more"
        except Cancelled:
            ends.set()
            raise

    # The server's own log does not reach the root, where caplog looks.
    monkeypatch.setattr(logging.getLogger("uvicorn.error"), "handlers", [caplog.handler])
    monkeypatch.setattr(event_search, "events", endless)
    with closing(site.asked("GET /search/export.csv")) as caller:
        assert caller.recv(8) == b"HTTP/1.1"
        assert second.wait(60)
    assert ends.wait(60)
    assert site.client.get("/healthz").status_code == 200
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.full
def test_a_statement_of_the_console_ends_with_its_page(site: Site) -> None:
    settings = site.desk.settings
    folder = settings.home / "spool" / "audit"
    with closing(site.asked(f"GET /search?sql={quote(LONG)}")):
        until(lambda: bool(list(folder.glob(".*.begun"))), what="it was not begun")
    until(lambda: not list(folder.glob(".*.begun")), what="it still runs")
    rows = [row for row in audited(settings) if row["act"] == "statement"]
    (noted,) = [row for row in rows if json.loads(row["detail"])["sql"] == LONG]
    assert noted["outcome"] == "failed"
    assert "hung up" in noted["detail"]


@pytest.mark.full
def test_a_statement_that_is_waited_for_as_a_job_is_removed(site: Site) -> None:
    path = "/api/v1/search/jobs"
    headers = {"Authorization": f"Bearer {TOKEN}"}

    def states() -> list[str]:
        return [job["state"] for job in site.client.get(path, headers=headers).json()["items"]]

    body = json.dumps({"sql": LONG, "engine": "duckdb"})
    with closing(site.asked("POST /api/v1/statements", body, "Accept: text/csv\r\n")):
        until(lambda: states() == ["running"], what="it was not begun")
    until(lambda: states() == [], what="it is still there")
    quick = site.client.post(
        "/api/v1/statements",
        json={"sql": "SELECT 1 AS x"},
        headers=headers | {"Accept": "text/csv", "Prefer": "wait=20"},
    )
    assert quick.text.split() == ["x", "1"]


def test_a_shared_question_ends_when_the_last_who_waits_has_gone() -> None:
    flight, begun = InFlight(), threading.Event()
    ended: list[Any] = []

    def work(until_then: Ended) -> str:
        ended.append(until_then)
        begun.set()
        until(until_then.is_set, what="it is not ended")
        raise Cancelled("ended")

    gone: list[threading.Event] = []

    def ask(answer: Callable[[Ended], str]) -> str:
        gone.append(begin_request().gone)
        return flight.answer("question", answer)

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(Context().run, ask, work)
        assert begun.wait(30)
        second = pool.submit(Context().run, ask, lambda _: "never asked")
        until(lambda: len(ended[0].waiting) == 2, what="it did not join")
        gone[0].set()
        assert not ended[0].is_set(), "another waits for it"
        third = pool.submit(Context().run, ask, lambda _: "never asked")
        until(lambda: len(ended[0].waiting) == 3, what="it did not join")
        gone[2].set()
        with pytest.raises(Cancelled, match="hung up"):
            third.result(30)
        assert not first.done()
        gone[1].set()
        with pytest.raises(Cancelled):
            first.result(30)
        with pytest.raises(Cancelled):
            second.result(30)
    # One that all have left is no answer for who comes now.
    assert flight.answer("question", lambda _: "anew") == "anew"


def test_who_joins_as_the_last_one_leaves_is_answered() -> None:
    flight, begun, answered = InFlight(), threading.Event(), threading.Event()
    ended: list[Ended] = []
    looked: list[bool] = []

    class Leaves(threading.Event):
        """Goes just after the newcomer saw it, while another thread looks who is still there."""

        def is_set(self) -> bool:
            if super().is_set():
                return True
            self.set()
            looks = threading.Thread(target=lambda: looked.append(ended[0].is_set()), daemon=True)
            looks.start()
            looks.join(0.2)
            return False

    def work(until_then: Ended) -> str:
        ended.append(until_then)
        begun.set()
        assert answered.wait(30)
        return "answer"

    leaving = Leaves()

    def ask(gone: threading.Event, answer: Callable[[Ended], str]) -> str:
        begin_request().gone = gone
        return flight.answer("question", answer)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Context().run, ask, leaving, work)
        assert begun.wait(30)
        second = pool.submit(Context().run, ask, threading.Event(), lambda _: "never asked")
        until(lambda: bool(looked), what="nobody looked")
        assert looked == [False], "one more waits for it"
        answered.set()
        assert (first.result(30), second.result(30)) == ("answer", "answer")
