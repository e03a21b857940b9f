"""What `infra` itself contributes: tables of operation and the operator's commands."""

from __future__ import annotations

from math import inf

from infra.delta.catalog import Declared, register_tables
from infra.process.clock import clock
from infra.runtime.command_registry import Build, Command, register_commands
from infra.runtime.outbox_registry import register_outboxes
from infra.runtime.scheduled_tasks import ScheduledCommand, register_schedule


def register() -> None:
    """Register the tables and commands of this package."""
    register_tables("infra", _tables)
    register_commands(
        Command(
            "doctor", "say what is missing on this machine and how to get it", _doctor, "begin"
        ),
        Command("up", "run all jobs in one driver", _doctor, "run the jobs"),
        Command("run", "run one job", _doctor, "run the jobs"),
        Command(
            "install", "systemd units for all jobs and the API on this machine", _install, "begin"
        ),
        Command(
            "status",
            "where each job stands; exit 1 when one misses its target",
            _status,
            "run the jobs",
        ),
        Command(
            "jobs", "list the jobs; let one go on that was stopped for good", _jobs, "run the jobs"
        ),
        Command(
            "compact",
            "merge small files, apply retention, delete what nobody needs",
            _maintenance,
            "keep it in order",
        ),
        Command("audit", "whether anybody changed what ops.audit says", _audit, "keep it in order"),
        Command(
            "backup",
            "copy all that is kept while no job runs; put it back",
            _backup,
            "keep it in order",
        ),
        Command(
            "capacity",
            "cores, memory, partitions and disk for a load, as measured",
            _sizing,
            "begin",
        ),
        Command("tables", "the tables, and what their columns mean", _doctor, "ask the data"),
        Command("settings", "what is set, secrets as *****", _kafka, "begin"),
        Command("kafka", "topics and rights at the broker: acls, topics", _kafka, "begin"),
    )
    register_outboxes(
        ledger="ops.ledger", audit="ops.audit", gap="ops.gap", ledger_check="ops.ledger_check"
    )
    register_schedule(
        # It runs against the clock's doubt, and says the same but once.
        ScheduledCommand(
            "maintenance",
            ("compact", "--due"),
            lambda settings: settings.maintenance.minutes,
            clock.doubt,
            inf,
        )
    )


def _tables() -> Declared:
    # Imported when asked for, as every command registers all packages.
    from infra.delta.ops_tables import TABLES

    return Declared(TABLES)


def _doctor() -> Build:
    from infra.cli.doctor import build

    return build


def _install() -> Build:
    from infra.cli.install import build

    return build


def _status() -> Build:
    from infra.cli.status import build

    return build


def _jobs() -> Build:
    from infra.cli.jobs import build

    return build


def _maintenance() -> Build:
    from infra.cli.maintenance import build

    return build


def _audit() -> Build:
    from infra.cli.audit import build

    return build


def _backup() -> Build:
    from infra.cli.backup import build

    return build


def _sizing() -> Build:
    from infra.cli.sizing import build

    return build


def _kafka() -> Build:
    from infra.cli.kafka import build

    return build
