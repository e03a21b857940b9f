"""The same tools over HTTP: whose key, which session, which page, and what is no message."""

from __future__ import annotations

import argparse
import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from alerts.delivery.action_request import waiting_requests
from headgate.mcp.command import build, own_origins, require_safe, require_stdio
from headgate.mcp.http_server import MOST_SESSIONS, PATH, McpHttp, McpSessions
from headgate.mcp.server import ApiClient
from infra.errors import Usage
from tests.api.plain_desk import PlainDesk
from tests.headgate.mcp.test_server import ORDERS, SPAN, Api

BEGIN = {"jsonrpc": "2.0", "id": 1, "method": "initialize",
         "params": {"protocolVersion": "2025-06-18"}}  # fmt: skip


@contextmanager
def serving(app: Any) -> Iterator[int]:
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join(10)


class Client:
    """A client as the specification has it, which remembers its session."""

    def __init__(self, port: int, token: str = "key") -> None:
        self.port = port
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json",
                        "Accept": "application/json, text/event-stream"}  # fmt: skip

    def send(
        self, message: Any, method: str = "POST", path: str = PATH, **headers: str | None
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, answer and headers. A header that is given as None is left out."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {name: value for name, value in (self.headers | given).items() if value is not None}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        body = message if isinstance(message, str) else json.dumps(message)
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        read = response.read()
        connection.close()
        answered = {name.lower(): value for name, value in response.getheaders()}
        return response.status, json.loads(read) if read else None, answered

    def begin(self) -> Client:
        """Initialize; the session goes along from then on."""
        status, _, headers = self.send(BEGIN)
        assert status == 200
        self.headers["Mcp-Session-Id"] = headers["mcp-session-id"]
        assert self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})[:2] == (
            202,
            None,
        )
        return self

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """A tool's result."""
        parameters = {"name": name, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": parameters}
        status, answer, _ = self.send(message, MCP_Protocol_Version="2025-06-18")
        assert (status, answer["id"]) == (200, 7)
        result: dict[str, Any] = answer["result"]
        return result


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    api = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    threading.Thread(target=api.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{api.server_port}"
    app = McpHttp(lambda token: ApiClient(url, token), ["https://assistant.example.org"])
    with serving(app) as number:
        yield number
    api.shutdown()
    api.server_close()


def test_a_client_begins_asks_and_ends(port: int) -> None:
    Api.asked.clear()
    client = Client(port, "her-key").begin()
    assert client.call("alerts", **SPAN)["isError"] is False
    assert {key for _, _, key in Api.asked} == {"Bearer her-key"}
    assert client.send("", "DELETE")[0] == 204
    assert client.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})[0] == 404


def test_a_session_is_of_one_key_and_cannot_be_left_out(port: int) -> None:
    client = Client(port).begin()
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    assert client.send(ping)[0] == 200
    assert client.send(ping, Authorization="Bearer other")[0] == 404
    assert client.send(ping, Mcp_Session_Id=None)[0] == 400
    assert client.send(ping, Mcp_Session_Id="guess")[0] == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://assistant.example.org"}, 200),
        ({"Authorization": None}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Basic a2V5"}, 401),
        ({"Content_Type": "text/plain"}, 415),
        ({"Accept": "text/html"}, 406),
        ({"MCP_Protocol_Version": "1999-01-01"}, 400),
    ],
)
def test_who_may_call_and_how(port: int, headers: dict[str, str | None], status: int) -> None:
    given, answer, answered = Client(port).send(BEGIN, **headers)
    assert given == status, answer
    if status == 401:
        assert answered["www-authenticate"].startswith("Bearer")
    assert "access-control-allow-origin" not in answered


def test_what_is_no_message_is_refused(port: int) -> None:
    client = Client(port)
    assert client.send("{")[0] == 400
    assert client.send([BEGIN])[0] == 400
    assert client.send("x" * 1_100_000)[0] == 413
    assert client.send(BEGIN, "GET")[0] == 405
    assert client.send(BEGIN, path="/")[0] == 404


def test_sessions_are_bounded_and_the_one_idle_longest_makes_room() -> None:
    sessions = McpSessions()
    first, second = sessions.begin("a"), sessions.begin("b")
    assert sessions.use(first, "a")
    for _ in range(MOST_SESSIONS - 1):
        sessions.begin("c")
    assert sessions.use(first, "a")
    assert not sessions.use(second, "b")


def test_an_api_that_is_away_is_said(tmp_path: Path) -> None:
    app = McpHttp(lambda token: ApiClient("http://127.0.0.1:1", token))
    with serving(app) as number:
        status, answer, _ = Client(number).send(BEGIN)
    assert status == 503
    assert "does not answer" in answer["error"]["message"]


@pytest.mark.full
def test_no_order_in_a_log_becomes_a_write_that_nobody_confirmed(tmp_path: Path) -> None:
    desk = PlainDesk(tmp_path, requests_per_minute=100_000)
    token = desk.client("bot", "analyst").headers["Authorization"].removeprefix("Bearer ")
    with serving(desk.app) as api:
        app = McpHttp(lambda key: ApiClient(f"http://127.0.0.1:{api}", key))
        with serving(app) as number:
            assert Client(number, "a-guess").send(BEGIN)[0] == 401
            client = Client(number, token).begin()
            listed = client.call("alerts", since="2020-01-01T00:00:00Z",
                                 until="2030-01-01T00:00:00Z")["content"][2]["text"]  # fmt: skip
            alert = json.loads(listed)["items"][0]["alert_id"]
            # A try reads only, and a backtest is not for this key.
            assert client.call("preview", rule="no such rule", since="-1d")["isError"]
            denied = client.call("backtest", rule="x", since="-2d", until="-1d")
            assert "drafts and backtests need 'engineer'" in denied["content"][2]["text"]
            left = _obey(client, alert)
    # The key is one of role analyst: it could change alerts over REST, and no tool did.
    assert waiting_requests(desk.settings) == []
    assert 0 < left <= 50
    assert len(list((desk.settings.home / "api" / "proposals").glob("*.json"))) == left


def _obey(client: Client, alert: str) -> int:
    """Do whatever two hundred injected orders say; how many proposals that left."""
    left = 0
    for number, order in enumerate(ORDERS):
        if number % 2:
            answer = client.call("propose_note", alert_id=alert, text=order, why=order)
        else:
            answer = client.call("propose_verdict", alert_id=alert, verdict="benign", why=order)
        left += not answer["isError"]
        assert client.call("confirm_proposal", proposal_id="*", why=order)["isError"]
        assert client.call("alert", alert_id=f"../proposals/{alert}/confirm")["isError"]
    return left


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    build(parser.add_subparsers())
    return parser.parse_args(["mcp", *words])


def test_options_that_would_show_a_key_are_refused() -> None:
    with pytest.raises(Usage, match="without TLS"):
        require_safe(options("--http", "0", "--host", "0.0.0.0"))
    with pytest.raises(Usage, match="a key of its own"):
        require_safe(options("--http", "0", "--token-file", "f"))
    with pytest.raises(Usage, match="go together"):
        require_safe(options("--http", "0", "--certificate", "f"))
    require_safe(options("--http", "0", "--host", "::1"))
    require_safe(options("--http", "0", "--host", "0.0.0.0", "--certificate", "c",
                         "--private-key", "k"))  # fmt: skip
    with pytest.raises(Usage, match="name the file"):
        require_stdio(options())
    with pytest.raises(Usage, match="go with --http"):
        require_stdio(options("--token-file", "f", "--allow-origin", "https://a.example"))
    assert "http://localhost:9000" in own_origins("127.0.0.1", 9000, tls=False)
