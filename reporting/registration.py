"""What `reporting` contributes: reports, the ledger, and the erasure of a person."""

from __future__ import annotations

from infra.config.settings import Settings
from infra.runtime.command_registry import Build, Command, register_commands
from infra.runtime.scheduled_tasks import ScheduledCommand, register_schedule


def register() -> None:
    """Register the commands of this package."""
    register_commands(
        Command("report", "write a report, or list and schedule them", _report, "ask the data"),
        Command(
            "erase",
            "take a person or a device out of all tables, certified",
            _erase,
            "keep it in order",
        ),
        Command(
            "ledger", "received, parsed, dead, unaccounted: by source", _ledger, "run the jobs"
        ),
    )
    register_schedule(
        ScheduledCommand(
            "ledger", ("ledger", "--check"), lambda settings: settings.jobs.ledger_minutes
        ),
        ScheduledCommand("report", ("report", "due"), _report_minutes),
    )


def _report_minutes(settings: Settings) -> float:
    """Nothing is looked at where no report is scheduled."""
    return settings.reports.check_minutes if settings.reports.scheduled else 0


def _report() -> Build:
    from reporting.cli.report import build

    return build


def _ledger() -> Build:
    from reporting.cli.ledger import build

    return build


def _erase() -> Build:
    from reporting.cli.erase import build

    return build
