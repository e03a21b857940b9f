"""A lake of two tenants and of nobody, who do the same at the same addresses."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from alerts.cases.case_store import leave_act
from alerts.domain.finding import identity
from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.asset_context import in_context
from alerts.tables import ALERT, ALERT_ACTION, FINDING
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT
from infra.config.tenants import scope_of
from infra.delta.catalog import catalog
from infra.delta.schema import Table
from ingest.tables import EVENT, RECORD
from tests.alerts.lifecycle.test_alert_fold import NOON, finding, leased
from tests.api.flight.flight_desk import FlightDesk
from tests.api.test_tenants import NOBODY, NOW, OTHER, OWN, row, says_whose
from tests.headgate.as_code.delta_by_hand import append_rows

NAMES = {"acme": OWN, "globex": OTHER, None: NOBODY}


IP, MAC = "10.0.0.5", "02:00:00:00:00:aa"
"""What all of them have: devices of one MAC address at one address, each in its own network."""

BEAT = {
    "kind": "heartbeat", "known_at": NOW, "learned_at": NOW, "rev": 9,
    "scope": None, "ip": None, "seg_start": None, "seg_end": None,
}  # fmt: skip


def site_part(tenant: str | None) -> str:
    """The scope of somebody's addresses."""
    return scope_of("default", tenant)


def held(tenant: str | None) -> dict[str, Any]:
    """That a device of that name held the address all the time of their alerts and events."""
    name, day = NAMES[tenant], timedelta(days=1)
    return {
        "scope": site_part(tenant), "ip": IP, "mac": MAC, "hostname": name, "kind": "lease",
        "session_id": name, "seg_start": NOON - day, "seg_end": NOW + day, "rev": 1,
        "session_start": NOON - day, "session_end": NOW + day, "known_at": NOW - day,
        "learned_at": NOW - day, "evidence": {"event_uids": [name], "ended": None},
    }  # fmt: skip


def login(tenant: str | None) -> dict[str, Any]:
    """That a user of that name logged in from the address by SSH."""
    name = NAMES[tenant]
    return {
        "event_uid": f"{name}-login", "time": NOW, "received_at": NOW, "source": "sshd",
        "class_uid": 3002, "class_name": "Authentication", "activity_id": 1, "status_id": 1,
        "metadata": {"product": {"name": "OpenSSH"}}, "src_ip": IP, "scope": site_part(tenant),
        "user_name": name, "message": f"login of {name}", "tenant_uid": tenant,
    }  # fmt: skip


def behind(tenant: str | None) -> list[tuple[Table, dict[str, Any]]]:
    """What is behind somebody's first alert: its finding, event and record."""
    name = NAMES[tenant]
    times = {"time": NOON, "event_time": NOON, "received_at": NOON + timedelta(seconds=1)}
    said = {"tenant_uid": tenant, "source": "sshd", "scope": site_part(tenant), "src_ip": IP,
            "message": f"failed for {name}", "user_name": name, "class_uid": 3002}  # fmt: skip
    record = f"{name}-record"
    return [
        (FINDING, seen(tenant, 0)),
        (EVENT, times | said | {"event_uid": f"{name}-0", "record_ids": [record]}),
        (RECORD, times | said | {"record_id": record, "raw": f"line of {name}".encode()}),
    ]


def attribution(tenant: str | None) -> dict[str, Any]:
    """That somebody's finding was of their device."""
    name = NAMES[tenant]
    return {
        "finding_id": identity("r", f"{name}-0"), "role": "src_endpoint", "rev": 1,
        "event_time": NOW, "via": "join", "attributed_at": NOW,
        "holder": {"scope": site_part(tenant), "mac": MAC, "hostname": name},
    }  # fmt: skip


def seen(tenant: str | None, second: float, **keys: Any) -> dict[str, Any]:
    """A finding that says whose it is in all its texts, about one device and address."""
    name = NAMES[tenant]
    return finding(
        second,
        leased(MAC, hostname=name, scope=site_part(tenant)),
        tenant_uid=tenant,
        **{"uid": f"{name}-{second}", "user_name": name, "fields": {"user.name": name}} | keys,
    )


OTHERS_CASES = tuple(f"case-bb0000000{number}" for number in range(2, 7))
"""Cases in which an alert of others is or was, and one that never had any."""


