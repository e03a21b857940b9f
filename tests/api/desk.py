"""A desk with alerts on it: a lake, the API over it, and the state of job `alert` between them."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any

from fastapi.testclient import TestClient

from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.asset_context import in_context
from alerts.lifecycle.bucket_state import BucketState
from alerts.tables import ALERT, ALERT_ACTION
from api.app import create_app
from infra.config.settings import Settings
from infra.runtime.outbox_flusher import flush_outbox
from infra.streaming.lake import Lake
from tests.alerts.lifecycle.test_alert_fold import DETECTED, finding, load
from tests.api.story import insert

TOKEN = "the-token-of-the-desk"
_RUN_SECONDS = 60.0


class Desk:
    """What people ask over REST waits until `batch`, as it does without a driver."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.blob = BucketState().encode()
        self.app = create_app(lake.settings)
        self.load = load
        self.seen: set[str] = set()
        self.sequence = 0

    def client(self, token: str = TOKEN) -> TestClient:
        """The API for whoever has that token."""
        running = TestClient(self.app, raise_server_exceptions=False)
        running.headers["Authorization"] = f"Bearer {token}"
        return running

    def batch(self, *findings: dict[str, Any], at: datetime | None = None) -> list[dict[str, Any]]:
        """Fold what waits into the table, and let job `alert` take it and these findings.

        `at`: when it does so; a fixed instant unless told.
        """
        detected = DETECTED if at is None else int(at.timestamp()) * 1_000_000
        flush_outbox(self.lake, ALERT_ACTION, self.lake.spool / "alert_action")
        asked = [row.asDict() for row in self.lake.read(ALERT_ACTION).collect()]
        fresh = [row for row in asked if row["action_id"] not in self.seen]
        self.seen |= {row["action_id"] for row in fresh}
        rows = [row | {"row_kind": "action", "target": row["rule_id"]} for row in fresh]
        for row in rows:
            if row["action"] in ("suppress", "unsuppress"):
                row["target"] = None
        state = BucketState.decode(self.blob)
        outputs = state.step([*findings, *rows], self.load, self.lake.settings.alerts, detected)
        self.blob = state.encode()
        self.sequence += 1
        number = {"batch": self.sequence, "sequence": self.sequence}
        made = [
            with_text(in_context(output["row"], None)) | number
            for output in outputs
            if output["out"] == "alert"
        ]
        insert(self.lake, ALERT, made)
        return made

    def body(self, alert_id: str) -> dict[str, Any]:
        """The newest revision as the API answers it."""
        answered = self.client().get(f"/api/v1/alerts/{alert_id}")
        assert answered.status_code == 200, answered.text
        found: dict[str, Any] = answered.json()["body"]
        return found

    def etag(self, alert_id: str) -> str:
        """The ETag of an alert."""
        answered = self.client().get(f"/api/v1/alerts/{alert_id}")
        assert answered.status_code == 200, answered.text
        return str(answered.headers["etag"])


def alert_of(device: str, second: float, **keys: Any) -> dict[str, Any]:
    """A finding that makes an alert about a device of its own."""
    from tests.alerts.lifecycle.test_alert_fold import leased

    return finding(second, leased(device), uid=f"{device}-{second}", **keys)


def ended(client: TestClient, address: str) -> dict[str, Any]:
    """A run of a command once it is over, from where it is told of."""
    end = time.monotonic() + _RUN_SECONDS
    while (run := client.get(address).json())["state"] in ("queued", "running"):
        assert time.monotonic() < end, run
        time.sleep(0.1)
    return dict(run)


def audited(settings: Settings) -> list[dict[str, Any]]:
    """Acts that wait to be folded into ops.audit, by time."""
    folder = settings.home / "spool" / "audit"
    rows = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return sorted(rows, key=lambda row: str(row["at"]))
