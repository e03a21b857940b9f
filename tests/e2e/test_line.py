"""The whole line, from a broker to a broker: bad input, switches, requests, a broker that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.e2e.conftest import Plant, http

TRAVERSAL = "http_path_traversal"
BIG = 5 * 1024 * 1024

BAD = {
    "broken JSON": ("zeek:http", b'{"ts": 1.0, "id.orig_h": '),
    "trailing bytes": ("zeek:http", b'{"ts": 1.0} and more'),
    "two objects on a line": ("zeek:dns", b'{"ts": 1.0} {"ts": 2.0}'),
    "bad UTF-8": ("zeek:dns", b'{"ts": 1.0, "query": "\xff\xfe"}'),
    "NUL": ("zeek:http", b'{"ts": 1.0, "uri": "\x00"}'),
    "a lone null": ("aws_cloudtrail", b"null"),
    "unknown source": ("nobody_knows_it", b"what is this"),
}
STRANGE = {
    "5 MB": ("zeek:http", http("10.9.0.66", "/" + "a" * BIG)),
    "an absurd time": ("zeek:dns", b'{"ts": 1e300, "uid": "absurd", "query": "a.example"}'),
    "the year 9999": ("zeek:dns", b'{"ts": 253402300000.0, "uid": "y9999", "query": "b.example"}'),
    "the year 1900": ("zeek:dns", b'{"ts": -2208988800.0, "uid": "y1900", "query": "c.example"}'),
}


def headgate(plant: Plant, *words: str) -> subprocess.CompletedProcess[str]:
    home = str(plant.settings.home)
    return subprocess.run(
        [sys.executable, "-m", "headgate.cli", "--home", home, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=os.environ | plant.environment,
    )


def test_bad_input_becomes_dead_letters_and_stops_nothing(plant: Plant) -> None:
    for source, line in (*BAD.values(), *STRANGE.values()):
        plant.send(source, line)
    sent = len(BAD) + len(STRANGE)
    plant.until(
        lambda: plant.ask("SELECT count(*) FROM bronze.record")[0][0] >= sent, "all in bronze"
    )
    plant.until(
        lambda: plant.ask("SELECT count(*) FROM silver.dead_letter")[0][0] >= len(BAD), "all dead"
    )
    reasons = plant.ask(
        "SELECT r.raw, d.dead_letter_reason FROM silver.dead_letter d "
        "JOIN bronze.record r ON r.record_id = d.record_ids[1]"
    )
    found = {bytes(raw): reason for raw, reason in reasons}
    assert {line for _, line in BAD.values()} <= set(found)
    assert all(reason.strip() for reason in found.values())

    plant.attack("203.0.113.10")
    plant.until(lambda: plant.alerts_on("203.0.113.10"), "an alert after all that")


@pytest.mark.full
def test_a_file_that_lands_in_a_folder_raises_its_alert(plant: Plant) -> None:
    line = http("203.0.113.77", "/../../etc/passwd")
    part = plant.drop / ".http.log"
    part.write_bytes(line + b"\n" + b"no json\n")
    part.rename(plant.drop / "http.log")
    plant.until(lambda: plant.alerts_on("203.0.113.77"), "the alert")
    landed = plant.ask("SELECT job, state FROM ops.file")
    assert landed == [("files", "taken")]
    records = plant.ask(
        f"SELECT raw FROM bronze.record WHERE record_id LIKE '{plant.drop}/http.log:%'"
    )
    assert sorted(bytes(raw) for (raw,) in records) == sorted([line, b"no json"])


@pytest.mark.full
def test_a_rule_is_switched_off_and_on_while_the_stream_runs(plant: Plant) -> None:
    assert headgate(plant, "rules", "disable", TRAVERSAL, "--reason", "test").returncode == 0
    plant.attack("203.0.113.20")
    seen = "SELECT count(*) FROM silver.events WHERE src_ip = '203.0.113.20'"
    plant.until(lambda: plant.ask(seen)[0][0], "the event without its rule")
    packs = "SELECT count(DISTINCT pack) FROM gold.finding"
    plant.until(lambda: plant.ask(packs)[0][0] >= 2, "a heartbeat of the new pack")

    assert headgate(plant, "rules", "enable", TRAVERSAL).returncode == 0
    plant.until(
        lambda: (plant.attack("203.0.113.21"), plant.alerts_on("203.0.113.21"))[1],
        "an alert of the rule switched on again",
    )
    assert plant.ask("SELECT * FROM gold.findings WHERE ip = '203.0.113.20'") == []


TRIED = """
title: Tried first
name: tried_first
id: 7d1f3a52-0c5e-4a37-8a06-9d1de8c61a03
level: high
logsource: {category: proxy}
detection:
  path: {c-uri|contains: /only-tried}
  condition: path
