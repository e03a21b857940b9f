"""Alerts about the platform itself, which go to the topic without job `alert`: it may be the one
that does not run.

They are not in gold.alert, where only that job writes. Which of them are open, and their revisions,
stands in the progress topic, in the transaction that sends them: so each revision goes out once,
through any crash, as those of the publisher do.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from confluent_kafka import KafkaException, Producer

from alerts.delivery.alert_message import Header, published_body, revision_headers
from alerts.delivery.publisher import named_error
from alerts.domain.alert import About, Alert, Revised
from alerts.domain.finding import identity
from alerts.lifecycle.alert_json import alert_row, bounded, rfc3339
from infra.config.settings import Settings
from infra.kafka.client import produce
from infra.kafka.transactions import fenced_producer, read_all, transaction
from infra.process.clock import clock
from infra.runtime.alarm import Stuck
from infra.runtime.job_registry import JOBS

RULE = "headgate-job-stuck"
NO_PACK = "0" * 32
"""No rule pack found it; the contract wants one."""

STUCK = "A job of the platform makes no progress"
HELD_BACK = "What a job of the platform wrote is held back"


class OpenAlert(msgspec.Struct):
    """An open alert about a job: its id, since when (microseconds), and what it said.

    `held_back`: the job made progress, and what it wrote was not handed on.
    """

    alert_id: str
    since: int
    why: str
    held_back: bool = False


class PlatformAlerts:
    """Tells the alerts topic of jobs that get nowhere, and when they work again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: Producer | None = None
        self._open: dict[str, OpenAlert] = {}

    def __call__(self, stuck: Sequence[Stuck]) -> None:
        """Send what is new; raises `Retryable` when the broker does not take it now."""
        if not stuck and self._client is not None and not self._open:
            return
        try:
            if self._client is None:
                self._begin()
            self._send_records({each.job: each for each in stuck})
        except KafkaException as error:
            self._client = None  # it may be fenced; the next one reads what went out
            raise named_error(error.args[0], self._settings) from None

    def _begin(self) -> None:
        client = fenced_producer(self._settings, "health")
        self._open = {}
        for message in read_all(self._settings, self._settings.kafka.progress_topic):
            value = message.value()
            if message.key() == self._key and value is not None:
                self._open = msgspec.json.decode(value, type=dict[str, OpenAlert])
        self._client = client

    @property
    def _key(self) -> bytes:
        return f"jobs/{self._settings.alerts.tenant}".encode()

    def _send_records(self, stuck: dict[str, Stuck]) -> None:
        new = [each for job, each in stuck.items() if job not in self._open]
        over = [job for job in self._open if job not in stuck]
        if not new and not over:
            return
        after = {job: known for job, known in self._open.items() if job in stuck}
        revisions = [self._closed(job, self._open[job]) for job in over]
        for each in new:
            after[each.job] = self._opened(each)
            revisions.append(self._revised(each.job, after[each.job], "create", "first"))
        self._send(revisions, after)

    def _opened(self, stuck: Stuck) -> OpenAlert:
        since = round(stuck.since * 1_000_000)
        alert_id = identity(self._settings.alerts.tenant, RULE, stuck.job, str(since))
        return OpenAlert(alert_id, since, stuck.why, stuck.held_back)

    def _closed(self, job: str, known: OpenAlert) -> Revised:
        revised = self._revised(job, known, "close", "closed")
        alert = revised.alert
        alert.revision, alert.state, alert.changed_by = 2, "closed", "headgate"
        alert.changed_at = alert.closed_at = round(time.time() * 1_000_000)
        alert.comment = (
            f"what job {job} wrote is handed on again"
            if known.held_back
            else f"job {job} makes progress again"
        )
        return revised

    def _revised(self, job: str, known: OpenAlert, activity: str, reason: str) -> Revised:
        # Without the others no alert comes; what is history can wait for the morning.
        history = job in JOBS and JOBS[job].history
        about = About(
            rule_version="1",
            rule_title=HELD_BACK if known.held_back else STUCK,
            level="high" if history else "critical",
            pack=NO_PACK,
            kind="event",
            mode="live",
            source="headgate",
            role="",
            scope=None,
            ip=None,
            host_name=None,
            user_name=None,
            dst_ip=None,
            snippet=f"job {job}: {known.why}",
            fields={"job": job, "why": known.why},
        )
        alert = Alert(
            alert_id=known.alert_id,
            rule_id=RULE,
            entity_type="rule",  # as of a rule that failed: the contract knows no jobs
            entity_value=f"job {job}",
            entity_key=f"job|{job}",
            first=known.since,
            last=known.since,
            window_start=known.since,
            received=known.since,
            about=about,
            holder=None,
            revision=1,
            count=1,
            total=1,
        )
        return Revised(alert, activity, reason)

    def _send(self, revisions: Sequence[Revised], after: dict[str, OpenAlert]) -> None:
        client, kafka = self._client, self._settings.kafka
        assert client is not None
        with transaction(client):
            for revised in revisions:
                key = revised.alert.alert_id.encode()
                value, headers = self._message(revised)
                produce(client, kafka.alerts_topic, value, key=key, headers=headers)
            produce(client, kafka.progress_topic, msgspec.json.encode(after), key=self._key)
        # Only now: what failed is told at the next look.
        self._open = after

    def _message(self, revised: Revised) -> tuple[bytes, list[Header]]:
        tenant = self._settings.alerts.tenant
        instant = round(clock.time() * 1_000_000)
        row = alert_row(revised, None, tenant, instant, {})
        now = rfc3339(instant)
        body = published_body(bounded(row["body"]), now)
        alert = revised.alert
        # No batch made it, so it has no place in the feed.
        headers = revision_headers(
            tenant, (alert.alert_id, alert.revision), revised.activity, now, None
        )
        return body, headers
