"""An alert is of the tenant whose events made it, and what two tenants' events make is two."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec

from alerts.delivery.alert_message import published_state
from alerts.domain.alert import FoldState
from alerts.domain.finding import identity
from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.alert_lookup import DamagedCount, counting_damaged
from alerts.lifecycle.asset_context import in_context
from alerts.lifecycle.bucket_state import HEADER, BucketState
from alerts.lifecycle.restore_alert import revive_asked
from alerts.lifecycle.risk_score import INCIDENT
from alerts.preliminary.message import preliminary_message
from enrich.attribution.competing_leases import LeaseStatement, rivals_of
from enrich.attribution.confidence import assessed, standing
from enrich.attribution.scopes import in_scope
from infra.config.settings import ScopeSettings, Settings
from infra.storage.compression import compressed
from tests.alerts.lifecycle.test_alert_fold import (
    NOON,
    Bucket,
    action,
    body,
    finding,
    leased,
    tick,
)

HOUR = timedelta(hours=1)


def of(tenant: str | None, second: float, **keys: Any) -> dict[str, Any]:
    return finding(second, uid=f"{tenant}{second}", tenant_uid=tenant, **keys)


def test_findings_of_two_tenants_about_one_device_make_an_alert_each() -> None:
    bucket = Bucket()
    rows = bucket.alerts(of("acme", 0), of("globex", 1), of(None, 2), of("acme", 3))
    assert [(row["tenant_uid"], row["count"]) for row in rows] == [
        ("acme", 2),
        ("globex", 1),
        (None, 1),
    ]
    assert all(body(row)["tenant_uid"] == row["tenant_uid"] for row in rows)
    assert all(row["entity_value"] == "aa" for row in rows)
    assert len({body(row)["group_key"] for row in rows}) == 3
    for row in rows:
        assert all(
            line["snippet"].startswith(f"line {row['tenant_uid']}")
            for line in body(row)["evidence"]
        )
        state = msgspec.json.decode(published_state(with_text(row)["body"].encode()))
        assert state["tenant_uid"] == row["tenant_uid"]


def test_an_alert_stays_its_tenants_when_it_is_anothers_device_and_after_a_close() -> None:
    bucket = Bucket()
    (row,) = bucket.alerts(of("acme", 0))
    (moved,) = bucket.alerts(of("acme", 0, holder=leased("bb"), rev=2))
    assert (moved["alert_id"], moved["tenant_uid"]) == (row["alert_id"], "acme")
    assert moved["entity_value"] == "bb"
    (closed,) = bucket.alerts(action(row["alert_id"], "close", value="benign"))
    assert closed["tenant_uid"] == "acme"
    forgotten = FoldState()
    asked = action(row["alert_id"], "reopen", alert=with_text(closed)["body"])
    revive_asked([asked], forgotten)
    assert forgotten.alerts[row["alert_id"]].tenant_uid == "acme"


def test_a_correlation_counts_each_tenants_findings_by_themselves() -> None:
    """Two of one and two of another are no three of anybody."""
    bucket = Bucket()
    counted = [
        {**of(tenant, second), "target": "c"}
        for second, tenant in enumerate(["acme", "globex", "acme", "globex"])
    ]
    assert [o for o in bucket.step(*counted) if o["out"] == "finding"] == []
    outputs = bucket.step({**of("globex", 5), "target": "c"})
    (told,) = [o["row"] for o in outputs if o["out"] == "finding"]
    assert told["tenant_uid"] == "globex"
    assert told["fields"]["device"] == "device|aa"
    assert {line["event_uid"][:6] for line in told["evidence"]} == {"globex"}
    (row,) = [o["row"] for o in outputs if o["out"] == "alert"]
    assert row["tenant_uid"] == "globex"


def test_a_damaged_alert_of_another_tenant_holds_up_no_attribution() -> None:
    """Two tenants have one address; the damaged alert is about that of one of them."""
    settings = Settings()
    row = {"was": {"holder": {"status": "none"}}}
    told = {"rule_id": "r", "event_uid": "e", "ip": "10.0.0.5"}
    damaged = DamagedCount("a1", "r", "10.0.0.5", "acme", "its body is damaged")
    for tenant, lost in (("acme", damaged.sentence), ("globex", None), (None, None)):
        finding_row = {**told, "tenant_uid": tenant}
        assert counting_damaged([damaged], finding_row, row, settings) == lost
    # The alert that the finding made is its own, whatever it is about now.
    made = identity(settings.alerts.tenant, "r", "e")
    moved = DamagedCount(made, "r", "bb", "globex", "its body is damaged")
    assert counting_damaged([moved], {**told, "tenant_uid": "globex"}, row, settings)


def test_a_damaged_alert_of_another_site_holds_up_no_attribution() -> None:
    settings = Settings()
    row = {"was": {"holder": {"status": "none"}}}
    told = {"rule_id": "r", "event_uid": "e", "ip": "10.0.0.5", "tenant_uid": None}
    damaged = DamagedCount("a1", "r", "10.0.0.5", None, "damaged", "r|ip|north|10.0.0.5")
    for scope, lost in (("north", "damaged"), ("south", None), (None, None)):
        assert counting_damaged([damaged], {**told, "scope": scope}, row, settings) == lost


def test_a_name_that_looks_like_a_tenants_key_is_nobodys_alert_of_that_tenant() -> None:
    nobody = {"status": "none"}
    bucket = Bucket()
    names = {"ip": None, "host_name": None}
    own = finding(0, nobody, user_name="root", tenant_uid="acme", **names)
    logged = finding(1, nobody, user_name="root|tenant|acme", **names)
    rows = bucket.alerts(own, logged)
    assert {(row["entity_value"], row["tenant_uid"]) for row in rows} == {
        ("root", "acme"), ("root|tenant|acme", None),
    }  # fmt: skip
    assert len({row["body"]["group_key"] for row in rows}) == 2


def test_the_risk_of_a_device_is_each_tenants_own() -> None:
    bucket = Bucket(incident_score=100, incident_rules=9, incident_tactics=9)
    heat = [
        {**of(tenant, second), "target": "~risk|device|aa", "rule_id": f"r{second}"}
        for second, tenant in enumerate(["acme", "globex"])
    ]
    assert [o for o in bucket.step(*heat) if o["out"] == "finding"] == []
    (out,) = [
        o["row"]
        for o in bucket.step({**of("acme", 9), "target": "~risk|device|aa", "rule_id": "r9"})
        if o["out"] == "finding"
    ]
    assert (out["rule_id"], out["tenant_uid"]) == (INCIDENT, "acme")
    assert {line["event_uid"][:4] for line in out["evidence"]} == {"acme"}


def stormy(tenant: str | None, count: int, second: float = 0) -> list[dict[str, Any]]:
    """Findings of as many devices of somebody."""
    return [of(tenant, second + n, holder=leased(f"{tenant}-{second}-{n}")) for n in range(count)]


def sums(rows: list[dict[str, Any]]) -> dict[str | None, tuple[int, str]]:
    """Count and title of the summaries, by whose they are."""
    held = [row for row in rows if row["entity_type"] == "rule"]
    return {row["tenant_uid"]: (row["count"], row["title"]) for row in held}


def test_a_noisy_tenant_uses_up_no_budget_but_its_own() -> None:
    bucket = Bucket(hourly_budget=5, count_every_seconds=60)
    noisy = bucket.alerts(*stormy("acme", 200))
    assert sums(noisy) == {"acme": (195, "Guessing: 195 alerts of tenant acme held back")}
    for quiet in ("globex", None):
        rows = bucket.alerts(*stormy(quiet, 5, 300))
        assert [row["suppressed_by"] for row in rows if row["tenant_uid"] == quiet] == [None] * 5
        assert {row["tenant_uid"] for row in rows if row["suppressed_by"] == "budget"} <= {"acme"}


def test_what_is_held_back_is_told_by_tenant() -> None:
    bucket = Bucket(hourly_budget=1, count_every_seconds=60)
    rows = bucket.alerts(*stormy("acme", 3), *stormy("globex", 4, 10), *stormy(None, 2, 20))
    assert sums(rows) == {
        "acme": (2, "Guessing: 2 alerts of tenant acme held back"),
        "globex": (3, "Guessing: 3 alerts of tenant globex held back"),
        None: (1, "Guessing: 1 alerts held back"),
    }
    for row in rows:
        if row["entity_type"] == "rule" and row["tenant_uid"]:
            others = "globex" if row["tenant_uid"] == "acme" else "acme"
            assert others not in str(row)
            assert f"1 alerts an hour of tenant {row['tenant_uid']}" in row["body"]["summary"]
    # Each storm goes on under the summary it began.
    more = sums(bucket.alerts(*stormy("acme", 1, 40), tick(120)))
    assert more["acme"][0] == 3
    assert len({body(row)["group_key"] for row in rows if row["entity_type"] == "rule"}) == 3


def test_a_state_of_one_budget_for_all_goes_on_and_forgets_nothing() -> None:
    """As the release before wrote it: no budget by tenant, and a summary that is nobody's."""
    bucket = Bucket(hourly_budget=2, count_every_seconds=60)
    bucket.alerts(*stormy(None, 3))
    before = BucketState.decode(bucket.blob)._kept
    alerts = before.folds["r"].alerts
    plain = msgspec.msgpack.decode(msgspec.msgpack.encode(before))
    del plain["folds"]["r"]["tenant_budgets"]
    bucket.blob = HEADER + compressed(msgspec.msgpack.encode(plain))
    rows = bucket.alerts(*stormy("acme", 2, 60), *stormy(None, 1, 70), tick(200))
    # What was told in the last hour counts on, as does the storm that is on.
    assert sums(rows) == {None: (2, "Guessing: 2 alerts held back")}
    assert [r["suppressed_by"] for r in rows if r["tenant_uid"] == "acme"] == [None, None]
    after = BucketState.decode(bucket.blob)._kept.folds["r"]
    assert alerts.keys() < after.alerts.keys()
    assert len(after.budget.told) == 2
    assert {name: len(each.told) for name, each in after.tenant_budgets.items()} == {"acme": 2}


