"""A made-up alert, by which a webhook is tried."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from alerts.lifecycle.alert_json import SCHEMA_VERSION
from infra.config.webhook_section import WebhookSettings


def sample(now: datetime, hook: WebhookSettings) -> dict[str, Any]:
    """An alert that says it is none; `now` makes its id new, so that no product takes it for old.

    Its fields are those of the topic that the forms show; its addresses are of documentation.
    """
    level = hook.levels[0] if hook.levels else "low"
    stamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    entity = {"type": "ip", "value": "192.0.2.7"}
    return {
        "schema": "urn:headgate:alert:1",
        "schema_version": SCHEMA_VERSION,
        "alert_id": f"headgate-sample-{int(now.timestamp() * 1000)}",
        "revision": 1,
        "change_type": "create",
        "alert_status": "new",
        "activity": "create",
        "state": "open",
        "lifecycle": "new",
        "rule": {
            "id": "headgate-sample",
            "name": "A sample of a webhook",
            "level": level,
            "runbook": "Nothing is to be done: somebody tries the webhook.",
        },
        "severity": level.capitalize(),
        "title": "Sample alert of Headgate, nothing happened",
        "summary": f"Somebody tries webhook {hook.name} with 'headgate webhooks test'.",
        "event_time": stamp,
        "entity": entity,
        "entities": [entity],
        "count": 1,
    }
