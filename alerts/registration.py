"""What `alerts` contributes: findings and alerts, the jobs that detect, and their commands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from infra.config.settings import Settings
from infra.delta.catalog import Declared, register_tables
from infra.runtime.alarm import Tell, register_alarm
from infra.runtime.check_registry import register_check
from infra.runtime.command_registry import Build, Command, register_commands
from infra.runtime.job_registry import JobSpec, Later, Starter, register_jobs
from infra.runtime.outbox_registry import register_outboxes
from infra.runtime.scheduled_tasks import (
    ScheduledCommand,
    SteadyCommand,
    register_schedule,
    register_steady,
)

if TYPE_CHECKING:  # the doctor looks; the other commands need nothing of it
    from infra.runtime.machine_checks import Finding


_LARGE_STATE = 32 * 1024 * 1024
"""Bytes on disk of job `alert`'s state, from which on loading it takes seconds: some 100,000
leases."""

_FIRST_ALERTS = 10.0
"""Seconds from the first batch of job `alert`, which is often one of before the start, to the
first alerts about what came since."""


def register() -> None:
    """Register the tables, jobs and commands of this package."""
    register_tables("alerts", _tables)
    register_jobs(
        JobSpec("ingest", 10, _ingest),
        JobSpec("files", 20, _files, idle_because=_no_folders),
        JobSpec("alert", 40, _alert, Later(20.0, "sessions", state_bytes=_LARGE_STATE)),
        JobSpec("repair", 50, _repair, Later(60.0, "alert", rest=_FIRST_ALERTS), history=True),
        JobSpec("models", 80, _models, Later(45.0), history=True, idle_because=_no_model),
    )
    register_commands(
        Command("rules", "list, test, switch rules on and off", _rules, "write rules", _rules_verb),
        Command(
            "models", "anomaly detectors: train, compare, put in force", _models_cli, "write rules"
        ),
        Command(
            "indicators",
            "lists of addresses, domains, hashes that rules ask",
            _indicators,
            "write rules",
        ),
        Command("alerts", "read alerts from the topic or the table", _alerts, "work on alerts"),
        Command(
            "explain",
            "why an alert is there: rule, values that matched, evidence",
            _explain,
            "work on alerts",
        ),
        Command(
            "verify",
            "run the live rules over history: did the stream tell the same?",
            _verify,
            "write rules",
        ),
        Command(
            "evidence",
            "all that is behind alerts or a case as one file, and its check",
            _evidence,
            "work on alerts",
        ),
        Command("suppress", "silence alerts, with a reason, for a time", _triage, "work on alerts"),
        Command("triage", "take, judge or reopen an alert", _triage, "work on alerts"),
        Command(
            "repair",
            "put leases and attributions right after late DHCP lines",
            _reattribution,
            "keep it in order",
        ),
        Command("webhooks", "alerts that wait for webhooks", _webhooks, "work on alerts"),
    )
    register_outboxes(
        alert_action="gold.alert_action", case_act="ops.case_act", rule_cost="ops.rule_cost"
    )
    register_alarm(_platform_alerts)
    register_check(_held_findings)
    register_check(_feed_findings)
    register_check(_preliminary_findings)
    register_check(_drift_findings)
    register_check(_named_rule_findings)
    register_steady(
        SteadyCommand(
            "webhooks", ("webhooks", "deliver"), lambda settings: bool(settings.webhooks)
        ),
        SteadyCommand("preliminary", ("alerts", "tell-early"), _early_lane),
    )
    register_schedule(
        ScheduledCommand(
            "blind", ("rules", "coverage", "--tell"), lambda settings: settings.jobs.quality_minutes
        ),
        # Its age is looked at every six hours: a weekly clock would begin anew with each start.
        ScheduledCommand(
            "retrain",
            ("models", "retrain"),
            # Also where nothing is trained by its age: it notes how models drift, too.
            lambda _: 360.0,
        ),
        ScheduledCommand("feeds", ("indicators", "fetch", "--due"), _feed_minutes),
    )


def _platform_alerts(settings: Settings) -> Tell:
    from alerts.delivery.platform_alert import PlatformAlerts

    return PlatformAlerts(settings)


def _held_findings(settings: Settings) -> Iterable[Finding]:
    from alerts.delivery.held_back import held_findings

    return held_findings(settings)


def _feed_findings(settings: Settings) -> Iterable[Finding]:
    if not settings.intelligence.feeds:
        return ()
    from alerts.feeds.feed_state import feed_findings

    return feed_findings(settings)


def _preliminary_findings(settings: Settings) -> Iterable[Finding]:
    if not settings.kafka.preliminary_topic:
        return ()
    from alerts.preliminary.alarm import preliminary_findings

    return preliminary_findings(settings)


def _drift_findings(settings: Settings) -> Iterable[Finding]:
    if _no_model(settings):
        return ()
    from alerts.anomaly.drift_notes import drift_findings

    return drift_findings(settings)


def _named_rule_findings(settings: Settings) -> Iterable[Finding]:
    if not (settings.alerts.preliminary_rules or settings.alerts.budgets):
        return ()
    from alerts.coverage.named_rules import unknown_rule_findings

    return unknown_rule_findings(settings)


def _early_lane(settings: Settings) -> bool:
    return bool(settings.kafka.preliminary_topic) and settings.alerts.preliminary_by == "lane"


def _feed_minutes(settings: Settings) -> float:
    """How often it is looked which feed is due: not only after the longest of their pauses."""
    pauses = [feed.every_minutes for feed in settings.intelligence.feeds]
    return min([5.0, *pauses]) if pauses else 0


def _no_folders(settings: Settings) -> str | None:
    return None if settings.folders else "[folders] names none"


def _no_model(settings: Settings) -> str | None:
    # Nothing is to be judged before a first model was trained (`headgate models train`).
    trained = (settings.lake_side / "_rules" / "models").is_dir()
    return None if trained else "no model was trained"


def _tables() -> Declared:
    from alerts.tables import TABLES, VIEWS

    return Declared(TABLES, VIEWS)


def _ingest() -> Starter:
    from alerts.matching.detection import ingest_and_detect

    return ingest_and_detect


def _files() -> Starter:
    from alerts.matching.detection import files_and_detect

    return files_and_detect


def _alert() -> Starter:
    from alerts.lifecycle.alert_job import alert

    return alert


def _repair() -> Starter:
    from alerts.reattribution.repair_job import repair

    return repair


def _models() -> Starter:
    from alerts.anomaly.job import models

    return models


def _rules() -> Build:
    from alerts.cli.rulebook.verbs import build

    return build


def _rules_verb(verb: str) -> Build | None:
    from alerts.cli.rulebook.verbs import build_of

    return build_of(verb)


def _models_cli() -> Build:
    from alerts.cli.models import build

    return build


def _indicators() -> Build:
    from alerts.cli.indicators import build

    return build


def _alerts() -> Build:
    from alerts.cli.alerts import build

    return build


def _explain() -> Build:
    from alerts.cli.explain import build

    return build


def _evidence() -> Build:
    from alerts.cli.evidence import build

    return build


def _verify() -> Build:
    from alerts.cli.verify import build

    return build


def _triage() -> Build:
    from alerts.cli.triage import build

    return build


def _reattribution() -> Build:
    from alerts.cli.reattribution import build

    return build


def _webhooks() -> Build:
    from alerts.cli.webhooks import build

    return build
