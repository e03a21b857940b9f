"""A lake with alerts, written without Spark, and the API over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.asset_context import in_context
from alerts.tables import ALERT, ALERT_ACTION
from api.app import create_app
from api.credentials import Credentials
from infra.config.settings import load
from infra.delta.catalog import catalog
from tests.alerts.lifecycle.test_alert_fold import Bucket, finding, leased
from tests.headgate.as_code.delta_by_hand import append_rows


class PlainDesk:
    """Alerts of devices of their own, and a key for each role that is asked for."""

    def __init__(
        self, home: Path, devices: int = 3, general: dict[str, Any] | None = None, **api: Any
    ) -> None:
        """`general`, `api`: further settings, of no section and of the API's."""
        self.settings = load(home=home, api={"token": "t" * 32} | api, **(general or {}))
        self._bucket = Bucket()
        self._batches = 0
        append_rows(self.settings.lake_root, ALERT_ACTION, [])
        self.batch(*[self.seen(number, number) for number in range(devices)])
        self.app = create_app(self.settings)

    def seen(self, device: int, second: float) -> dict[str, Any]:
        """A finding about a device."""
        return finding(second, leased(f"02:00:00:00:00:{device:02}"), uid=f"{device}-{second}")

    def batch(self, *rows: dict[str, Any]) -> list[str]:
        """What job `alert` makes of these rows; the alerts' ids."""
        made = self._bucket.alerts(*rows)
        self._batches += 1
        written = {"sequence": self._batches}
        rows = [with_text(in_context(row, None)) | written for row in made]
        append_rows(self.settings.lake_root, ALERT, rows)
        return [str(row["alert_id"]) for row in made]

    def all_tables(self) -> None:
        """Make every other table of the lake, without rows."""
        root = self.settings.lake_root
        assert isinstance(root, Path)
        for table in catalog().values():
            if not (root / table.path).exists():
                append_rows(root, table, [])

    def client(self, name: str, role: str) -> TestClient:
        """The API for a key of that name, made now."""
        _, token = Credentials(self.settings).add_key(name, role, None)
        running = TestClient(self.app, raise_server_exceptions=False)
        running.headers["Authorization"] = f"Bearer {token}"
        return running

    def browser(self, name: str, role: str) -> TestClient:
        """The console, signed in with a key of that name."""
        _, token = Credentials(self.settings).add_key(name, role, None)
        running = TestClient(self.app, follow_redirects=False)
        assert running.post("/login", data={"key": token, "next": "/"}).status_code == 303
        return running
