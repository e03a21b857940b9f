"""Findings that are attributed anew bring their alerts along; a damaged alert is made by nobody."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.alert_lookup import with_alerts
from alerts.lifecycle.asset_context import in_context
from alerts.tables import ALERT
from infra.streaming.lake import Lake
from tests.alerts.lifecycle.test_alert_fold import NOON, Bucket, finding, leased
from tests.api.story import insert

BROKEN = '{"alert_id": "x", "rule": {"id'


def anew(uid: str, second: float, mac: str) -> dict[str, Any]:
    """A row of gold.attribution for a finding of a device."""
    event_time = NOON + timedelta(seconds=second)
    told = {"rule_id": "r", "event_uid": uid, "ip": "10.0.0.5", "tenant_uid": None}
    was = {"rev": 1, "holder": {"status": "leased", "mac": mac}}
    return {
        "finding_id": f"f-{uid}", "event_time": event_time, "finding": json.dumps(told), "was": was,
    }  # fmt: skip


@pytest.mark.full
def test_a_finding_of_a_damaged_alert_stays_as_it_was_and_says_so(lake: Lake) -> None:
    made = Bucket().alerts(
        finding(0, leased("aa"), uid="whole"), finding(1, leased("bb"), uid="damaged")
    )
    rows = [with_text(in_context(row, None)) | {"sequence": 1} for row in made]
    (broken,) = [row for row in rows if row["entity_value"] == "bb"]
    # The revision before it is whole, and its number is not where the alert ended.
    insert(lake, ALERT, [*rows, broken | {"revision": 2, "body": BROKEN}])
    asked = [anew("whole", 0, "aa"), anew("damaged", 1, "bb"), anew("later", 1, "bb"),
             anew("other", 5, "cc")]  # fmt: skip
    counted = with_alerts(lake, asked)
    told = {row["finding_id"]: json.loads(row["finding"]) for row in counted.rows}
    assert set(told) == {"f-whole", "f-other"}
    assert told["f-whole"]["alert"]["entity"]["value"] == "aa"
    assert "alert" not in told["f-other"]
    assert len(counted.left_out) == 2
    for sentence, uid in zip(counted.left_out, ("damaged", "later"), strict=True):
        assert sentence.startswith(f"finding f-{uid} stays as it was attributed: alert ")
        assert f"{broken['alert_id']}, revision 2: its body is damaged" in sentence
    assert with_alerts(lake, []).rows == []
