"""Explain: what is behind an alert, read from the tables and evaluated anew."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from alerts.backtest.rerun import rerun_verdict
from alerts.backtest.rule_selection import select_rules
from alerts.cli import __main__
from alerts.cli.explain import _match
from alerts.lifecycle.alert_json import with_text
from alerts.lifecycle.asset_context import in_context
from alerts.matching.match_reasons import (
    MOST_VALUES,
    reason_text,
    reasons,
    rule_text,
    selections,
)
from alerts.rulepack.locations import store_folder
from alerts.rulepack.predicate import All, Either, Node, Not, Test, holds
from alerts.rulepack.rule_pack import PackStore
from alerts.tables import ALERT, FINDING
from api.app import create_app
from api.sql.allowlist import parse
from api.sql.duckdb_sql import to_duckdb
from api.sql.macros import macro_statements as macros
from enrich.tables import ATTRIBUTION, DHCP_SEGMENT
from headgate.cli import main
from infra.config.settings import Settings, load
from infra.delta.catalog import catalog, views
from infra.delta.duckdb_views import connect
from infra.delta.ops_tables import LEDGER
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.history import (
    LOGIN,
    MANY,
    A,
    at,
    fit,
    leased,
    login,
    rules_in,
    streamed,
    with_rules,
)
from tests.api.plain_desk import PlainDesk
from tests.api.story import insert
from tests.headgate.as_code.delta_by_hand import append_rows

FIELDS = ("a", "b")


def trees() -> st.SearchStrategy[Node]:
    leaves: st.SearchStrategy[Node] = st.builds(
        Test, st.sampled_from(FIELDS), st.sampled_from(["eq", "contains"]), st.sampled_from("xyz")
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(Not, inner),
            st.builds(All, st.lists(inner, min_size=1, max_size=3).map(tuple)),
            st.builds(Either, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        ),
        max_leaves=8,
    )


EVENTS = st.dictionaries(
    st.sampled_from(FIELDS), st.one_of(st.text("xyz", max_size=2), st.lists(st.text("xyz")))
)


@given(trees(), EVENTS)
def test_there_are_reasons_when_and_only_when_the_rule_holds(
    node: Node, event: Mapping[str, Any]
) -> None:
    told = reasons(node, event)
    assert bool(told) is holds(node, event)
    for one in told:
        assert one["absent"] or one["values"], one


def test_of_alternatives_only_those_that_hold_are_told() -> None:
    node = All(
        (
            Either((Test("cmd", "contains", "curl"), Test("cmd", "contains", "wget"))),
            Not(Test("user", "eq", "backup")),
        )
    )
    told = reasons(node, {"cmd": ["ls", "CURL x"], "user": "root"})
    assert [one["test"] for one in told] == ["cmd contains 'curl'", "not (user is 'backup')"]
    assert told[0]["values"] == ["CURL x"]
    assert (
        reason_text(node)
        == "(cmd contains 'curl' or cmd contains 'wget') and not (user is 'backup')"
    )


@pytest.mark.parametrize("count", [1, MOST_VALUES, 1_200])
def test_values_beyond_those_shown_are_counted(count: int) -> None:
    answers = [f"10.0.{n >> 8}.{n & 255}" for n in range(count)]
    (told,) = reasons(Test("answers.rdata", "startswith", "10."), {"answers": {"rdata": answers}})
    assert told["values"] == answers[:MOST_VALUES]
    assert told["more"] == count - len(told["values"])
    event = {"time": "12:00", "rule_title": "t", "event_uid": "e", "kind": "event"}
    shown = "\n".join(_match(event | {"because": [told]}))
    assert ("and 1,195 more" in shown) == (count == 1_200)


def test_numbers_of_ocsf_are_told_with_what_they_mean() -> None:
    login = All((Test("class_uid", "eq", 3002), Test("status_id", "eq", 2), Test("port", "eq", 2)))
    assert reason_text(login) == (
        "class_uid is 3002 (Authentication) and status_id is 2 (Failure) and port is 2"
    )
    assert reason_text(Test("status_id", "eq", 77)) == "status_id is 77"
    assert reason_text(Test("status_id", "bool", True)) == "status_id is True"
    assert reason_text(Test("status_id", "gt", 1.5)) == "status_id > 1.5"
    for odd in (float("inf"), float("nan")):
        assert reason_text(Test("traffic.bytes_out", "gt", odd)) == f"traffic.bytes_out > {odd}"


def test_what_is_denied_twice_is_told_as_it_is() -> None:
    """As the compiler marks the log of a product that an event is not to be sought by."""
    marked = Not(Not(Either((Test("log", "eq", "System"), Test("log", "eq", "Setup")))))
    node = All((marked, Test("user", "eq", "bob")))
    assert reason_text(node) == "(log is 'System' or log is 'Setup') and user is 'bob'"
    told = reasons(node, {"log": "System", "user": "bob"})
    assert [(one["test"], one["values"], one["absent"]) for one in told] == [
        ("log is 'System'", ["System"], False), ("user is 'bob'", ["bob"], False),
    ]  # fmt: skip
    assert reason_text(Not(marked)) == "not (log is 'System' or log is 'Setup')"


def test_the_text_of_a_rule_is_its_document_among_several(tmp_path: Path) -> None:
    folder = rules_in(tmp_path / "rules")
    found = rule_text((folder,), MANY)
    assert found is not None
    assert found[0] == folder / "logins.yml"
    assert found[1].startswith("title: Guessing")
    assert "Login failed" not in found[1]
    assert rule_text((folder,), "no-such-id") is None


def test_selections_have_their_names(tmp_path: Path) -> None:
    folder = rules_in(tmp_path / "rules")
    found = rule_text((folder,), LOGIN)
    assert found is not None
    named = selections((folder,), found[1])
    assert set(named) == {"refused", "root"}
    assert holds(named["root"], {"user": {"name": "ROOT"}})


def test_without_findings_that_were_told_nothing_is_called_the_same() -> None:
    assert rerun_verdict(set(), {"f"}) == "nothing left to compare"
    assert [rerun_verdict({"f"}, now) for now in ({"f", "g"}, {"g"})] == ["same", "no longer"]
    assert rerun_verdict({"f", "g"}, {"g"}) == "different"


@pytest.mark.full
def test_an_alert_whose_row_names_no_pack_is_explained_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = PlainDesk(tmp_path, devices=0)
    desk.all_tables()
    (made,) = desk._bucket.alerts(desk.seen(7, 30))
    bare = with_text(in_context(made, None)) | {"pack": None, "sequence": 1}
    append_rows(desk.settings.lake_root, ALERT, [bare])
    alert_id = bare["alert_id"]
    assert main(["--home", str(tmp_path), "explain", alert_id, "--again"]) == 0
    printed = capsys.readouterr().out
    assert "rule pack not known: the row in gold.alert names none" in printed
    assert "what it asked is not known" in printed
    assert '"by_its_rule": "its pack is lost"' in printed
    ann = desk.client("ann", "analyst")
    answered = ann.get(f"/api/v1/alerts/{alert_id}/explain", params={"again": True})
    assert answered.status_code == 200, answered.text
    assert answered.json()["lineage"]["pack"] is None
    assert desk.browser("ben", "analyst").get(f"/alerts/{alert_id}").status_code == 200
    desk.app.state.services.close()


# -- over a lake -------------------------------------------------------------------------------


@pytest.fixture
def told(lake: Lake) -> Settings:
    settings = with_rules(lake.settings)
    lake = Lake(lake.spark, settings)
    events = [login(f"a{n}", n * 10) for n in range(4)] + [login("b0", 4000)]
    dhcp = login("dhcp-1", -600, class_uid=4004, message="DHCPACK on 10.0.0.1")
    store = PackStore(store_folder(settings))
    pack = select_rules(settings, ["login_failed", "guessing"]).pack
    store.set_current(store.put(pack))
    findings, attributions, alerts = streamed(settings, pack, events)
    insert(lake, EVENT, [dhcp, *events])
    insert(lake, DHCP_SEGMENT, [leased(1, -600, 9000, A)])
    insert(lake, FINDING, [fit(row, FINDING.schema.fieldNames()) for row in findings])
    insert(lake, ATTRIBUTION, attributions)
    numbered = [row | {"batch": 3} for row in alerts]
    insert(lake, ALERT, [fit(row, ALERT.schema.fieldNames()) for row in numbered])
    insert(
        lake,
        LEDGER,
        [
            {
                "job": "alert",
                "query_id": "q",
                "batch_id": 3,
                "started_at": at(10),
                "finished_at": at(11),
                "versions": {"gold.alert": 7},
                "replayed": False,
            }
        ],
    )
    return settings


def command(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    __main__.build(parser.add_subparsers())
    args = parser.parse_args(list(words))
    code: int = args.run(args, settings)
    return code


def alerts_of(settings: Settings, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """alert_ids by rule, the oldest of each."""
    assert command(settings, "alerts", "list", "--output", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    return {row["rule_id"]: row["alert_id"] for row in rows}


@pytest.mark.full
def test_an_alert_is_explained_from_rule_to_versions(
    told: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = alerts_of(told, capsys)
    assert command(told, "explain", ids[LOGIN], "--again", "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rule"]["unchanged"] is True
    assert found["rule"]["text"].startswith("title: Login failed")
    matched = found["matched"][0]
    assert matched["selections"] == ["refused", "root"]
    values = {one["field"]: one["values"] for one in matched["because"]}
    assert values["user.name"] == ["root"]
    assert values["status_id"] == ["2"]
    assert found["attribution"]["mac"] == A
    (batch,) = found["lineage"]["batches"]
    assert batch["versions"] == {"gold.alert": 7}
    assert found["again"]["by_its_rule"] == "same"
    assert found["again"]["by_todays_rule"] == "same"
    assert found["again"]["attribution"]["known_now"] == A
    question = parse(found["evidence_sql"], [*catalog(), *views()], {})
    connection = connect(told.lake_root)
    for macro in macros():
        connection.execute(macro)
    shown_events = connection.execute(to_duckdb(question, 100)).fetchall()
    connection.close()
    assert {row[-1] for row in shown_events} == {one["event_uid"] for one in found["matched"]}

    assert command(told, "explain", ids[MANY][:12], "--again") == 0
    shown = capsys.readouterr().out
    assert "event_count by device gte 3 within 120 s" in shown
    assert '"by_its_rule": "same"' in shown
    assert "Failed password for root" in shown


@pytest.mark.full
def test_what_changed_since_is_told(told: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    ids = alerts_of(told, capsys)
    rules = told.home / "rules" / "logins.yml"
    rules.write_text(rules.read_text("utf-8").replace("user.name: root", "user.name: ann"), "utf-8")
    store = PackStore(store_folder(told))
    store.set_current(store.put(select_rules(told, ["login_failed"]).pack))
    assert command(told, "explain", ids[LOGIN], "--again", "--output", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rule"]["unchanged"] is False
    assert found["again"]["by_its_rule"] == "same"
    assert found["again"]["by_todays_rule"] == "no longer"
    assert "selections" not in found["matched"][0] or not found["matched"][0]["selections"]


@pytest.mark.full
def test_the_api_explains_alike(told: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    ids = alerts_of(told, capsys)
    assert command(told, "explain", ids[LOGIN], "--output", "json") == 0
    told_by_command = json.loads(capsys.readouterr().out)
    settings = load(**told.model_dump(exclude={"api"}), api={"token": "t"})
    with TestClient(create_app(settings), headers={"Authorization": "Bearer t"}) as client:
        answer = client.get(f"/api/v1/alerts/{ids[LOGIN]}/explain")
        assert answer.status_code == 200
        body = answer.json()
        assert body["matched"][0]["because"] == told_by_command["matched"][0]["because"]
        assert body["again"] is None
        assert client.get("/api/v1/alerts/nobody/explain").status_code == 404
