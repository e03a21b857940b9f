"""Webhooks over REST: no secret is shown, a try tells what the hook or mail server answered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from alerts.delivery.webhook_queue import DAY, Queue, enqueue, queue_file
from api.app import create_app
from infra.config.settings import load
from tests.api.desk import audited
from tests.mailbox import mail_server

TOKEN = "t" * 32


class Receiver(BaseHTTPRequestHandler):
    """Takes what comes at /ok, and nothing else."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204 if self.path.startswith("/ok") else 500)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_webhooks_are_listed_tried_and_given_another_day(tmp_path: Path, receiver: str) -> None:
    usual = {"secret": "hush-hush-hush", "allow_private": True}
    hooks = [
        {"name": "pager", "url": f"{receiver}/ok?key=hush", **usual},
        {"name": "broken", "url": f"{receiver}/no", **usual},
        {"name": "chat", "form": "slack", "secret": "https://hooks.example/T0/hush"},
    ]
    home = load(home=tmp_path, api={"token": TOKEN, "console": False}, webhooks=hooks)
    client = TestClient(create_app(home), raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {TOKEN}"
    listed = client.get("/api/v1/webhooks")
    assert "hush" not in listed.text
    assert [item["url"] for item in listed.json()["items"]] == [
        f"{receiver}/ok?*****",
        f"{receiver}/no",
        None,
    ]
    assert "settings" in listed.json()["changed_by"]
    assert not queue_file(home).exists()

    assert client.post("/api/v1/webhooks/pager/test").json()["taken"] is True
    failed = client.post("/api/v1/webhooks/broken/test").json()
    assert (failed["taken"], failed["problem"]) == (False, "127.0.0.1 answered 500")
    assert client.post("/api/v1/webhooks/none/test").status_code == 404

    queue = Queue(queue_file(home))
    enqueue(queue._db, ["pager"], ("a1", 1), "title", b"{}", 1.0)
    due = queue.due("pager", 2.0)
    assert due is not None
    queue.failed(due, "no answer", 2.0 + DAY)
    queue.close()
    dead = client.get("/api/v1/webhooks/deliveries", params={"state": "dead"}).json()
    assert [item["alert_id"] for item in dead["items"]] == ["a1"]
    assert client.get("/api/v1/webhooks/pager").json()["dead"] == 1
    assert client.post("/api/v1/webhooks/pager/retry").json()["again"] == 1
    assert client.get("/api/v1/webhooks/deliveries").json()["items"][0]["state"] == "waiting"


def test_a_mail_sample_that_is_refused_is_no_success_and_no_fault(tmp_path: Path) -> None:
    with mail_server() as (box, port):
        mail = {"host": "127.0.0.1", "port": port, "security": "none", "sender": "soc@example.org"}
        duty = {"name": "duty", "form": "mail", "to": ["ann@example.org", "gone@example.org"]}
        home = load(
            home=tmp_path,
            api={"token": TOKEN, "console": False},
            reports={"mail": mail},
            webhooks=[duty],
        )
        client = TestClient(create_app(home), raise_server_exceptions=False)
        client.headers["Authorization"] = f"Bearer {TOKEN}"
        box.full = True
        full = client.post("/api/v1/webhooks/duty/test")
        box.full, box.unknown = False, "gone@example.org"
        partly = client.post("/api/v1/webhooks/duty/test")
    away = client.post("/api/v1/webhooks/duty/test")
    answers = [answer.json() for answer in (full, partly, away)]
    assert [answer["taken"] for answer in answers] == [False] * 3
    assert "452 mailbox is full" in answers[0]["problem"]
    assert answers[1]["problem"] == "127.0.0.1 refused gone@example.org; the others got it"
    assert f"mail server 127.0.0.1:{port}" in answers[2]["problem"]
    outcomes = [row["outcome"] for row in audited(home) if row["act"] == "webhook.test"]
    assert outcomes == ["failed"] * 3