def test_no_inventory_is_asked_for_an_alert_of_a_tenant() -> None:
    class Index:
        def asset(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"inventory": "i", "asset_id": "1", "criticality": "high"}

        def user(self, *_: Any) -> None:
            return None

    mine, whole = Bucket().alerts(of("acme", 0), of(None, 1))
    index: Any = Index()
    assert in_context(whole, index)["body"]["asset"]["asset_id"] == "1"
    told = in_context(mine, index)
    assert (told["body"]["asset"], told["body"]["other_assets"]) == (None, [])
    assert told["risk_score"] == mine["risk_score"]


def test_a_preliminary_alert_says_whose_it_is() -> None:
    row = of("acme", 0) | {"answer_by": NOON}
    assert preliminary_message(row, None, None, "default")["tenant_uid"] == "acme"


def test_a_tenants_part_of_a_site_has_its_networks_and_tells_of_no_other_site() -> None:
    site = ScopeSettings(name="default", networks=("10.0.0.0/8",), static=("10.0.0.9",))
    other = ScopeSettings(name="globex-hall", networks=("10.0.0.0/8",))
    assert in_scope("tenant-acme.default", "10.0.0.5", [site])
    assert not in_scope("tenant-acme.other", "10.0.0.5", [site])
    assert standing("10.0.0.5", "tenant-acme.default", [site]) is None
    assert standing("10.0.0.9", "tenant-acme.default", [site]) == "static"
    shared = assessed(leased("aa"), NOON, NOON, complete_up_to=NOON, scopes=[site, other])
    assert "globex-hall" in shared["reason"]
    own = leased("aa", scope="tenant-acme.default")
    assert "globex" not in str(assessed(own, NOON, NOON, complete_up_to=NOON, scopes=[site, other]))


def test_what_another_tenants_dhcp_logs_say_of_an_address_is_no_rival() -> None:
    """The same private address is in use at both."""
    said = [
        LeaseStatement(
            f"tenant-{tenant}.{site}", f"mac-{tenant}-{site}", "s", NOON - HOUR, NOON + HOUR,
            NOON - HOUR, NOON + HOUR, NOON, 1,
        )
        for tenant, site in (("acme", "hall"), ("acme", "default"), ("globex", "default"))
    ]  # fmt: skip
    rivals = rivals_of(said, "tenant-acme.default", "mac-acme-default", NOON)
    assert [rival.mac for rival in rivals] == ["mac-acme-hall"]
