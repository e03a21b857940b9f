"""Scheduled reports that failed: left by `headgate report due` for who reads no log.

Each is told until its report was made and sent, or somebody dismisses it: the next interval's
report is no substitute for one that is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from infra.config.report_sections import ScheduledReportSettings
from infra.config.settings import Settings
from infra.storage.state_file import InstantText, StateFile

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportFailure:
    """The last try of a schedule's report. `stem`: what its files are called; `made`: it was made,
    and not sent; `span`: the interval as it is asked for, empty: by an earlier release, which did
    not try again."""

    report: str
    subject: str
    tenant: str | None
    every: str
    interval: str
    stem: str
    made: bool
    tried_at: InstantText
    problem: str
    span: str = ""

    def is_of(self, schedule: ScheduledReportSettings) -> bool:
        """Whether it is what that schedule came to."""
        own = self.report, self.subject, self.tenant, self.every
        return own == (schedule.report, schedule.subject, schedule.tenant, schedule.every)


@dataclass
class ReportFailures:
    """Those of the last look at what is due, and of earlier ones what is missing still."""

    failed: list[ReportFailure] = field(default_factory=list)


@dataclass
class DismissedReports:
    """`stems` of those of which nobody wants to be told any more."""

    stems: list[str] = field(default_factory=list)


_DISMISSED_KEPT = 500


def leave_failures(settings: Settings, failed: list[ReportFailure]) -> None:
    """Leave those of a look, in place of those of the one before."""
    if failed:
        _file(settings).write(ReportFailures(failed))
    else:
        _file(settings).remove()


def left_failures(
    settings: Settings, tell: Callable[[str], Any] = _log.warning
) -> list[ReportFailure]:
    """What the last look left, without what a person had made meanwhile, or dismissed.

    `tell`: of a damaged file, which the next look replaces.
    """
    left = _file(settings).read_or(ReportFailures(), tell).failed
    dismissed = _dismissed(settings).read_or(DismissedReports(), tell).stems if left else []
    return [each for each in left if each.stem not in dismissed and not _made_since(settings, each)]


def dismiss_failure(settings: Settings, stem: str) -> list[ReportFailure]:
    """Have nobody told of a report any more, nor have it tried again once its interval is not the
    newest; what was told of it. Empty: nothing was."""
    dismissed = [each for each in left_failures(settings) if each.stem == stem]
    if dismissed:
        file = _dismissed(settings)
        former = file.read_or(DismissedReports(), _log.warning).stems
        file.write(DismissedReports([*former, stem][-_DISMISSED_KEPT:]))
    return dismissed


def _made_since(settings: Settings, failure: ReportFailure) -> bool:
    file = settings.reports_folder / f"{failure.stem}.json"
    if failure.made or not file.exists():
        return False
    written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    return written >= datetime.fromisoformat(failure.tried_at)


def _file(settings: Settings) -> StateFile[ReportFailures]:
    return StateFile(
        settings.home.absolute() / "reports-failed.json",
        ReportFailures,
        remedy="remove it; the next look at scheduled reports writes it anew",
    )


def _dismissed(settings: Settings) -> StateFile[DismissedReports]:
    return StateFile(
        settings.home.absolute() / "reports-dismissed.json",
        DismissedReports,
        remedy="remove it; reports that failed and were dismissed are then notified again",
    )
