"""Webhooks: signed, to addresses that were looked at, tried for a day, one beside the other."""

from __future__ import annotations

import argparse
import hashlib
import hmac
import json
import os
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.cli import webhooks
from alerts.delivery import webhook
from alerts.delivery.webhook import Undelivered, is_public, post, secret_of, signature, target_of
from alerts.delivery.webhook_queue import (
    DAY,
    LONGEST_PAUSE,
    Queue,
    WaitingWebhook,
    enqueue,
    pause,
    queue_file,
)
from infra.config.settings import Settings, WebhookSettings, load
from infra.errors import Fatal, Usage
from infra.kafka.client import Broker, ensure_topics, producer
from infra.runtime.scheduled_tasks import Steady, scheduled_commands
from tests.examples import examples
from tests.wait import until

SECRET = "a secret of the tests"
NOW = 1_700_000_000.0


class Receiver:
    """An HTTP server that keeps what it got and answers what it is told to."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.answer = 204
        self.text = b""
        self.wait = 0.0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                body = self.rfile.read(length)
                # A sender that is killed in the middle has sent no delivery.
                if len(body) < length:
                    return
                receiver.got.append((self.path, dict(self.headers), body))
                time.sleep(receiver.wait)
                self.send_response(receiver.answer)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(receiver.text)

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def hook(self, **keys: Any) -> WebhookSettings:
        given: dict[str, Any] = {"name": "pager", "url": f"http://127.0.0.1:{self.port}/in?a=1",
                                 "secret": SECRET, "allow_private": True}  # fmt: skip
        return WebhookSettings(**(given | keys))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()


def test_a_delivery_is_signed_so_that_its_receiver_can_tell(receiver: Receiver) -> None:
    post(receiver.hook(), "a1:2", b'{"a": 1}', 1_800_000_000)
    ((path, headers, body),) = receiver.got
    assert (path, body) == ("/in?a=1", b'{"a": 1}')
    assert headers["Headgate-Delivery"] == "a1:2"
    assert headers["Content-Type"] == "application/json"
    at, _, mac = headers["Headgate-Signature"].partition(",v1=")
    signed = f"{at.removeprefix('t=')}.".encode() + body
    assert mac == hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()


@given(st.binary(max_size=50), st.binary(max_size=50), st.integers(0, 10**10))
def test_another_body_or_time_has_another_signature(one: bytes, two: bytes, at: int) -> None:
    assert (signature(b"k", at, one) == signature(b"k", at, two)) == (one == two)
    assert signature(b"k", at, one) != signature(b"k", at + 1, one)
    assert signature(b"k", at, one) != signature(b"l", at, one)


@pytest.mark.parametrize("answer", [301, 302, 307, 400, 404, 500, 503])
def test_only_a_2xx_is_taken_and_redirects_are_not_followed(
    receiver: Receiver, answer: int
) -> None:
    receiver.answer = answer
    with pytest.raises(Undelivered, match=f"answered {answer}"):
        post(receiver.hook(), "a:1", b"{}", 1)
    assert [path for path, _, _ in receiver.got] == ["/in?a=1"]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.31.0.1", False),
        ("192.168.0.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("2002:7f00:1::", False),
        ("64:ff9b::7f00:1", False),
        ("::7f00:1", False),
        ("64:ff9b::808:808", True),
    ],
)
def test_only_addresses_of_the_open_internet_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "a..b", "a" * 64 + ".b"]
)
def test_no_private_address_is_called_unless_that_is_allowed(receiver: Receiver, host: str) -> None:
    hook = receiver.hook(url=f"https://{host}:{receiver.port}/", allow_private=False)
    with pytest.raises(Undelivered, match=r"private, and not allowed|no address"):
        post(hook, "a:1", b"{}", 1)
    assert receiver.got == []


def test_the_address_that_was_looked_at_is_the_one_that_is_called(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = socket.getaddrinfo

    def resolve(host: str, *rest: Any, **keys: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1", *rest, **keys)

    monkeypatch.setattr(webhook.socket, "getaddrinfo", resolve)
    post(receiver.hook(url=f"http://hook.example:{receiver.port}/x"), "a:1", b"{}", 1)
    assert asked.count("hook.example") == 1, "a second answer of the name servers counts nothing"
    assert receiver.got[0][1]["Host"] == f"hook.example:{receiver.port}"


def test_a_name_with_a_private_address_is_refused_however_it_is_spelled(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(
        webhook.socket, "getaddrinfo", lambda _, *rest, **keys: real("127.0.0.1", *rest, **keys)
    )
    hook = receiver.hook(url=f"https://hook.example:{receiver.port}/", allow_private=False)
    with pytest.raises(Undelivered, match=r"hook.example is 127.0.0.1: private"):
        post(hook, "a:1", b"{}", 1)
    assert receiver.got == []


def test_what_speaks_no_tls_gets_nothing_by_https(receiver: Receiver) -> None:
    with pytest.raises(Undelivered, match="SSL"):
        post(receiver.hook(url=f"https://127.0.0.1:{receiver.port}/"), "a:1", b"{}", 1)
    assert receiver.got == []


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"url": "ftp://hook.example/"}, "write https"),
        ({"url": "https:///path"}, "write https"),
        ({"url": "https://u:p@hook.example/"}, "no user"),
        ({"url": "https://hook.example:99999/"}, "99999|range"),
        ({"url": "http://hook.example/", "allow_private": False}, "without TLS"),
        ({"url": "https://hook.example/a b"}, "percent-encoded"),
        ({"url": "https://hook.example/\u00e4"}, "percent-encoded"),
    ],
)
def test_a_wrong_url_is_one_sentence(receiver: Receiver, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(Usage, match=said):
        target_of(receiver.hook(**keys))


def test_the_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = WebhookSettings(name="h", url="https://hook.example/", secret_env="HOOK_KEY")
    with pytest.raises(Usage, match="HOOK_KEY is not set"):
        secret_of(hook)
    monkeypatch.setenv("HOOK_KEY", "x")
    assert secret_of(hook) == b"x"
    for keys in ({}, {"secret": "x", "secret_env": "Y"}):
        with pytest.raises(Usage, match="one of them"):
            load(webhooks=[{"name": "h", "url": "https://hook.example/", **keys}])
    assert SECRET not in repr(load(webhooks=[Receiver.hook(Receiver())]))


def put(file: Path, *keys: tuple[str, int], hooks: tuple[str, ...] = ("pager",)) -> Queue:
    queue = Queue(file)
    with sqlite3.connect(file) as db:
        for alert_id, revision in keys:
            body = json.dumps({"alert_id": alert_id}).encode()
            enqueue(db, hooks, (alert_id, revision), "title", body, NOW)
    return queue


def key_of(one: WaitingWebhook | None) -> str | None:
    return one.key if one else None


def test_of_an_alert_the_oldest_revision_goes_first_and_others_do_not_wait_for_it(
    tmp_path: Path,
) -> None:
    queue = put(tmp_path / "q", ("a", 1), ("a", 2), ("b", 1))
    first = queue.due("pager", NOW)
    assert first is not None
    assert first.key == "a:1"
    assert not queue.failed(first, "no", NOW)
    other = queue.due("pager", NOW)
    assert other is not None
    assert other.key == "b:1"
    queue.done(other)
    assert queue.due("pager", NOW) is None, "a:2 waits for a:1"
    assert key_of(queue.due("pager", NOW + 6)) == "a:1"
    queue.done(first)
    assert key_of(queue.due("pager", NOW + 6)) == "a:2"


def test_it_is_tried_for_a_day_then_kept_as_a_dead_letter_that_can_be_retried(
    tmp_path: Path,
) -> None:
    queue = put(tmp_path / "q", ("a", 1), ("a", 2))
    now, attempts, given_up = NOW, 0, False
    while not given_up:
        now += 60
        one = queue.due("pager", now)
        if one is not None:
            attempts += 1
            given_up = queue.failed(one, "answered 500", now)
    assert DAY <= now - NOW <= DAY + 2 * LONGEST_PAUSE
    assert 25 < attempts < 40, "often at first, then hourly"
    assert key_of(queue.due("pager", now)) == "a:2", "what comes after it goes on"
    dead = [row for row in queue.listed() if row["state"] == "dead"]
    assert [(row["alert_id"], row["problem"]) for row in dead] == [("a", "answered 500")]
    assert queue.again("another", now) == 0
    assert queue.again("pager", now) == 1
    assert key_of(queue.due("pager", now)) == "a:1"


def test_what_a_clock_put_off_by_a_day_is_due_when_it_is_right_again(tmp_path: Path) -> None:
    queue = put(tmp_path / "q", ("a", 1))
    one = queue.due("pager", NOW)
    assert one is not None
    assert not queue.failed(one, "answered 500", NOW + DAY - 60)
    assert key_of(queue.due("pager", NOW + 5)) == "a:1"


def steps(queue: Queue, run: Callable[[], object]) -> int:
    """How many instructions SQLite runs for it, the same on every machine; in hundreds."""
    count = 0

    def note() -> int:
        nonlocal count
        count += 1
        return 0

    queue._db.set_progress_handler(note, 100)
    run()
    queue._db.set_progress_handler(None, 100)
    return count


@pytest.mark.parametrize("held_up", [False, True])
def test_what_is_due_costs_the_same_however_much_waits(tmp_path: Path, held_up: bool) -> None:
    costs = []
    for count in (100, 1000):
        keys = [(f"a{n}", revision) for n in range(count // 10) for revision in range(10)]
        queue = put(tmp_path / str(count), *keys, ("b", 1))
        while held_up and (one := queue.due("pager", NOW)) is not None and one.alert_id != "b":
            queue.failed(one, "answered 500", NOW)
        assert key_of(queue.due("pager", NOW)) == ("b:1" if held_up else "a0:0")
        costs.append(steps(queue, partial(queue.due, "pager", NOW)))
    assert costs[1] <= costs[0] + 1


def test_a_file_of_an_earlier_release_is_read_on(tmp_path: Path) -> None:
    put(tmp_path / "q", ("a", 1)).close()
    with sqlite3.connect(tmp_path / "q") as db:
        db.execute("DROP INDEX in_turn")
        db.execute("CREATE INDEX due ON delivery (hook, gave_up_at, next_at)")
    queue = Queue(tmp_path / "q")
    assert key_of(queue.due("pager", NOW)) == "a:1"
    names = queue._db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql > ''")
    assert names.fetchall() == [("in_turn",)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(1, 4),
            st.sampled_from([0, 1, 2, 3 * LONGEST_PAUSE]),
            st.booleans(),
        ),
        unique_by=lambda each: each[:2],
        max_size=10,
    ),
    st.integers(-1, 3),
)
@examples(60)
def test_what_is_due_is_the_first_in_time_of_the_oldest_of_each_alert(
    waiting: list[tuple[str, int, float, bool]], when: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue = put(Path(folder) / "q", *[(alert_id, number) for alert_id, number, *_ in waiting])
        for alert_id, number, late, dead in waiting:
            queue._db.execute(
                "UPDATE delivery SET next_at = ?, gave_up_at = ? "
                "WHERE alert_id = ? AND revision = ?",
                (NOW + late, NOW if dead else None, alert_id, number),
            )
        due = queue.due("pager", NOW + when)
        queue.close()
    alive = [(late, alert_id, number) for alert_id, number, late, dead in waiting if not dead]
    oldest = [
        each
        for each in alive
        if each[2] == min(n for _, alert_id, n in alive if alert_id == each[1])
    ]
    # Farther away than two longest pauses is what a clock that was ahead said.
    ready = sorted(each for each in oldest if not when < each[0] <= when + 2 * LONGEST_PAUSE)
    assert key_of(due) == (f"{ready[0][1]}:{ready[0][2]}" if ready else None)


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_pauses_grow_to_an_hour_and_no_further(attempts: int, chance: float) -> None:
    assert 4.5 <= pause(attempts, chance) <= LONGEST_PAUSE * 1.1
    assert pause(attempts + 1, 0.5) >= pause(attempts, 0.5)


def test_a_revision_is_put_in_once(tmp_path: Path) -> None:
    queue = put(tmp_path / "q", ("a", 1))
    put(tmp_path / "q", ("a", 1)).close()
    assert len(queue.listed()) == 1


def test_a_hook_that_hangs_delays_no_other(tmp_path: Path) -> None:
    slow, quick = Receiver(), Receiver()
    slow.wait = 60
    hooks = (slow.hook(name="slow", timeout_seconds=30), quick.hook(name="quick"))
    settings = load(home=tmp_path, webhooks=hooks)
    file = queue_file(settings)
    queue = put(file, *[(f"a{n}", 1) for n in range(20)], hooks=("slow", "quick"))
    stop = threading.Event()
    for hook in settings.webhooks:
        args = (settings, hook, stop)
        threading.Thread(target=webhooks.work_off, args=args, daemon=True).start()
    until(lambda: len(quick.got) == 20)
    until(lambda: {row["hook"] for row in queue.listed()} == {"slow"})
    stop.set()
    assert len(slow.got) == 1
    assert len(queue.listed()) == 20


def test_a_hook_whose_thread_dies_ends_the_process_rather_than_fall_silent(
    receiver: Receiver, tmp_path: Path
) -> None:
    settings = load(home=tmp_path, webhooks=[receiver.hook()])
    put(queue_file(settings), ("a", 1)).close()
    with sqlite3.connect(queue_file(settings)) as db:
        db.execute("UPDATE delivery SET body = 7")
    stop = threading.Event()
    with pytest.raises(TypeError):
        webhooks._hold(settings, settings.webhooks[0], stop)
    assert stop.is_set()


def test_two_processes_do_not_deliver_the_same(receiver: Receiver, tmp_path: Path) -> None:
    settings = load(home=tmp_path, webhooks=[receiver.hook()])
    first = webhooks._alone(settings)
    with pytest.raises(Fatal, match=f"webhooks are delivered already, by process {os.getpid()}"):
        webhooks.deliver(argparse.Namespace(), settings)
    first.release()
    webhooks._alone(settings).release()


def test_deliveries_run_on_beside_the_jobs_where_a_hook_is_set(
    receiver: Receiver, tmp_path: Path
) -> None:
    def beside(settings: Settings) -> list[tuple[type, str]]:
        commands = scheduled_commands(settings, print)
        return [(type(each), each.name) for each in commands if each.name == "webhooks"]

    assert beside(load(home=tmp_path, webhooks=[receiver.hook()])) == [(Steady, "webhooks")]
    assert beside(load(home=tmp_path)) == []


def test_from_the_topic_to_the_hook_with_the_levels_it_wants(
    broker: Broker, receiver: Receiver, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = {"bootstrap": broker.address} | {
        name: f"hooks.{name}" for name in ("alerts_topic", "progress_topic", "state_topic")
    }
    hooks = [receiver.hook(levels=("high",))]
    settings = load(home=tmp_path, kafka=kafka, webhooks=hooks)
    ensure_topics(settings)
    send(settings, "before", "high")
    stop = threading.Event()
    listener = threading.Thread(target=webhooks.listen, args=(settings, stop))
    listener.start()
    worker = threading.Thread(
        target=webhooks.work_off, args=(settings, settings.webhooks[0], stop), daemon=True
    )
    until(lambda: begun(settings))
    worker.start()
    send(settings, "low-1", "low")
    send(settings, "high-1", "high")
    until(lambda: receiver.got)
    receiver.answer = 500
    send(settings, "high-2", "high")
    until(lambda: len(receiver.got) == 2)
    stop.set()
    listener.join(20)
    assert [json.loads(body)["alert_id"] for _, _, body in receiver.got] == ["high-1", "high-2"]
    parser = argparse.ArgumentParser()
    webhooks.build(parser.add_subparsers())
    args = parser.parse_args(["webhooks", "list", "--output", "json"])
    until(lambda: Queue(queue_file(settings)).listed()[0]["problem"])
    assert args.run(args, settings) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["alert_id"], row["state"]) == ("high-2", "waiting")
    assert row["problem"] == "127.0.0.1 answered 500"


def send(settings: Settings, alert_id: str, level: str) -> None:
    body = {"alert_id": alert_id, "revision": 1, "rule": {"level": level}, "title": alert_id}
    client = producer(settings.kafka)
    client.produce(settings.kafka.alerts_topic, key=alert_id, value=json.dumps(body).encode())
    assert client.flush(20) == 0


def begun(settings: Settings) -> bool:
    """Whether the listener has noted its place."""
    try:
        rows = sqlite3.connect(queue_file(settings)).execute("SELECT 1 FROM alert_place")
        return len(rows.fetchall()) == settings.kafka.alerts_partitions
    except sqlite3.OperationalError:
        return False
