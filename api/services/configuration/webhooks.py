"""Webhooks over REST: what the settings say of them, what waits, and a try."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from alerts.delivery.webhook import Undelivered
from alerts.delivery.webhook_queue import Queue, hook_named, queue_file
from alerts.delivery.webhook_try import try_hook
from api.observability.audit_log import audit_request
from api.wire import webhooks as wire
from infra.config.settings import Settings, WebhookSettings
from infra.config.webhook_section import ADDRESS_IS_SECRET

CHANGED_BY = (
    "[[webhooks]] of the settings file, since its secrets may not pass through the API; they count "
    "from the next start of the driver of job ingest"
)
MOST_QUEUED_SHOWN = 1_000
Row = dict[str, Any]


def hooks(settings: Settings) -> wire.Webhooks:
    """All webhooks of the settings."""
    rows = _rows(settings)
    return wire.Webhooks(
        items=[_item(hook, rows) for hook in settings.webhooks], changed_by=CHANGED_BY
    )


def one_hook(settings: Settings, name: str) -> wire.WebhookItem:
    """One webhook; raises `NoSuchWebhook`."""
    return _item(hook_named(settings, name), _rows(settings))


def deliveries(settings: Settings, state: str | None) -> wire.Deliveries:
    """What waits and what was given up, oldest first."""
    rows = [row for row in _rows(settings) if state in (None, row["state"])]
    return wire.Deliveries(
        items=[_delivery(row) for row in rows[:MOST_QUEUED_SHOWN]], total=len(rows)
    )


def send_sample(settings: Settings, who: str, name: str) -> wire.WebhookTried:
    """Send a made-up alert; a hook that does not take it is an answer, not an error."""
    problem = None
    try:
        try_hook(settings, name)
    except Undelivered as error:
        problem = str(error)
    outcome = "failed" if problem else "ok"
    audit_request(settings, "webhook.test", outcome, who=who, target=name)
    return wire.WebhookTried(name=name, taken=problem is None, problem=problem)


def retry(settings: Settings, who: str, name: str) -> wire.WebhookRetried:
    """Give what was given up for a hook another day."""
    hook_named(settings, name)
    count = 0
    # Without the file nothing ever waited; asking must not make it.
    if queue_file(settings).exists():
        queue = Queue(queue_file(settings))
        try:
            count = queue.again(name, time.time())
        finally:
            queue.close()
    audit_request(settings, "webhook.retry", "ok", who=who, target=name, detail={"again": count})
    return wire.WebhookRetried(
        name=name, again=count, visible="at once where webhooks are delivered, else when they are"
    )


def _rows(settings: Settings) -> list[Row]:
    if not queue_file(settings).exists():
        return []
    queue = Queue(queue_file(settings))
    try:
        return queue.listed()
    finally:
        queue.close()


def _item(hook: WebhookSettings, rows: Sequence[Row]) -> wire.WebhookItem:
    mine = [row for row in rows if row["hook"] == hook.name]
    problems = [row["problem"] for row in mine if row["problem"]]
    return wire.WebhookItem(
        name=hook.name,
        form=hook.form,
        url=_shown(hook),
        secret=_source(hook),
        levels=list(hook.levels),
        rules=list(hook.rules),
        entities=list(hook.entities),
        tenant=hook.tenant,
        allow_private=hook.allow_private,
        timeout_seconds=hook.timeout_seconds,
        waiting=sum(row["state"] == "waiting" for row in mine),
        dead=sum(row["state"] == "dead" for row in mine),
        problem=problems[-1] if problems else None,
    )


def _shown(hook: WebhookSettings) -> str | None:
    if hook.form in ADDRESS_IS_SECRET or not hook.url:
        return None
    # Products put keys into the query, and a user may stand before the host.
    parts = urlsplit(hook.url)
    query = "?*****" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}{query}"


def _source(hook: WebhookSettings) -> Literal["secret", "secret_env", "secret_file"]:
    if hook.secret is not None:
        return "secret"
    return "secret_env" if hook.secret_env is not None else "secret_file"


def _delivery(row: Row) -> wire.Delivery:
    waits = row["state"] == "waiting"
    return wire.Delivery.model_validate(
        row
        | {
            "queued_at": datetime.fromtimestamp(row["queued_at"], UTC),
            "next_at": datetime.fromtimestamp(row["next_at"], UTC) if waits else None,
        }
    )
