"""`headgate report due`: what `reports.scheduled` wants is made and sent when due.

What was made and sent is known by the report's own files and by a note beside them, so that it can
run as often as one likes, and what failed is tried again: of a schedule the newest interval, and
once that works, those that failed before. Why it failed is kept for the console and the API.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from alerts.delivery.webhook import Undelivered, post
from infra.config.report_sections import ScheduledReportSettings
from infra.config.settings import Settings
from infra.config.tenants import feed_of
from infra.errors import HeadgateError, Usage
from infra.process.text_output import printable
from infra.runtime.report_failures import ReportFailure, leave_failures, left_failures
from infra.storage.state_file import StateFile
from reporting.cli.making import make_report
from reporting.document.archive import forget_old, keep, stem_of
from reporting.document.content import Report
from reporting.document.mail import send_report
from reporting.interval import Interval, parse_interval

_EVERY = {"day": "yesterday", "week": "last-week", "month": "last-month"}
_REMEMBERED = 500
MOST_MISSED = 31
"""Reports of a schedule that failed and are kept, besides the newest: a month of daily ones."""


@dataclass
class SentReports:
    """Which reports went where: keys of report, interval and receiver."""

    sent: list[str] = field(default_factory=list)


Make = Callable[[Settings, str, Interval, str, datetime, str | None], Report]
"""How a report is made: `reporting.cli.making.make_report`."""


def make_due(settings: Settings, now: datetime, make: Make = make_report) -> int:
    """Make and send what is due; 1 when something failed, which is then tried again next time."""
    look = _Look(settings, now, make)
    before = left_failures(settings, lambda line: print(printable(line), file=sys.stderr))
    failed: list[ReportFailure] = []
    for wanted in settings.reports.scheduled:
        interval = due_interval(wanted, settings.reports.zone, now)
        newest = look.tried(wanted, interval)
        stem = _stem(wanted, interval)
        missed = _newest([each for each in before if each.is_of(wanted) and each.stem != stem])
        # What keeps the newest from being made keeps the others as well.
        failed += newest + (missed if newest else look.tried_again(wanted, missed))
    leave_failures(settings, failed)
    forget_old(settings)
    for failure in look.failed:
        print(f"headgate: {printable(_sentence(failure))}", file=sys.stderr)
    return 1 if look.failed else 0


class _Look:
    """One look at what is due; `failed`: what was tried, and failed."""

    def __init__(self, settings: Settings, now: datetime, make: Make) -> None:
        self._settings, self._now, self._make = settings, now, make
        self._note = _note(settings)
        self._sent = self._note.read() or SentReports()
        self.failed: list[ReportFailure] = []

    def tried(self, wanted: ScheduledReportSettings, interval: Interval) -> list[ReportFailure]:
        """Make and send one where it is not yet; why not, where that failed."""
        try:
            unsent = _one_report(
                self._settings, wanted, interval, self._sent, self._now, self._make
            )
            failed = [_failure(wanted, interval, self._now, why, made=True) for why in unsent]
        except Exception as error:
            # Whatever it is: the reports after it are made all the same.
            known = isinstance(error, HeadgateError | OSError)
            if not known:
                traceback.print_exc()
            why = str(error) if known else f"{type(error).__name__}: {error}"
            failed = [_failure(wanted, interval, self._now, why, made=False)]
        self._sent.sent = self._sent.sent[-_REMEMBERED:]
        # After each one: a process that is ended midway sends nothing twice.
        self._note.write(self._sent)
        self.failed += failed
        return failed

    def tried_again(
        self, wanted: ScheduledReportSettings, missed: Sequence[ReportFailure]
    ) -> list[ReportFailure]:
        """Make and send what failed before, until one fails again; what is missing still."""
        still: list[ReportFailure] = []
        again = True
        for stem in reversed(dict.fromkeys(each.stem for each in missed)):
            known = [each for each in missed if each.stem == stem]
            span = known[0].span if again else ""
            interval = parse_interval(span, self._settings.reports.zone) if span else None
            # A zone that was changed since gives its files other names: it is told of, not made.
            if interval is not None and _stem(wanted, interval) == stem:
                known = self.tried(wanted, interval)
                again = not known
            still = known + still
        return still


def _newest(missed: Sequence[ReportFailure]) -> list[ReportFailure]:
    """Failures of the newest reports that are kept; each may have several, one by each way."""
    stems = list(dict.fromkeys(each.stem for each in missed))[:MOST_MISSED]
    return [each for each in missed if each.stem in stems]


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
    """Make it and send it where it is not yet; what could not be sent."""
    stem = _stem(wanted, interval)
    receivers = [("mail", ", ".join(wanted.mail))] if wanted.mail else []
    receivers += [("webhook", wanted.webhook)] if wanted.webhook else []
    waiting = [receiver for receiver in receivers if _key(stem, receiver) not in sent.sent]
    there = (settings.reports_folder / f"{stem}.json").exists()
    if there and not waiting:
        return []
    report = make(settings, wanted.report, interval, wanted.subject, now, wanted.tenant)
    files = keep(settings, report, wanted.formats or settings.reports.formats)
    print(printable(str(files[0])))
    problems = []
    for receiver in waiting:
        try:
            _send(settings, wanted, receiver[0], report, files)
        except (HeadgateError, Undelivered) as error:
            problems.append(f"by {receiver[0]}: {error}")
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
        "tenant": report.tenant,
        "since": report.interval.start.isoformat(),
        "until": report.interval.end.isoformat(),
        "zone": report.interval.zone,
        "made_at": report.made_at.isoformat(),
        "notes": list(report.arrival.sentences()) if report.arrival else [],
        "figures": {tile.label: tile.value for tile in report.tiles},
        "files": [file.name for file in files],
    }


def _failure(
    wanted: ScheduledReportSettings, interval: Interval, now: datetime, why: str, *, made: bool
) -> ReportFailure:
    return ReportFailure(
        report=wanted.report,
        subject=wanted.subject,
        tenant=wanted.tenant,
        every=wanted.every,
        interval=str(interval),
        stem=_stem(wanted, interval),
        made=made,
        tried_at=now.isoformat(timespec="seconds"),
        problem=why,
        span=f"{interval.start.isoformat()}/{interval.end.isoformat()}",
    )


def _sentence(failure: ReportFailure) -> str:
    if failure.made:
        return f"{failure.stem} {failure.problem}"
    return f"{feed_of(failure.report, failure.tenant)} {failure.interval}: {failure.problem}"


def _stem(wanted: ScheduledReportSettings, interval: Interval) -> str:
    return stem_of(wanted.report, interval, wanted.subject, wanted.tenant)


def _key(stem: str, receiver: tuple[str, str]) -> str:
    return f"{stem} {receiver[0]} {receiver[1]}"


def _note(settings: Settings) -> StateFile[SentReports]:
    return StateFile(
        settings.home.absolute() / "reports-sent.json",
        SentReports,
        remedy="remove it; reports of the last interval are then sent once more",
    )
