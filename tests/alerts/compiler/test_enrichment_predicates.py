"""Rules that ask of the holder, the asset and the person: matched at once, confirmed later."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from alerts.backtest.fold import Refold
from alerts.compiler.compiler import Compiled, compile_rules
from alerts.compiler.enrichment_predicates import Confirming, decided_index, split_predicate, who
from alerts.compiler.sigma_to_predicate import Untranslatable
from alerts.domain.entity import micros
from alerts.domain.finding import counts
from alerts.explain import finding
from alerts.lifecycle.bucket_state import BucketState
from alerts.lifecycle.stateful_operator import stepper
from alerts.rulebook.rule_tests import check_rules
from alerts.rulepack.locations import store_folder
from alerts.rulepack.predicate import All, Either, Test
from alerts.rulepack.rule_pack import PackStore, RulePack
from alerts.tables import FINDING
from enrich.assets.index import AssetIndex, build
from enrich.assets.index_store import index_path
from enrich.tables_assets import ASSET_VERSION, USER_VERSION
from infra.config.settings import load
from infra.delta.parquet_writer import arrow_schema
from tests.alerts.history import A, B, Row, at, login
from tests.alerts.lifecycle.test_alert_fold import action
from tests.enrich.assets.test_registers import asset, user

CROWN = "33333333-0000-4000-8000-000000000001"
NAMES = FINDING.schema.fieldNames()
SSHD, LEASED, KNOWN = "service.name: sshd", "holder.status: leased", "person.department: IT"
SIGMA = f"""
title: Root refused at what matters
id: {CROWN}
logsource: {{product: linux, service: sshd}}
detection:
  refused:
    status_id: 2
  crown:
    asset.criticality: [high, critical]
    holder.status: leased
  known:
    person.department: null
  condition: refused and crown and not known
level: high
headgate:
  tests:
    match:
      - {{{SSHD}, status_id: 2, asset.criticality: high, {LEASED}, {KNOWN}}}
    no_match:
      - {{{SSHD}, status_id: 2, asset.criticality: low, {LEASED}, {KNOWN}}}
      - {{{SSHD}, status_id: 2, asset.criticality: high, holder.status: none, {KNOWN}}}
      - {{{SSHD}, status_id: 2, asset.criticality: high, {LEASED}}}
      - {{{SSHD}, status_id: 1, asset.criticality: high, {LEASED}, {KNOWN}}}
"""
SQL = f"""
title: Root refused at what matters
id: {CROWN}
level: high
type: sql
query: SELECT event_uid FROM event WHERE status_id = 2
confirm:
  asset.tags: payroll
"""


def compiled(folder: Path, text: str) -> Compiled:
    (folder / "rule.yml").write_text(text, "utf-8")
    return compile_rules([folder / "rule.yml"])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Inventories: B's machine matters since long, A's only for a while."""
    listed = [
        asset("a", -3600, macs=[A], criticality="low"),
        asset("b", -3600, macs=[B], criticality="high", tags=["payroll"]),
    ]
    for row in listed:
        row["valid_from"] = at(-3600)
    users = [user("1", -3600, name="root", department="IT") | {"valid_from": at(-3600)}]
    made = index_path(load(home=tmp_path), "1-1")
    build(
        made,
        pa.Table.from_pylist(listed, arrow_schema(ASSET_VERSION)),
        pa.Table.from_pylist(users, arrow_schema(USER_VERSION)),
    )
    return made


def attributed(pack: str, uid: str, seconds: float, mac: str, **more: Any) -> Row:
    """A finding of the rule whose address was that device's."""
    return {
        **login(uid, seconds),
        "row_kind": "finding",
        "target": CROWN,
        "finding_id": f"finding-{uid}",
        "rule_id": CROWN,
        "rule_version": "1",
        "rule_title": "Root refused",
        "level": "high",
        "kind": "event",
        "pack": pack,
        "feeds": [],
        "alerting": True,
        "event_time": at(seconds),
        "role": "src_endpoint",
        "ip": "10.0.0.1",
        "fields": {},
        "snippet": uid,
        "holder": {"ip": "10.0.0.1", "scope": "default", "mac": mac, "status": "leased"},
        "attr_rev": 1,
        "via": "join",
        **more,
    }


def test_what_the_event_tells_is_matched_and_the_rest_confirmed(tmp_path: Path) -> None:
    found = compiled(tmp_path, SIGMA)
    assert not found.refused
    (rule,) = found.pack.rules
    assert isinstance(rule.predicate, All)
    assert rule.confirm is not msgspec.UNSET
    plain = compiled(tmp_path, SIGMA.replace(" and crown and not known", ""))
    (bare,) = plain.pack.rules
    assert bare.confirm is msgspec.UNSET
    assert b"confirm" not in plain.pack.to_json()
    assert bare.version != rule.version
    assert RulePack.from_json(found.pack.to_json()) == found.pack