class TenantDesk(FlightDesk):
    """Two alerts of each tenant and of nobody, all of one rule and device."""

    def __init__(self, home: Path, **general: Any) -> None:
        """`general`: further settings, of no section."""
        super().__init__(home, devices=0, general={"tenants": ["acme", "globex"]} | general)
        lake = self.settings.lake_root
        assert isinstance(lake, Path)
        for table in catalog().values():
            rows = [row(table, OTHER, "globex"), row(table, NOBODY, None)]
            own = [row(table, OWN, "acme")] if says_whose(table) else []
            if table not in (ALERT, ALERT_ACTION):
                read = {"dead_letter_reason": None, "duplicate_of": None} if table is EVENT else {}
                append_rows(lake, table, [each | read for each in own + rows])
        append_rows(lake, DHCP_SEGMENT, [BEAT, *map(held, NAMES)])
        append_rows(lake, EVENT, list(map(login, NAMES)))
        for tenant in NAMES:
            for table, each in behind(tenant):
                append_rows(lake, table, [each])
        append_rows(lake, ATTRIBUTION, [attribution(tenant) for tenant in NAMES])
        self.ids = {tenant: self.made(tenant, 0) for tenant in NAMES}
        # In a commit of its own, so that a list that is there already takes it in.
        self.more = {tenant: self.made(tenant, 90_000) for tenant in NAMES}
        acts = [
            {"action_id": f"a-{alert_id}", "alert_id": alert_id, "rule_id": "r", "action": "note",
             "comment": f"note of {NAMES[tenant]}", "who": "root", "at": NOW}
            for tenant, alert_id in self.ids.items()
        ]  # fmt: skip
        append_rows(lake, ALERT_ACTION, acts)
        self.case("case-aa00000001", OWN, ["acme"])
        self.case("case-bb00000002", f"{OTHER} and {OWN}", ["acme", "globex"])
        self.case("case-bb00000003", OTHER, ["globex"])
        self.case("case-bb00000004", NOBODY, [None])
        self.case("case-bb00000005", OTHER, [])
        # What was noted is still about the alert that was taken out again.
        self.case("case-bb00000006", OTHER, ["acme", "globex"])
        taken = [self.ids["globex"]]
        leave_act(self.settings, "case-bb00000006", "unlink", who=OTHER, at=NOW, alert_ids=taken)
        self.case("case-aa00000007", OWN, ["acme"])
        into = "case-bb00000002"
        leave_act(self.settings, "case-aa00000007", "merge", who="root", at=NOW, value=into)

    def case(self, case_id: str, name: str, tenants: list[str | None]) -> None:
        """A case that somebody opened, with the first alert of each of these."""
        ids = [self.ids[tenant] for tenant in tenants]
        leave_act(self.settings, case_id, "open", who=name, at=NOON, value=f"case of {name}",
                  comment=f"case note of {name}", alert_ids=ids)  # fmt: skip

    def batch(self, *rows: dict[str, Any]) -> list[str]:
        """As job `alert` writes them, with their place in the feed."""
        made = [with_text(in_context(each, None)) for each in self._bucket.alerts(*rows)]
        lake = self.settings.lake_root
        assert isinstance(lake, Path)
        self.sequence = getattr(self, "sequence", 0) + 1
        append_rows(lake, ALERT, [each | {"sequence": self.sequence} for each in made])
        return [str(each["alert_id"]) for each in made]

    def made(self, tenant: str | None, second: float, **keys: Any) -> str:
        (alert_id,) = self.batch(seen(tenant, second, **keys))
        return alert_id

    def limited(self, name: str, role: str = "analyst", tenant: str = "acme") -> TestClient:
        client = TestClient(self.app, raise_server_exceptions=False)
        client.headers["Authorization"] = f"Bearer {self.key(name, role, tenants=(tenant,))}"
        return client

    @property
    def others(self) -> list[str]:
        return [ids[tenant] for ids in (self.ids, self.more) for tenant in ("globex", None)]


def assert_own(desk: TenantDesk, text: str, *asked: str) -> None:
    """Nothing of anybody else stands in an answer but what was asked for by name."""
    for word in asked:
        text = text.replace(word, "")
    assert OTHER not in text
    assert NOBODY not in text
    assert "globex" not in text
    for alert_id in desk.others:
        assert alert_id[:8] not in text
    assert "case-bb" not in text