headgate:
  tests:
    match: [{class_uid: 4002, http_request.url.path: /only-tried}]
    no_match: [{class_uid: 4002, http_request.url.path: /}]
"""


@pytest.mark.full
def test_a_rule_in_shadow_is_reported_and_alerts_only_once_it_is_promoted(plant: Plant) -> None:
    draft = plant.rules.parent / "tried.yml"
    draft.write_text(TRIED)
    tried = headgate(plant, "rules", "shadow", str(draft), "--days", "3", "--reason", "loud?")
    assert tried.returncode == 0, tried.stderr
    silent, speaks, control = "203.0.113.23", "203.0.113.24", "203.0.113.25"
    found = (
        f"SELECT count(*) FROM gold.finding WHERE rule_title = 'Tried first' AND ip = '{silent}'"
    )
    plant.until(
        lambda: (plant.attack(silent, "/only-tried"), plant.ask(found)[0][0])[1],
        "a finding of the rule in shadow",
    )
    # Told in order: when a later finding is on the topic, job `alert` has passed the former one.
    plant.attack(control)
    plant.until(lambda: plant.alerts_on(control), "the alert of a rule that is live")
    assert plant.alerts_on(silent) == []
    assert plant.ask(f"SELECT * FROM gold.alert WHERE entity_value = '{silent}'") == []

    report = headgate(plant, "rules", "shadow", "--output", "json")
    assert report.returncode == 0, report.stderr
    (row,) = json.loads(report.stdout)
    assert (row["rule"], row["alerts"], row["reason"]) == ("tried_first", 1, "loud?")
    assert row["findings"] >= 1
    assert row["most"] == f"{silent} (1)"

    promoted = headgate(plant, "rules", "promote", "tried_first", "--reason", "quiet")
    assert promoted.returncode == 0, promoted.stderr
    heard = plant.until(
        lambda: (plant.attack(speaks, "/only-tried"), plant.alerts_on(speaks))[1],
        "an alert of the rule that was promoted",
    )
    assert heard[0].body["title"].startswith("Tried first")
    assert plant.alerts_on(silent) == [], "what was tried is not told afterwards"


ASKED = """
title: Found in a notebook
name: found_in_sql
id: 7d1f3a52-0c5e-4a37-8a06-9d1de8c61a01
level: high
type: sql
query: |
  SELECT event_uid, http_request.url.path AS path
  FROM event WHERE http_request.url.path LIKE '/notebook-sql%'
"""

WRITTEN = '''"""
title: Found by a function
name: found_by_function
id: 7d1f3a52-0c5e-4a37-8a06-9d1de8c61a02
level: high
headgate:
  tests:
    match: [{class_uid: 4002, http_request.url.path: /notebook-function}]
    no_match: [{class_uid: 4002, http_request.url.path: /}]