def test_a_rules_tests_say_whom_the_event_is_about(tmp_path: Path) -> None:
    outcomes = check_rules(compiled(tmp_path, SIGMA))
    assert [(one.passed, one.detail) for one in outcomes] == [(True, "")] * 5


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("refused or crown", "asset.criticality beside fields of the event"),
        ("not (refused and crown)", "asset.criticality beside fields of the event"),
        ("crown", "asks nothing of the event itself"),
    ],
)
def test_what_cannot_be_split_is_refused_in_a_sentence(
    tmp_path: Path, condition: str, reason: str
) -> None:
    text = SIGMA.replace("refused and crown and not known", condition)
    (refused,) = compiled(tmp_path, text).refused
    assert reason in refused.reason
    assert refused.remedy


def test_a_field_nobody_has_is_refused(tmp_path: Path) -> None:
    (refused,) = compiled(tmp_path, SIGMA.replace("asset.criticality", "asset.price")).refused
    assert "no field 'asset.price'" in refused.reason


def test_a_query_confirms_by_a_selection_of_its_own(tmp_path: Path) -> None:
    (one,) = compiled(tmp_path, SQL).pack.queries
    assert one.confirm == Test("asset.tags", "eq", "payroll")
    (refused,) = compiled(tmp_path, SQL.replace("asset.tags", "user.name")).refused
    assert "`confirm` asks of the event" in refused.reason


def test_nested_conjunctions_are_split_too() -> None:
    raw, own = Test("user_name", "eq", "root"), Test("holder.mac", "eq", A)
    assert split_predicate(All((raw, All((own, raw))))) == (All((raw, raw)), own)
    assert split_predicate(raw) == (raw, None)
    with pytest.raises(Untranslatable):
        split_predicate(All((raw, Either((own, raw)))))


def test_of_each_finding_it_is_said_whether_it_counts(tmp_path: Path, file: Path) -> None:
    store = PackStore(tmp_path / "rules")
    pack = store.put(compiled(tmp_path, SIGMA).pack)
    confirming = cloudpickle.loads(cloudpickle.dumps(Confirming(store.get)))
    index = AssetIndex(file)
    low, high = attributed(pack, "x", 0, A), attributed(pack, "y", 1, B)
    rows = [low, low | {"target": "a correlation"}, high, high | {"target": "a correlation"}]
    kept = confirming.counting(rows, lambda: index)
    assert [(row["finding_id"], counts(row)) for row in kept] == [
        ("finding-x", False),
        ("finding-x", False),
        ("finding-y", True),
        ("finding-y", True),
    ]
    # No lease yet: not confirmed. It comes again when the lease is known.
    nobody = high | {"holder": {"status": "none"}}
    assert [counts(row) for row in confirming.counting([nobody], lambda: index)] == [False]
    assert counts(confirming.counting([low | {"row_kind": "tick"}], lambda: index)[0])


class Bucket:
    """The state of a bucket behind `Confirming`; a step gives alerts as (row, body)."""

    def __init__(self, folder: Path, index: AssetIndex) -> None:
        self._store = PackStore(folder / "rules")
        self.pack = self._store.put(compiled(folder, SIGMA).pack)
        self._counting = partial(Confirming(self._store.get).counting, index=lambda: index)
        self._blob = BucketState().encode()

    def step(self, *rows: Row) -> list[tuple[Row, Row]]:
        state = BucketState.decode(self._blob)
        out = state.step(self._counting(rows), self._store.get, load().alerts, micros(at(60)))
        self._blob = state.encode()
        told = [one["row"] for one in out if one["out"] == "alert"]
        return [(row, row["body"]) for row in told]


def corrected(row: Row, holder: str | None, rev: int) -> Row:
    """The same finding, now another device's, or nobody's."""
    leased = {**row["holder"], "status": "leased", "mac": holder}
    nobody = {"ip": "10.0.0.1", "scope": "default", "status": "none"}
    return row | {"holder": leased if holder else nobody, "attr_rev": rev, "via": "correction"}


@pytest.mark.parametrize(
    ("device", "said"),
    [(A, f"10.0.0.1 was leased to {A}. By that"), (None, "No lease covered 10.0.0.1. By that")],
)
def test_what_is_confirmed_no_more_closes_its_alert(
    tmp_path: Path, file: Path, device: str | None, said: str
) -> None:
    bucket = Bucket(tmp_path, AssetIndex(file))
    row = attributed(bucket.pack, "y", 1, B)
    ((told, _),) = bucket.step(row)
    ((closed, body),) = bucket.step(corrected(row, device, 2))
    assert closed["alert_id"] == told["alert_id"]
    assert (closed["activity"], closed["reason"]) == ("close", "attribution")
    assert (body["state"], body["entity"]["value"], body["previous_entity"]) == ("closed", B, B)
    assert f"{said} its rule does not hold." in body["summary"]
    assert bucket.step(corrected(row, device, 2)) == []
    ((again, body),) = bucket.step(corrected(row, B, 3))
    assert (again["activity"], body["state"], body["entity"]["value"]) == ("create", "open", B)
    ((_, body),) = bucket.step(action(closed["alert_id"], "reopen") | {"target": CROWN})
    assert (body["state"], body["previous_entity"]) == ("open", None)
    assert "does not hold" not in body["summary"]


