"""What `reporting` contributes: reports, the ledger, and the erasure of a person."""

from __future__ import annotations

from infra.runtime.command_registry import Build, Command, register_commands
from infra.runtime.scheduled_tasks import ScheduledCommand, register_schedule


def register() -> None:
    """Register the commands of this package."""
    register_commands(
        Command("report", "write a report", _main, "ask the data"),
        Command(
            "erase",
            "take a person or a device out of all tables, certified",
            _erase,
            "keep it in order",
        ),
        Command("ledger", "received, parsed, dead, unaccounted: by source", _main, "run the jobs"),
    )
    register_schedule(
        ScheduledCommand(
            "ledger", ("ledger", "--check"), lambda settings: settings.jobs.ledger_minutes
        )
    )


def _main() -> Build:
    from reporting.cli.main import build

    return build


def _erase() -> Build:
    from reporting.cli.erase import build

    return build
