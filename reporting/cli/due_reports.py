"""`headgate report due`: what `reports.scheduled` wants is made and sent when due.

What was made and sent is known by the report's own files and by a note beside them, so that it can
run as often as one likes, and what failed is tried again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from alerts.delivery.webhook import Undelivered, post
from infra.config.report_sections import ScheduledReportSettings
from infra.config.settings import Settings
from infra.errors import HeadgateError, Usage
from infra.process.text_output import printable
from infra.storage.state_file import StateFile
from reporting.cli.making import make_report
from reporting.document.archive import forget_old, keep, reports_folder, stem_of
from reporting.document.content import Report
from reporting.document.mail import send_report
from reporting.interval import Interval, parse_interval

_EVERY = {"day": "yesterday", "week": "last-week", "month": "last-month"}
_REMEMBERED = 500


@dataclass
class SentReports:
    """Which reports went where: keys of report, interval and receiver."""

    sent: list[str] = field(default_factory=list)


Make = Callable[[Settings, str, Interval, str, datetime], Report]
"""How a report is made: `reporting.cli.making.make_report`."""


def make_due(settings: Settings, now: datetime, make: Make = make_report) -> int:
    """Make and send what is due; 1 when something failed, which is then tried again next time."""
    note = _note(settings)
    sent = note.read() or SentReports()
    problems = []
    for wanted in settings.reports.scheduled:
        interval = due_interval(wanted, settings.reports.zone, now)
        try:
            problems += _one_report(settings, wanted, interval, sent, now, make)
        except HeadgateError as error:
            problems.append(f"{wanted.report} {interval}: {error}")
        sent.sent = sent.sent[-_REMEMBERED:]
        # After each one: a process that is ended midway sends nothing twice.
        note.write(sent)
    forget_old(settings)
    for problem in problems:
        print(f"headgate: {printable(problem)}", file=sys.stderr)
    return 1 if problems else 0


def due_interval(wanted: ScheduledReportSettings, zone: str, now: datetime) -> Interval:
    """The newest interval that has been over for `after_hours`."""
    return parse_interval(_EVERY[wanted.every], zone, now - timedelta(hours=wanted.after_hours))


def _one_report(
    settings: Settings,
    wanted: ScheduledReportSettings,
    interval: Interval,
    sent: SentReports,
    now: datetime,
    make: Make,
) -> list[str]:
    stem = stem_of(wanted.report, interval, wanted.subject)
    receivers = [("mail", ", ".join(wanted.mail))] if wanted.mail else []
    receivers += [("webhook", wanted.webhook)] if wanted.webhook else []
    waiting = [receiver for receiver in receivers if _key(stem, receiver) not in sent.sent]
    there = (reports_folder(settings) / f"{stem}.json").exists()
    if there and not waiting:
        return []
    report = make(settings, wanted.report, interval, wanted.subject, now)
    files = keep(settings, report, wanted.formats or settings.reports.formats)
    print(printable(str(files[0])))
    problems = []
    for receiver in waiting:
        try:
            _send(settings, wanted, receiver[0], report, files)
        except (HeadgateError, Undelivered) as error:
            problems.append(f"{stem} by {receiver[0]}: {error}")
        else:
            # After it was taken: what failed half-way is sent once more and not lost.
            sent.sent.append(_key(stem, receiver))
    return problems


def _send(
    settings: Settings,
    wanted: ScheduledReportSettings,
    way: str,
    report: Report,
    files: Sequence[Path],
) -> None:
    if way == "mail":
        # JSON is for programs; a person gets it only where nothing else was made.
        chosen = [file for file in files if file.suffix != ".json"] or files
        send_report(settings.reports.mail, wanted.mail, report, chosen)
        return
    hook = next((hook for hook in settings.webhooks if hook.name == wanted.webhook), None)
    if hook is None:
        raise Usage(f"reports.scheduled: no [[webhooks]] entry is called {wanted.webhook}")
    if hook.form != "headgate":
        raise Usage(f"reports.scheduled: webhook {hook.name} has the form {hook.form}, of alerts")
    body = json.dumps(webhook_body(report, files), ensure_ascii=False).encode()
    post(hook, f"{files[0].name}:1", body, int(report.made_at.timestamp()))


def webhook_body(report: Report, files: Sequence[Path]) -> dict[str, object]:
    """What a webhook is told: the head of the report and the names of its files."""
    return {
        "schema": "urn:headgate:report-made:1",
        "report": report.name,
        "title": report.title,
        "since": report.interval.start.isoformat(),
        "until": report.interval.end.isoformat(),
        "zone": report.interval.zone,
        "made_at": report.made_at.isoformat(),
        "notes": list(report.arrival.sentences()) if report.arrival else [],
        "figures": {tile.label: tile.value for tile in report.tiles},
        "files": [file.name for file in files],
    }


def _key(stem: str, receiver: tuple[str, str]) -> str:
    return f"{stem} {receiver[0]} {receiver[1]}"


def _note(settings: Settings) -> StateFile[SentReports]:
    return StateFile(
        settings.home.absolute() / "reports-sent.json",
        SentReports,
        remedy="remove it; reports of the last interval are then sent once more",
    )
