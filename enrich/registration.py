"""What `enrich` contributes: sessions, assets and rollups, their jobs and commands."""

from __future__ import annotations

from infra.config.sections import InventorySettings
from infra.config.settings import Settings
from infra.delta.catalog import Declared, register_tables
from infra.runtime.command_registry import Build, Command, register_commands
from infra.runtime.job_registry import JobSpec, Later, Starter, register_jobs
from infra.runtime.scheduled_tasks import ScheduledCommand, register_schedule

# The first batch of a job is its dearest, and nobody waits for counts (decision 0017).
_AFTER_ALERTING = Later(45.0)


def register() -> None:
    """Register the tables, jobs and commands of this package."""
    register_tables("enrich", _tables)
    register_jobs(
        JobSpec("sessions", 30, _sessions),
        JobSpec("rollup", 60, _rollup, _AFTER_ALERTING, history=True, idle_because=_no_rollup),
        JobSpec("logins", 70, _logins, _AFTER_ALERTING, history=True, idle_because=_no_rollup),
    )
    register_commands(
        Command("assets", "bring the assets to what an inventory lists", _assets, "take logs in"),
        Command("users", "bring the users to what an inventory lists", _users, "take logs in"),
        Command(
            "rollup",
            "counts: what was compared with the events; count anew",
            _rollup_cli,
            "keep it in order",
        ),
        Command(
            "rebuild", "make a job's checkpoint anew from the tables", _rebuild, "keep it in order"
        ),
    )
    register_schedule(
        ScheduledCommand("load-assets", ("assets", "import"), _assets_minutes),
        ScheduledCommand("load-users", ("users", "import"), _users_minutes),
    )


def _assets_minutes(settings: Settings) -> float:
    return _often(settings.assets)


def _users_minutes(settings: Settings) -> float:
    return _often(settings.users)


def _often(inventory: InventorySettings) -> float:
    return inventory.refresh_minutes if inventory.file else 0


def _no_rollup(settings: Settings) -> str | None:
    off = settings.jobs.rollup_trigger_seconds == 0
    return "jobs.rollup_trigger_seconds = 0" if off else None


def _tables() -> Declared:
    # Imported when asked for: every command registers all packages, few need Spark.
    from enrich.tables import TABLES, VIEWS

    return Declared(TABLES, VIEWS)


def _sessions() -> Starter:
    from enrich.dhcp.sessions_job import sessions

    return sessions


def _rollup() -> Starter:
    from enrich.rollup.jobs import rollup

    return rollup


def _logins() -> Starter:
    from enrich.rollup.jobs import logins

    return logins


def _assets() -> Build:
    from enrich.cli import build_assets

    return build_assets


def _users() -> Build:
    from enrich.cli import build_users

    return build_users


def _rollup_cli() -> Build:
    from enrich.rollup.cli import build

    return build


def _rebuild() -> Build:
    from enrich.dhcp.rebuild_cli import build

    return build
