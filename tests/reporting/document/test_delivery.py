"""Scheduled reports: made when their interval is over, sent once, again where that failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from infra.config.report_sections import MailSettings, ScheduledReportSettings
from infra.config.settings import Settings, load
from infra.errors import Retryable, Usage
from reporting.cli import due_reports
from reporting.document.content import Report, Tile
from reporting.document.mail import message_of, send_report
from reporting.interval import Interval, parse_interval
from tests.mailbox import Mailbox, mail_server

NOW = datetime(2026, 11, 21, 6, tzinfo=UTC)


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, int]]:
    with mail_server() as opened:
        yield opened


def settings_of(home: Path, port: int, **more: Any) -> Settings:
    mail = {"host": "127.0.0.1", "port": port, "security": "none", "sender": "soc@example.org"}
    scheduled = [{"report": "daily", "every": "day", "mail": ["boss@example.org"], **more}]
    return load(home=home, reports={"mail": mail, "scheduled": scheduled})


class Maker:
    """Makes reports without a lake: which were made, and when, is what these tests are about."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(
        self, settings: Settings, name: str, interval: Interval, subject: str, at: datetime
    ) -> Report:
        self.names.append(f"{name} {interval}")
        title = "Daily\r\nBcc: all@example.org"
        return Report(name, title, interval, at, [], [Tile("Alerts", 3)])


def test_a_report_is_made_and_sent_once(tmp_path: Path, mailbox: tuple[Mailbox, int]) -> None:
    (box, port), make = mailbox, Maker()
    settings = settings_of(tmp_path, port)
    assert due_reports.make_due(settings, NOW, make) == 0
    assert due_reports.make_due(settings, NOW + timedelta(hours=1), make) == 0
    assert make.names == ["daily 2026-11-20 to 2026-11-21 UTC"]
    (mail,) = box.mails
    assert mail["To"] == "boss@example.org"
    assert mail["Bcc"] is None
    assert "Alerts: 3" in mail.get_body().get_content()  # type: ignore[union-attr]
    (page,) = mail.iter_attachments()
    assert page.get_filename() == "daily-2026-11-20_2026-11-21.html"
    assert due_reports.make_due(settings, NOW + timedelta(days=1), make) == 0
    assert len(box.mails) == 2


def test_what_was_refused_is_sent_again_later(
    tmp_path: Path, mailbox: tuple[Mailbox, int], capsys: pytest.CaptureFixture[str]
) -> None:
    (box, port), make = mailbox, Maker()
    box.full = True
    assert due_reports.make_due(settings_of(tmp_path, port), NOW, make) == 1
    assert "452 mailbox is full" in capsys.readouterr().err
    box.full = False
    assert due_reports.make_due(settings_of(tmp_path, port), NOW, make) == 0
    assert len(box.mails) == 1


def test_it_waits_for_late_logs() -> None:
    wanted = ScheduledReportSettings(report="daily", every="day", after_hours=7)
    assert str(due_reports.due_interval(wanted, "UTC", NOW)) == "2026-11-19 to 2026-11-20 UTC"
    later = due_reports.due_interval(wanted, "UTC", NOW + timedelta(hours=1))
    assert str(later) == "2026-11-20 to 2026-11-21 UTC"


def test_without_a_server_it_is_said_what_is_missing() -> None:
    report = Report("daily", "Daily", parse_interval("2026-11-20"), NOW, [])
    with pytest.raises(Usage, match=r"reports\.mail\.host is not set"):
        send_report(MailSettings(), ["a@example.org"], report, [])
    away = MailSettings(host="127.0.0.1", port=1, security="none")
    with pytest.raises(Retryable, match=r"mail server 127\.0\.0\.1:1: "):
        send_report(away, ["a@example.org"], report, [])


def test_a_password_never_crosses_a_network_in_the_clear() -> None:
    with pytest.raises(ValueError, match="without TLS"):
        MailSettings(host="mail.example.org", security="none", user="soc")


def test_attachments_keep_their_bytes(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_bytes(b'{"a": "\xc3\xa4"}\n')
    report = Report("daily", "Daily", parse_interval("2026-11-20"), NOW, [])
    mail = message_of("a@b", ["c@d"], report, [file])
    (part,) = mail.iter_attachments()
    assert json.loads(part.get_payload(decode=True)) == {"a": "ä"}  # type: ignore[arg-type]
