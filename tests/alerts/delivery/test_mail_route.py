"""Alerts by mail: together, by templates, over TLS, once, and again where the server refused."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.cli import webhooks
from alerts.delivery import webhook_try
from alerts.delivery.mail_route import check_mail, mail_of
from alerts.delivery.webhook_queue import Queue, WaitingWebhook, enqueue
from infra.config.settings import Settings, load
from infra.errors import Usage
from tests.alerts.delivery.test_webhook_forms import PLAYBOOK, alert, run
from tests.infra.authority import Authority
from tests.mailbox import Mailbox, mail_server


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    with mail_server() as opened:
        yield opened


def settings_of(
    home: Path, port: int, server: dict[str, Any] | None = None, **hook: Any
) -> Settings:
    mail = {"host": "127.0.0.1", "port": port, "security": "none", "sender": "soc@example.org"}
    given = {"name": "duty", "form": "mail", "to": ["ann@example.org"], "batch_seconds": 0}
    return load(
        home=home,
        reports={"mail": mail | (server or {})},
        webhooks=[given | hook],
        api={"console_url": "https://soc.example.org"},
    )


def waits(settings: Settings, *alerts: dict[str, Any], since: float = 60) -> Queue:
    """A queue in which these alerts wait."""
    queue = Queue(webhooks.queue_file(settings))
    for number, body in enumerate(alerts):
        key = (f"alert-{number}", 1)
        enqueue(queue._db, ["duty"], key, "t", json.dumps(body).encode(), time.time() - since)
    return queue


def work(settings: Settings, until: Any) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=webhooks.mail_off, args=(settings, settings.webhooks[0], stop))
    thread.start()
    limit = time.monotonic() + 20
    while not until() and time.monotonic() < limit:
        time.sleep(0.02)
    stop.set()
    thread.join(10)


def test_what_came_together_is_one_mail(tmp_path: Path, mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    settings = settings_of(tmp_path, port, to=["ann@example.org", "bob@example.org"])
    rule = alert()["rule"] | {"runbook": f"https://soar.example/{PLAYBOOK}"}
    queue = waits(settings, alert("first", rule=rule), alert("second"), alert("third"))
    work(settings, lambda: not queue.listed())
    (mail,) = box.mails
    assert mail["Subject"] == "Headgate: high: first and 2 more"
    assert (mail["From"], mail["To"]) == ("soc@example.org", "ann@example.org, bob@example.org")
    assert mail["Auto-Submitted"] == "auto-generated"
    text = mail.get_content()
    assert [word in text for word in ("first", "second", "third", PLAYBOOK)] == [True] * 4
    assert f"https://soc.example.org/alerts/{'a' * 32}" in text
    assert queue.listed() == []


def test_it_waits_for_more_and_no_longer_than_it_should(
    tmp_path: Path, mailbox: tuple[Mailbox, int]
) -> None:
    box, port = mailbox
    settings = settings_of(tmp_path, port, batch_seconds=3600, batch_most=2)
    queue = waits(settings, alert("only"), since=10)
    stopped = time.monotonic() + 1
    work(settings, lambda: time.monotonic() > stopped)
    assert box.mails == []
    waits(settings, alert("only"), alert("another"), since=10)
    work(settings, lambda: not queue.listed())
    assert [mail["Subject"] for mail in box.mails] == ["Headgate: high: only and 1 more"]


def test_what_the_server_refuses_waits_and_one_wrong_address_keeps_nobody_from_it(
    tmp_path: Path, mailbox: tuple[Mailbox, int], capsys: pytest.CaptureFixture[str]
) -> None:
    box, port = mailbox
    box.full = True
    settings = settings_of(tmp_path, port, to=["ann@example.org", "gone@example.org"])
    queue = waits(settings, alert("one"))
    work(settings, lambda: queue.listed()[0]["attempts"])
    (row,) = queue.listed()
    assert "452 mailbox is full" in row["problem"]
    box.full, box.unknown = False, "gone@example.org"
    queue._db.execute("UPDATE delivery SET next_at = 0")
    work(settings, lambda: not queue.listed())
    assert len(box.mails) == 1
    assert "refused gone@example.org; the others got it" in capsys.readouterr().err


def test_templates_are_ones_own_and_a_title_begins_no_header(tmp_path: Path) -> None:
    template = tmp_path / "mail.txt"
    template.write_text("$level $entity\n$links\nWhat it cost: $$5\n")
    settings = settings_of(
        tmp_path, 25, subject="[$rule] $title", template_file=template, sender="duty@example.org"
    )
    hook, server = settings.webhooks[0], settings.reports.mail
    check_mail(hook, server)
    body = json.dumps(alert("x\r\nBcc: all@example.org $level")).encode()
    mail = mail_of(hook, server, [WaitingWebhook("duty", "a", 1, "t", body, 0.0, 0)], None)
    assert mail["Bcc"] is None
    assert mail["From"] == "duty@example.org"
    # What a log says is put in as it is: a name in it is no name of the template.
    assert mail["Subject"].endswith("$level")
    assert mail.get_content().endswith("What it cost: $5\n")
    again = mail_of(hook, server, [WaitingWebhook("duty", "a", 1, "t", body, 9.0, 3)], None)
    assert again["Message-ID"] == mail["Message-ID"]


@pytest.mark.parametrize(
    ("server", "hook", "words"),
    [
        ({"host": None}, {}, "set reports.mail.host"),
        ({}, {"subject": "$password"}, r"no \$password"),
        ({}, {"subject": "5 $ each"}, r"write \$\$"),
        ({}, {"template_file": "/nowhere"}, "cannot be read"),
    ],
)
def test_what_could_not_be_sent_is_refused_at_the_start(
    tmp_path: Path, server: dict[str, Any], hook: dict[str, Any], words: str
) -> None:
    settings = settings_of(tmp_path, 25, server, **hook)
    with pytest.raises(Usage, match=words):
        webhook_try.check_hook(settings, settings.webhooks[0])


def test_a_sample_goes_by_mail(tmp_path: Path, mailbox: tuple[Mailbox, int]) -> None:
    box, port = mailbox
    assert run(settings_of(tmp_path, port), "test", "duty") == 0
    assert "Sample alert" in box.mails[0]["Subject"]
    box.full = True
    assert run(settings_of(tmp_path, port), "test", "duty") == 1


@pytest.mark.parametrize("security", ["starttls", "tls"])
def test_over_tls_only_a_server_with_a_trusted_certificate_gets_it(
    tmp_path: Path, security: str
) -> None:
    authority = Authority.made(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.certificate(tmp_path, "mail"))
    way = {"tls_context": context} if security == "starttls" else {"ssl_context": context}
    with mail_server(**way) as (box, port):
        named = {"security": security}
        assert run(settings_of(tmp_path, port, named), "test", "duty") == 1
        assert box.mails == []
        trusted = settings_of(tmp_path, port, named | {"ca_file": authority.file})
        assert run(trusted, "test", "duty") == 0
        assert len(box.mails) == 1