def test_an_alert_keeps_its_other_findings_when_one_is_confirmed_no_more(
    tmp_path: Path, file: Path
) -> None:
    bucket = Bucket(tmp_path, AssetIndex(file))
    rows = [attributed(bucket.pack, name, n, B) for n, name in enumerate("xyz")]
    ((told, _),) = bucket.step(*rows)
    assert told["count"] == 3
    assert bucket.step(corrected(rows[1], A, 0)) == [], "an older word"
    ((left, body),) = bucket.step(corrected(rows[1], A, 2))
    assert (left["activity"], left["count"], body["entity"]["value"]) == ("update", 2, B)
    assert [event["event_uid"] for event in body["evidence"]] == ["x", "z"]


def test_what_was_not_confirmed_counts_once_it_is(tmp_path: Path, file: Path) -> None:
    bucket = Bucket(tmp_path, AssetIndex(file))
    row = attributed(bucket.pack, "y", 1, A)
    assert bucket.step(row) == []
    ((told, body),) = bucket.step(corrected(row, B, 2))
    assert (told["revision"], told["activity"], body["entity"]["value"]) == (1, "create", B)


class Empty:
    """State of a bucket that saw nothing yet."""

    exists = False

    def update(self, kept: tuple[bytes]) -> None:
        assert kept


HELD = ("holder", "attr_rev", "via")


def as_json(row: Row) -> str:
    return msgspec.json.encode(row).decode()


def test_job_alert_tells_only_of_what_is_confirmed(tmp_path: Path) -> None:
    """The function that each bucket runs, as Spark sends it to a worker."""
    settings = load(home=tmp_path)
    text = SIGMA.replace("and crown and not known", "and crown").replace(
        "    asset.criticality: [high, critical]\n", ""
    )
    pack = PackStore(store_folder(settings)).put(compiled(tmp_path, text).pack)
    step = cloudpickle.loads(cloudpickle.dumps(stepper(settings, str(store_folder(settings)))))
    nobody = {"ip": "10.0.0.1", "scope": "default", "status": "none"}
    rows = [attributed(pack, "x", 0, A), attributed(pack, "y", 1, A, holder=nobody)]
    frame = pd.DataFrame(
        {
            "kind": "finding",
            "target": CROWN,
            "payload": [as_json({n: r.get(n) for n in NAMES if n != "holder"}) for r in rows],
            "attribution": [
                as_json({n: r[n] for n in ("holder", "attr_rev", "via")}) for r in rows
            ],
            "now": pd.Timestamp("2026-11-20T12:00:05"),
        }
    )
    (out,) = list(step((1,), iter([frame]), Empty()))
    kinds = zip(out["out"], out["payload"], strict=True)
    told = [(kind, msgspec.msgpack.decode(row)) for kind, row in kinds]
    (alert,) = [row for kind, row in told if kind == "alert"]
    assert (alert["entity_value"], alert["count"]) == (A, 1)
    said = {row["finding_id"] for kind, row in told if kind == "attribution"}
    assert said == {"finding-x", "finding-y"}


def test_whom_a_finding_is_about_is_as_it_was_then(file: Path) -> None:
    index = AssetIndex(file)
    about = who(attributed("p", "x", 0, B), index)
    assert about["asset"]["criticality"] == "high"
    assert about["person"]["department"] == "IT"
    assert about["holder"]["mac"] == B
    before = attributed("p", "x", -7200, B)
    assert who(before, index)["asset"] is None
    assert who(before, None) == {"holder": about["holder"], "asset": None, "person": None}


def test_history_confirms_as_the_stream_does(tmp_path: Path, file: Path) -> None:
    found = compiled(tmp_path, SIGMA).pack
    rows = [
        attributed(found.hash, name, seconds, mac, available_at=at(seconds + 2))
        for name, seconds, mac in (("x", 0, A), ("y", 1, B), ("z", 2, A))
    ]
    refold = Refold(lambda _: found, load(), [CROWN], index=AssetIndex(file))
    refold.run(rows)
    assert [(a.entity_value, a.count) for a in refold.alerts.values()] == [(B, 1)]
    without = Refold(lambda _: found, load(), [CROWN])
    without.run(rows)
    assert without.alerts == {}


def test_explain_says_whether_a_finding_counts(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load(home=tmp_path)
    pack = PackStore(store_folder(settings)).put(compiled(tmp_path, SIGMA).pack)
    monkeypatch.setattr(finding, "inventories", lambda _: AssetIndex(file))
    for mac, state in ((A, "not confirmed"), (B, "confirmed")):
        row = attributed(pack, "x", 0, mac) | {"told_holder": None}
        told = finding.explain_finding(lambda *_, r=row, **__: [r], settings, "finding-x")
        assert told is not None
        assert told["state"] == state
        assert "asset.criticality" in told["asked"]
        assert json.dumps(told)
        assert f"state: {state}" in finding.finding_text(told)
    assert finding.explain_finding(lambda *_, **__: [], settings, "nobody") is None


def test_outside_a_batch_there_is_no_decided_inventory(tmp_path: Path) -> None:
    assert decided_index(load(home=tmp_path)) is None
