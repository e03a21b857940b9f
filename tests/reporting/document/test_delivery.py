"""Scheduled reports: made when their interval is over, sent once, again where that failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from infra.config.report_sections import MailSettings, ScheduledReportSettings
from infra.config.settings import Settings, load
from infra.errors import Retryable, Usage
from infra.runtime.report_failures import ReportFailure, dismiss_failure, left_failures
from reporting.cli import due_reports
from reporting.document.archive import keep
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
    return load(home=home, tenants=["acme"], reports={"mail": mail, "scheduled": scheduled})


class Maker:
    """Makes reports without a lake: which were made, and when, is what these tests are about."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(
        self,
        settings: Settings,
        name: str,
        interval: Interval,
        subject: str,
        at: datetime,
        tenant: str | None,
    ) -> Report:
        self.names.append(f"{name} {interval}")
        title = "Daily\r\nBcc: all@example.org"
        return Report(name, title, interval, at, [], [Tile("Alerts", 3)], tenant=tenant)


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


def test_a_report_of_a_tenant_is_sent_beside_the_one_of_all(
    tmp_path: Path, mailbox: tuple[Mailbox, int]
) -> None:
    (box, port), make = mailbox, Maker()
    theirs = settings_of(tmp_path, port, tenant="acme").reports.scheduled[0]
    both = settings_of(tmp_path, port)
    reports = both.reports.model_copy(update={"scheduled": (*both.reports.scheduled, theirs)})
    settings = both.model_copy(update={"reports": reports})
    for _ in range(2):
        assert due_reports.make_due(settings, NOW, make) == 0
    assert len(make.names) == len(box.mails) == 2
    names = [next(iter(mail.iter_attachments())).get_filename() for mail in box.mails]
    assert names == [f"{whose}daily-2026-11-20_2026-11-21.html" for whose in ("", "tenant-acme.")]
    assert str(box.mails[1]["Subject"]).endswith(", tenant acme")
    assert "tenant" not in str(box.mails[0]["Subject"])


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


def failure_of(settings: Settings) -> ReportFailure | None:
    (wanted,) = settings.reports.scheduled
    return next((each for each in left_failures(settings) if each.is_of(wanted)), None)


def test_why_a_schedule_brought_nothing_is_left_until_it_brings_something(
    tmp_path: Path, mailbox: tuple[Mailbox, int], capsys: pytest.CaptureFixture[str]
) -> None:
    (box, port), make = mailbox, Maker()
    settings = settings_of(tmp_path, port)

    def full(*given: Any) -> Report:
        raise Retryable("the disk is full")

    def broken(*given: Any) -> Report:
        raise KeyError("alerts")

    assert due_reports.make_due(settings, NOW, full) == 1
    left = failure_of(settings)
    assert left is not None
    assert (left.made, left.problem) == (False, "the disk is full")
    assert left.interval == "2026-11-20 to 2026-11-21 UTC"
    # What nobody foresaw is left as well, with its trace in the log.
    assert due_reports.make_due(settings, NOW, broken) == 1
    assert getattr(failure_of(settings), "problem", None) == "KeyError: 'alerts'"
    assert "Traceback" in capsys.readouterr().err
    # Somebody has it made.
    keep(settings, make(settings, "daily", parse_interval("2026-11-20"), "", NOW, None), ("html",))
    assert failure_of(settings) is None
    box.full = True
    assert due_reports.make_due(settings, NOW, make) == 1
    unsent = failure_of(settings)
    assert unsent is not None
    assert unsent.made
    assert "452 mailbox is full" in unsent.problem
    box.full = False
    assert due_reports.make_due(settings, NOW, make) == 0
    assert failure_of(settings) is None
    assert not (tmp_path / "reports-failed.json").exists()


def missing(settings: Settings) -> list[str]:
    return [each.interval[:10] for each in left_failures(settings)]


def full(*given: Any) -> Report:
    raise Retryable("the disk is full")