"""

from pyspark.sql import DataFrame


def rule(events: DataFrame) -> DataFrame:
    found = events.where("http_request.url.path LIKE '/notebook-function%'")
    return found.select("event_uid")
'''


@pytest.mark.full
def test_a_query_found_in_a_notebook_goes_live_while_the_stream_runs(plant: Plant) -> None:
    (plant.rules / "asked.yml").write_text(ASKED)
    told = headgate(plant, "rules", "enable", "found_in_sql")
    assert told.returncode == 0, told.stderr
    written = plant.rules.parent / "written.py"
    written.write_text(WRITTEN)
    told = headgate(plant, "rules", "import", str(written))
    assert told.returncode == 0, told.stderr
    plant.attack("203.0.113.31", "/notebook-sql?x=1")
    plant.attack("203.0.113.32", "/notebook-function")
    for entity, title in {
        "203.0.113.31": "Found in a notebook",
        "203.0.113.32": "Found by",
    }.items():
        heard = plant.until(lambda of=entity: plant.alerts_on(of), f"the alert on {entity}")
        assert [one.body["title"].startswith(title) for one in heard] == [True]
    shown = plant.alerts_on("203.0.113.31")[0].body
    assert shown["fields"]["path"].startswith("/notebook-sql")


@pytest.mark.full
def test_an_alert_is_closed_and_the_topic_says_so(plant: Plant) -> None:
    plant.attack("203.0.113.30")
    first = plant.until(lambda: plant.alerts_on("203.0.113.30"), "the alert")[0]
    closed = headgate(plant, "alerts", "close", first.key, "--verdict", "benign", "--comment", "ok")
    assert closed.returncode == 0, closed.stderr
    last = plant.until(
        lambda: [h for h in plant.alerts_on("203.0.113.30") if h.body["activity"] == "close"],
        "the closing revision",
    )[0]
    assert last.key == first.key
    assert (last.body["revision"], last.body["verdict"]) == (2, "benign")


@pytest.mark.full
def test_an_address_inside_that_nobody_leased_is_said_to_be_so(plant: Plant) -> None:
    plant.attack("10.9.0.250")
    heard = plant.until(lambda: plant.alerts_on("10.9.0.250"), "the alert")[0]
    assert heard.body["attribution"]["status"] == "none"
    assert heard.body["attribution"]["complete_up_to"]


@pytest.mark.full
def test_the_broker_killed_and_started_again_loses_nothing(plant: Plant) -> None:
    plant.attack("203.0.113.40")
    plant.broker.kill()
    plant.broker.start()
    plant.attack("203.0.113.41")
    for address in ("203.0.113.40", "203.0.113.41"):
        plant.until(lambda at=address: plant.alerts_on(at), f"the alert on {address}", 180)
    counts = plant.ask(
        "SELECT src_ip, count(*) FROM silver.events "
        "WHERE src_ip IN ('203.0.113.40', '203.0.113.41') GROUP BY 1 ORDER BY 1"
    )
    assert counts == [("203.0.113.40", 1), ("203.0.113.41", 1)]


def test_every_revision_came_once_and_in_order(plant: Plant) -> None:
    identities = [one.identity for one in plant.heard]
    assert len(identities) == len(set(identities))
    newest: dict[str, int] = {}
    for alert, revision in identities:
        assert revision == newest.get(alert, 0) + 1
        newest[alert] = revision
    table = plant.ask("SELECT alert_id, revision FROM gold.alert")
    assert set(identities) == {(alert, revision) for alert, revision in table}


def test_the_ledger_shows_nothing_unaccounted(plant: Plant) -> None:
    said = headgate(plant, "ledger", "--output", "json")
    assert said.returncode == 0, said.stderr
    rows = json.loads(said.stdout)
    assert rows
    assert all(row["unaccounted"] == 0 for row in rows)


@pytest.mark.full
def test_a_second_driver_is_refused_in_one_sentence(plant: Plant) -> None:
    environment = f"127.0.0.1:{plant.broker.port}"
    done = subprocess.run(
        [sys.executable, "-m", "headgate.cli", "--home", str(plant.settings.home), "run", "ingest"],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env={**os.environ, "HEADGATE_KAFKA__BOOTSTRAP": environment},
    )
    assert done.returncode == 1
    assert "job ingest already runs" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(autouse=True)
def _alive(plant: Plant) -> None:
    assert plant.driver.ended is None, plant.driver.last_words(20)
