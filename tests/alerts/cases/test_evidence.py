"""A bundle of many alerts goes through the tables once, and tells of each what explain tells."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.cases.evidence import write_bundle
from alerts.cases.evidence_check import check_bundle
from alerts.explain.explain import explain
from alerts.explain.provenance import LEASE_REACH, shifted
from ingest.tables import EVENT
from tests.alerts.lifecycle.test_alert_fold import NOON, leased
from tests.api.tenant_desk import TenantDesk, seen, site_part
from tests.headgate.as_code.delta_by_hand import append_rows


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("evidence"))
    yield running
    running.close()


def written(desk: TenantDesk, ids: list[str], file: Path) -> list[str]:
    """Write the bundle of these alerts; the statements that it took."""
    reader, asked = desk.app.state.services.reader, []

    def ask(sql: str, params: Any = None, **how: Any) -> list[dict[str, Any]]:
        asked.append(sql)
        rows: list[dict[str, Any]] = reader.rows(sql, params, **how)
        return rows

    write_bundle(ask, desk.settings, ids, file, who="ann")
    assert check_bundle(file).problems == []
    return asked


@pytest.mark.full
def test_as_many_questions_are_asked_for_six_alerts_as_for_one(
    desk: TenantDesk, tmp_path: Path
) -> None:
    ids = [*desk.ids.values(), *desk.more.values()]
    alone = written(desk, ids[:1], tmp_path / "one.zip")
    assert len(written(desk, ids, tmp_path / "six.zip")) == len(alone)
    assert len(alone) <= 12


def test_each_alert_of_a_bundle_is_explained_as_by_itself(desk: TenantDesk, tmp_path: Path) -> None:
    ids = [*desk.ids.values(), *desk.more.values()]
    written(desk, ids, tmp_path / "all.zip")
    with zipfile.ZipFile(tmp_path / "all.zip") as bundle:
        lines = bundle.read("explanations.ndjson").splitlines()
    together = {row["alert"]["alert_id"]: row for row in map(json.loads, lines)}
    assert together.keys() == set(ids)
    reader = desk.app.state.services.reader
    for alert_id in ids:
        alone = explain(reader.rows, desk.settings, alert_id)
        assert together[alert_id] == json.loads(json.dumps(alone)), alert_id


def test_a_line_of_a_lease_that_began_long_before_is_in_the_bundle(
    desk: TenantDesk, tmp_path: Path
) -> None:
    uid, start = "dhcp-long-ago", NOON - timedelta(days=30)
    line = {"event_uid": uid, "time": start, "received_at": start, "source": "kea",
            "message": "DHCPACK", "class_uid": 4004, "scope": site_part("acme"),
            "tenant_uid": "acme"}  # fmt: skip
    lake = desk.settings.lake_root
    assert isinstance(lake, Path)
    append_rows(lake, EVENT, [line])
    holder = leased("02:00:00:00:00:bb", scope=site_part("acme"), lease_start=start, evidence=[uid])
    (alert_id,) = desk.batch(seen("acme", 200_000) | {"holder": holder})
    written(desk, [alert_id, *desk.ids.values()], tmp_path / "old.zip")
    with zipfile.ZipFile(tmp_path / "old.zip") as bundle:
        events, explanations = (
            [json.loads(row) for row in bundle.read(name).splitlines()]
            for name in ("events.ndjson", "explanations.ndjson")
        )
    assert uid in {row["event_uid"] for row in events}
    (explained,) = (row for row in explanations if row["alert"]["alert_id"] == alert_id)
    alone = explain(desk.app.state.services.reader.rows, desk.settings, alert_id)
    assert explained == json.loads(json.dumps(alone))
    assert "DHCPACK" in json.dumps(explained)


def test_an_alert_of_the_last_days_of_the_year_9999_has_a_bundle(
    desk: TenantDesk, tmp_path: Path
) -> None:
    when = datetime(9999, 12, 30, 12, tzinfo=UTC)
    uid, start = "dhcp-at-the-end", when - timedelta(days=30)
    line = {"event_uid": uid, "time": start, "received_at": NOON, "source": "kea",
            "message": "DHCPACK", "class_uid": 4004, "scope": site_part("acme"),
            "tenant_uid": "acme"}  # fmt: skip
    lake = desk.settings.lake_root
    assert isinstance(lake, Path)
    append_rows(lake, EVENT, [line])
    holder = leased("02:00:00:00:00:cc", scope=site_part("acme"), lease_start=start, evidence=[uid])
    late = seen("acme", (when - NOON).total_seconds()) | {"holder": holder}
    (alert_id,) = desk.batch(late)
    written(desk, [alert_id], tmp_path / "end.zip")
    with zipfile.ZipFile(tmp_path / "end.zip") as bundle:
        events = [json.loads(row) for row in bundle.read("events.ndjson").splitlines()]
    assert uid in {row["event_uid"] for row in events}


def test_times_are_moved_no_further_than_there_are_any() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert shifted(NOON, LEASE_REACH) == NOON + LEASE_REACH
    assert shifted(last - timedelta(days=1), LEASE_REACH) == last
    assert shifted(first + timedelta(days=1), -LEASE_REACH) == first