def test_what_is_missing_is_told_and_made_after_the_next_one_was(
    tmp_path: Path, mailbox: tuple[Mailbox, int]
) -> None:
    (box, port), make = mailbox, Maker()
    settings = settings_of(tmp_path, port)
    for days in range(3):
        assert due_reports.make_due(settings, NOW + timedelta(days=days), full) == 1
    assert missing(settings) == ["2026-11-22", "2026-11-21", "2026-11-20"]
    tries: list[Interval] = []

    def oldest_fails(*given: Any) -> Report:
        tries.append(given[2])
        if len(tries) == 2:
            raise Retryable("it is full again")
        return make(*given)

    # The newest first; then the others, the oldest first, until one fails again.
    assert due_reports.make_due(settings, NOW + timedelta(days=2), oldest_fails) == 1
    assert [f"{each.start:%d}" for each in tries] == ["22", "20"]
    assert missing(settings) == ["2026-11-21", "2026-11-20"]
    assert left_failures(settings)[1].problem == "it is full again"
    assert due_reports.make_due(settings, NOW + timedelta(days=2), make) == 0
    assert missing(settings) == []
    assert make.names == [f"daily 2026-11-{day} to 2026-11-{day + 1} UTC" for day in (22, 20, 21)]
    assert len(box.mails) == 3
    assert due_reports.make_due(settings, NOW + timedelta(days=2), make) == 0
    assert len(box.mails) == 3


def test_what_was_made_and_not_sent_is_sent_after_the_next_one_was(
    tmp_path: Path, mailbox: tuple[Mailbox, int]
) -> None:
    (box, port), make = mailbox, Maker()
    settings = settings_of(tmp_path, port)
    box.full = True
    assert due_reports.make_due(settings, NOW, make) == 1
    box.full = False
    assert due_reports.make_due(settings, NOW + timedelta(days=1), make) == 0
    assert (missing(settings), len(box.mails)) == ([], 2)


def test_a_missing_report_is_dismissed(
    tmp_path: Path, mailbox: tuple[Mailbox, int], capsys: pytest.CaptureFixture[str]
) -> None:
    (box, port), make = mailbox, Maker()
    settings = settings_of(tmp_path, port)
    for days in range(2):
        due_reports.make_due(settings, NOW + timedelta(days=days), full)
    words = ["--home", str(tmp_path), "report", "due", "--dismiss"]
    assert main([*words, "daily-2026-11-19_2026-11-20"]) == 2
    assert "these are: daily-2026-11-21_2026-11-22, daily-2026-11-20_2026-11-21" in (
        capsys.readouterr().err
    )
    assert main([*words, "daily-2026-11-20_2026-11-21"]) == 0
    assert missing(settings) == ["2026-11-21"]
    assert due_reports.make_due(settings, NOW + timedelta(days=1), make) == 0
    assert make.names == ["daily 2026-11-21 to 2026-11-22 UTC"]
    # The newest is tried on all the same, and nobody is told of it.
    due_reports.make_due(settings, NOW + timedelta(days=2), full)
    assert main([*words, "daily-2026-11-22_2026-11-23"]) == 0
    assert due_reports.make_due(settings, NOW + timedelta(days=2), full) == 1
    assert missing(settings) == []
    assert due_reports.make_due(settings, NOW + timedelta(days=2), make) == 0
    assert len(box.mails) == 2


def test_a_month_of_missing_reports_is_kept(tmp_path: Path, mailbox: tuple[Mailbox, int]) -> None:
    settings = settings_of(tmp_path, mailbox[1])
    for days in range(40):
        due_reports.make_due(settings, NOW + timedelta(days=days), full)
    assert len(missing(settings)) == due_reports.MOST_MISSED + 1
    assert missing(settings)[0] == "2026-12-29"


def test_what_an_earlier_release_left_is_told_until_it_is_dismissed(
    tmp_path: Path, mailbox: tuple[Mailbox, int]
) -> None:
    settings, make = settings_of(tmp_path, mailbox[1]), Maker()
    due_reports.make_due(settings, NOW, full)
    file = tmp_path / "reports-failed.json"
    known = json.loads(file.read_text())
    del known["failed"][0]["span"]
    file.write_text(json.dumps(known))
    assert due_reports.make_due(settings, NOW + timedelta(days=1), make) == 0
    assert missing(settings) == ["2026-11-20"]
    assert dismiss_failure(settings, "daily-2026-11-20_2026-11-21")
    assert missing(settings) == []


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
