"""Servers of threat intelligence are asked within bounds, and left alone when they say so."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from alerts.feeds.bounded_session import ServerBusy, ServerFailed, open_session
from infra.config.settings import load
from infra.errors import Usage

Answer = tuple[int, dict[str, str], bytes]


class Scripted:
    """A server that gives one answer after the other, the last again and again."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, str]] = []
        self.pause = 0.0
        script = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                script.asked.append(dict(self.headers))
                status, headers, body = script.answers[0]
                if len(script.answers) > 1:
                    del script.answers[0]
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                for place in range(0, len(body), 1 if script.pause else len(body)):
                    time.sleep(script.pause)
                    self.wfile.write(body[place : place + (1 if script.pause else len(body))])

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}/"


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    server = Scripted()
    yield server
    server.http.shutdown()
    server.http.server_close()


def ask(scripted: Scripted, **more: Any) -> bytes:
    feed = {"name": "f", "url": scripted.url, "collection": "c"} | more
    server = load(intelligence={"taxii": [feed]}).intelligence.taxii[0]
    session, _ = open_session(server, server.user)
    with session:
        return session.get(scripted.url).content


def test_a_server_that_is_busy_is_asked_again_when_it_says_so(scripted: Scripted) -> None:
    scripted.answers = [(429, {"Retry-After": "0"}, b""), (503, {"Retry-After": "0"}, b"")]
    scripted.answers.append((200, {}, b"at last"))
    assert ask(scripted) == b"at last"
    assert len(scripted.asked) == 3


def test_a_server_that_wants_a_long_rest_is_left_alone_until_the_next_run(
    scripted: Scripted,
) -> None:
    scripted.answers = [(429, {"Retry-After": "900"}, b"")]
    with pytest.raises(ServerBusy, match="again in 900 s") as caught:
        ask(scripted)
    assert caught.value.wait_seconds == 900
    assert len(scripted.asked) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    scripted: Scripted, packed: bool
) -> None:
    body = bytes(3 * 2**20)
    scripted.answers = [(200, {}, body)]
    if packed:
        scripted.answers = [(200, {"Content-Encoding": "gzip"}, gzip.compress(body))]
    with pytest.raises(ServerFailed, match="more than 1 MB"):
        ask(scripted, max_megabytes=1)
    assert ask(scripted, max_megabytes=4) == body


def test_a_server_that_drips_meets_the_bound_of_time(scripted: Scripted) -> None:
    scripted.answers = [(200, {}, b"drip" * 100)]
    scripted.pause = 0.05
    began = time.monotonic()
    with pytest.raises(ServerFailed, match="max_seconds"):
        ask(scripted, max_seconds=0.3)
    assert time.monotonic() - began < 10


def test_a_redirect_does_not_get_the_secret(scripted: Scripted) -> None:
    scripted.answers = [(302, {"Location": scripted.url + "elsewhere"}, b"")]
    with pytest.raises(ServerFailed, match="not followed"):
        ask(scripted, secret="s")
    assert len(scripted.asked) == 1


def test_the_secret_comes_from_where_the_settings_say(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.answers = [(200, {}, b"")]
    with pytest.raises(Usage, match="FEED_SECRET is not set"):
        ask(scripted, secret_env="FEED_SECRET")
    monkeypatch.setenv("FEED_SECRET", "token")
    ask(scripted, secret_env="FEED_SECRET")
    ask(scripted, secret_env="FEED_SECRET", user="ann")
    ask(scripted)
    headers = [asked.get("Authorization") for asked in scripted.asked]
    assert headers == ["Bearer token", "Basic YW5uOnRva2Vu", None]


@pytest.mark.parametrize(
    ("feed", "reason"),
    [
        ({"url": "http://feeds.example/root/"}, "without TLS"),
        ({"url": "https://ann:secret@feeds.example/"}, "no user and password"),
        ({"url": "https://feeds.example/", "secret": "a", "secret_env": "B"}, "one of them"),
        ({"url": "https://feeds.example/", "scores": {"x": 101}}, "0 to 100"),
    ],
)
def test_a_feed_that_cannot_be_read_safely_is_refused(feed: dict[str, Any], reason: str) -> None:
    with pytest.raises(Usage, match=reason):
        load(intelligence={"taxii": [{"name": "f", "collection": "c"} | feed]})


def test_two_feeds_do_not_keep_one_list() -> None:
    feeds = [
        {"name": name, "url": "https://feeds.example/", "collection": "c", "list": "bad"}
        for name in ("a", "b")
    ]
    with pytest.raises(Usage, match="keep one list"):
        load(intelligence={"taxii": feeds})
