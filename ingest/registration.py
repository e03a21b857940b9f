"""What `ingest` contributes: bronze and silver, its commands, and the names of sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from infra.config.settings import Settings
from infra.delta.catalog import Declared, register_tables
from infra.delta.retention import register_source_lookup
from infra.runtime.check_registry import register_check
from infra.runtime.command_registry import Build, Command, register_commands
from infra.runtime.outbox_registry import register_outboxes
from infra.runtime.scheduled_tasks import (
    ScheduledCommand,
    SteadyCommand,
    register_schedule,
    register_steady,
)

if TYPE_CHECKING:  # only `doctor` and `status` look at the machine
    from infra.runtime.machine_checks import Finding


def register() -> None:
    """Register the tables and commands of this package. Its jobs run detection too: see
    `alerts`."""
    register_tables("ingest", _tables)
    register_source_lookup(_lookup)
    register_commands(
        Command(
            "replay", "send log files to Kafka as if they happened now", _replay, "take logs in"
        ),
        Command(
            "import",
            "take archived logs into the tables, without alerts",
            _backfill,
            "take logs in",
        ),
        Command(
            "listen", "take in syslog and OpenTelemetry logs until stopped", _listen, "take logs in"
        ),
        Command("sources", "what can be read", _sources, "take logs in"),
        Command(
            "parse", "turn raw records into OCSF events, without Spark", _parse, "take logs in"
        ),
        Command(
            "gaps", "messages the broker lost unread; go on without them", _gaps, "run the jobs"
        ),
        Command(
            "quality", "check what ingest wrote against expectations", _quality, "keep it in order"
        ),
        Command(
            "reparse",
            "read history again with today's parsers, while the jobs run",
            _reparse,
            "keep it in order",
        ),
    )
    register_outboxes(quality="ops.quality", drift="ops.drift")
    register_check(_listener_findings)
    register_steady(
        SteadyCommand(
            "listen",
            ("listen",),
            lambda settings: settings.listen.wanted and settings.listen.with_jobs,
        )
    )
    register_schedule(
        ScheduledCommand(
            "quality", ("quality", "run"), lambda settings: settings.jobs.quality_minutes
        )
    )


def _listener_findings(settings: Settings) -> Iterable[Finding]:
    if not settings.listen.wanted:
        return ()
    from ingest.listen.listener_status import listener_findings

    return listener_findings(settings)


def _tables() -> Declared:
    from ingest.tables import TABLES, VIEWS

    return Declared(TABLES, VIEWS)


def _lookup(name: str) -> object:
    from ingest.parsing.source import lookup

    return lookup(name)


def _replay() -> Build:
    from ingest.replay.replay import build

    return build


def _backfill() -> Build:
    from ingest.pipeline.backfill import build

    return build


def _listen() -> Build:
    from ingest.listen.cli import build

    return build


def _sources() -> Build:
    from ingest.parsing.source_catalog import build

    return build


def _parse() -> Build:
    from ingest.cli import build

    return build


def _gaps() -> Build:
    from ingest.completeness.gap_cli import build

    return build


def _quality() -> Build:
    from ingest.quality.cli import build

    return build


def _reparse() -> Build:
    from ingest.reparse.reparse import build

    return build
