"""Models: what is usual, how rare a stray is, and that stream and history find the same hours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from alerts.anomaly.baseline import (
    HOUR_SECONDS,
    LEAST_STRAY,
    BaselineNumbers,
    Profile,
    Tail,
    profile_of,
    slot_of,
    slots_of,
    stray,
    strays,
    tail_of,
)
from alerts.anomaly.finding import said
from alerts.anomaly.job import device_history, models, whole_hours
from alerts.anomaly.store import ModelHeader, ModelStore, Peers
from alerts.anomaly.train import LEAST_DEVICES, peers_of, train
from alerts.cli.explain import asking
from alerts.compiler.model_rule_files import (
    THRESHOLD,
    is_model,
    quantity,
    read_models,
)
from alerts.explain.explain import explain
from alerts.lifecycle.alert_job import alert
from alerts.rulebook.model_rule_tests import check_models
from alerts.rulebook.rule_store import model_rules, recompile
from alerts.rulepack.locations import BUNDLED_MODELS, store_folder
from alerts.rulepack.rule_pack import ModelRule, PackStore
from alerts.tables import ALERT, DEVICE_HOUR, FINDING
from alerts.verify.models import KnownModel, judge_hours, read_hours
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import load
from infra.delta.duckdb_views import connect
from infra.errors import Fatal, Usage
from infra.kafka.client import Broker, ensure_topics
from infra.spark.session import project_root
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.model_history import DAYS, START, Flow, address, office

SAMPLE = project_root() / "samples" / "zeek" / "json_corelight" / "NASHUA_conn.log"
LEAST = 1_000
MONDAY = int(START.timestamp())
END = START + timedelta(days=DAYS)
DESKS, SERVERS = 8, 4
NAME = "device_unusual_volume"


# -- what is usual -------------------------------------------------------------------------------


def test_a_slot_is_an_hour_of_workdays_or_of_weekends() -> None:
    hours = MONDAY + HOUR_SECONDS * np.arange(14 * 24)
    assert slots_of(hours).tolist() == [slot_of(int(hour)) for hour in hours]
    assert slot_of(MONDAY + 3 * HOUR_SECONDS) == 3
    assert slot_of(MONDAY + (5 * 24 + 3) * HOUR_SECONDS) == 24 + 3


def usual(level: float = 1e7) -> Profile:
    """Of a device that sends about `level` from 8 to 18 on workdays, and nothing else."""
    hours = MONDAY + HOUR_SECONDS * np.arange(DAYS * 24)
    work = np.array([8 <= slot_of(int(hour)) < 18 for hour in hours])
    values = level * np.random.default_rng(1).lognormal(0, 0.5, int(work.sum()))
    return profile_of(hours[work], values, MONDAY + DAYS * 86_400)


def test_what_is_usual_is_told_apart_by_the_time_of_day() -> None:
    profile, later = usual(), MONDAY + DAYS * 86_400
    at_ten, at_three = later + 10 * HOUR_SECONDS, later + 3 * HOUR_SECONDS
    assert 3e6 < profile.low[slot_of(at_ten)] < 1e7 < profile.high[slot_of(at_ten)] < 4e7
    assert profile.high[slot_of(at_three)] == 0
    assert stray(at_ten, 1e7, profile, 0) < 1
    assert stray(at_three, 1e7, profile, 0) > 10
    assert stray(at_ten, 4e9, profile, 0) > 5


def test_odd_hours_in_the_history_do_not_move_what_is_usual() -> None:
    hours = MONDAY + HOUR_SECONDS * np.arange(DAYS * 24)
    values = np.full(len(hours), 1e6)
    clean = profile_of(hours, values, MONDAY + DAYS * 86_400)
    values[100::97] = 1e12
    odd = profile_of(hours, values, MONDAY + DAYS * 86_400)
    assert np.allclose(odd.centre, clean.centre)
    assert np.allclose(odd.spread, clean.spread)
    assert odd.largest == 1e12


def test_below_the_least_nothing_is_unusual() -> None:
    profile, at = usual(), MONDAY + DAYS * 86_400 + 3 * HOUR_SECONDS
    assert stray(at, 999_999, profile, 1_000_000) == 0
    assert stray(at, 1_000_000, profile, 1_000_000) > 0


amounts = st.floats(0, 1e13)


@given(
    far=st.lists(st.floats(1.0, 50), max_size=60),
    hours=st.integers(1, 10**6),
    volumes=st.tuples(amounts, amounts),
    hour=st.integers(0, 24 * 14),
)
def test_the_score_of_an_hour_never_falls_while_it_fills(
    far: list[float], hours: int, volumes: tuple[float, float], hour: int
) -> None:
    tail = tail_of(np.array(far), hours + len(far))
    profile, at = PROFILE, MONDAY + hour * HOUR_SECONDS
    less, more = sorted(volumes)
    scores = [tail.score(stray(at, value, profile, 100)) for value in (less, more)]
    assert 0 <= scores[0] <= scores[1]


PROFILE = usual()


def test_a_score_is_how_rare_such_hours_are_among_peers() -> None:
    chance = np.random.default_rng(3)
    hours = 200_000
    far = chance.exponential(0.5, hours)
    tail = tail_of(far[far > 1], hours)
    for stray_ in (2.0, 3.0, 4.0):
        seen = float((far > stray_).mean())
        assert abs(tail.score(stray_) + np.log10(seen)) < 0.35


def test_one_attack_in_the_history_does_not_hide_the_next() -> None:
    chance = np.random.default_rng(4)
    far = chance.exponential(0.5, 20_000)
    far = far[far > 1]
    clean = tail_of(far, 20_000)
    with_attack = tail_of(np.append(far, [40.0, 45.0]), 20_000)
    assert with_attack.score(10) > 0.9 * clean.score(10)


def sampled_hours(chance: np.random.Generator, flows: list[int], days: int) -> BaselineNumbers:
    """Bytes of each hour of so many days: on workdays from 8 to 18 some of a host's real flows."""
    hours = MONDAY + HOUR_SECONDS * np.arange(days * 24)
    works = np.array([8 <= slot_of(int(hour)) < 18 for hour in hours])
    sums = [chance.choice(flows, int(chance.integers(3, 9))).sum() if work else 0 for work in works]
    return np.array(sums, float)


def test_hours_of_real_flows_are_quiet_and_a_theft_among_them_is_not() -> None:
    chance = np.random.default_rng(11)
    by_host: dict[str, list[int]] = {}
    for line in SAMPLE.read_text().splitlines():
        flow = json.loads(line)
        by_host.setdefault(flow["id_orig_h"], []).append(flow.get("orig_bytes") or 0)
    hosts = {host: flows for host, flows in by_host.items() if len(flows) >= 10 and max(flows) > 0}
    assert len(hosts) >= 2
    hours = MONDAY + HOUR_SECONDS * np.arange(DAYS * 24)
    profiles, far = {}, []
    for host, flows in hosts.items():
        values = sampled_hours(chance, flows, DAYS)
        seen = values > 0
        profiles[host] = profile_of(hours[seen], values[seen], MONDAY + DAYS * 86_400)
        far.append(strays(hours[seen], values[seen], profiles[host], LEAST))
    every = np.concatenate(far)
    tail = tail_of(every[every > LEAST_STRAY], len(hosts) * len(hours))
    later = MONDAY + DAYS * 86_400 + HOUR_SECONDS * np.arange(7 * 24)
    for host, flows in hosts.items():
        week = sampled_hours(chance, flows, 7)
        scores = [tail.score(s) for s in strays(later, week, profiles[host], LEAST)]
        assert max(scores) < THRESHOLD, f"{host} did nothing unusual"
        stolen = stray(int(later[3]), 2e9, profiles[host], LEAST)
        assert tail.score(stolen) >= THRESHOLD


# -- the rule ------------------------------------------------------------------------------------


def document(**more: Any) -> dict[str, Any]:
    base = {
        "type": "model",
        "title": "Odd",
        "id": "11111111-2222-3333-4444-555555555555",
        "logsource": {"product": "ocsf", "category": "network_activity"},
        "tags": ["attack.exfiltration", "attack.t1048"],
    }
    return base | more


def model_rule(folder: Path, document: dict[str, Any]) -> ModelRule:
    (folder / "rule.yml").write_text(json.dumps(document), "utf-8")
    models = read_models([folder], {})
    if models.refused:
        raise ValueError(models.refused[0].reason)
    return models.sources[document["id"]].rule


def test_a_rule_of_kind_model_reads_like_sigma(tmp_path: Path) -> None:
    rule = model_rule(
        tmp_path, document(model={"features": ["bytes_out"], "least": {"bytes_out": "1.5 GB"}})
    )
    assert rule.classes == (4001,)
    assert rule.least == {"bytes_out": 1_500_000_000}
    assert (rule.tactics, rule.techniques) == (("exfiltration",), ("T1048",))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"model": {"features": ["colour"]}}, "model.features"),
        ({"model": {"threshold": 0}}, "model.threshold"),
        ({"model": {"history": "a month"}}, "model.history"),
        ({"model": {"role": "neighbour"}}, "model.role"),
        ({"model": {"least": {"bytes_in": 5}}}, "model.least"),
        ({"logsource": {"product": "windows", "service": "security"}}, "logsource"),
        ({"detection": {}}, "detection"),
    ],
)
def test_a_broken_rule_is_refused_by_what_is_wrong(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        model_rule(tmp_path, document(**more))


def test_quantities_are_written_with_units() -> None:
    assert [quantity(text) for text in (7, "500", "20 MB", "1.5G")] == [
        *(7, 500, 20_000_000),
        1_500_000_000,
    ]
    with pytest.raises(ValueError, match="no quantity"):
        quantity("much")


def test_a_rule_without_a_model_does_not_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(json.dumps(document()))
    found = read_models([tmp_path], {})
    assert [s.runs for s in found.sources.values()] == [False]
    assert found.running == ()
    trained = read_models([tmp_path], {document()["id"]: "f" * 32})
    assert [rule.model for rule in trained.running] == ["f" * 32]
    ids = {rule.id: rule.model for rule in trained.running}
    assert read_models([tmp_path], ids, disabled=list(ids)).running == ()
    assert is_model(document())
    assert len(read_models([BUNDLED_MODELS], {}).sources) >= 1


@pytest.mark.full
def test_every_bundled_model_brings_tests_and_passes_them() -> None:
    found = read_models([BUNDLED_MODELS], {})
    assert all(source.match and source.no_match for source in found.sources.values())
    assert [outcome for outcome in check_models(found) if not outcome.passed] == []


def test_a_models_test_that_fails_names_score_and_threshold(tmp_path: Path) -> None:
    usual, hour = {"bytes_out": "5 MB"}, {"bytes_out": "6 MB"}
    tests = {
        "match": [{"usual": usual, "hour": hour}],
        "no_match": [{"usual": usual, "hour": hour}],
    }
    more = {"model": {"features": ["bytes_out"]}, "headgate": {"tests": tests}}
    (tmp_path / "mine.yml").write_text(json.dumps(document(**more)))
    failed, passed = check_models(read_models([tmp_path], {}))
    assert (failed.must_match, failed.passed, passed.passed) == (True, False, True)
    assert re.fullmatch(r"its score is [0-2]\.\d, the threshold 6", failed.detail)


@pytest.mark.parametrize(
    "trial",
    [
        {"usual": {"colour": 5}, "hour": {}},
        {"usual": {"bytes_out": "much"}, "hour": {}},
        {"usual": {}, "hour": {}, "active": [18, 8]},
        {"usual": {}, "hour": {}, "at": 24},
        {"usual": {}},
    ],
)
def test_a_models_test_that_cannot_be_run_is_refused(tmp_path: Path, trial: Any) -> None:
    more = {"model": {"features": ["bytes_out"]}, "headgate": {"tests": {"match": [trial]}}}
    (tmp_path / "mine.yml").write_text(json.dumps(document(**more)))
    found = read_models([tmp_path], {})
    assert (len(found.refused), found.sources) == (1, {})


# -- history, stream and artefact ----------------------------------------------------------------


def rows_of(flows: Iterable[Flow], mode: str) -> list[dict[str, Any]]:
    return [
        {
            "event_uid": f"{mode}:{number}",
            "source": "zeek:conn",
            "mode": mode,
            "time": at,
            "received_at": at + timedelta(seconds=1),
            "class_uid": 4001,
            "scope": "default",
            "src_ip": ip,
            "dst_ip": "203.0.113.9",
            "traffic": {"bytes_out": out, "bytes_in": into},
        }
        for number, (ip, at, out, into) in enumerate(flows)
    ]


def lease(ip: str, mac: str, start: datetime, end: datetime) -> dict[str, Any]:
    return {
        "scope": "default",
        "ip": ip,
        "seg_start": start,
        "seg_end": end,
        "mac": mac,
        "hostname": "desk-0",
        "session_id": f"{mac}-{ip}",
        "session_start": start,
        "session_end": end,
        "known_at": start,
        "learned_at": start,
        "rev": 1,
        "kind": "lease",
    }


DEVICE = "02:00:00:00:04:01"
STOLEN = END + timedelta(days=1, hours=3)
"""The night in which much leaves."""


def planted() -> list[Flow]:
    """A day and a half after the history: usual days, and one device that sends at night."""
    steps = range(0, 36 * 60, 20)
    rows: list[Flow] = [
        (address(number), END + timedelta(minutes=step), 200_000, 900_000)
        for number in range(DESKS + SERVERS)
        for step in steps
        if number >= DESKS or 8 <= (END + timedelta(minutes=step)).hour < 18
    ]
    rows += [
        ("10.4.9.9", STOLEN + timedelta(minutes=minute), 300_000_000, 1_000)
        for minute in range(0, 60, 5)
    ]
    # Devices that nobody knows are not judged, whatever they do.
    rows += [("10.4.8.8", STOLEN + timedelta(minutes=n), 10**9, 0) for n in range(30)]
    return sorted(rows, key=lambda row: row[1])


@pytest.fixture
def learned(lake: Lake) -> tuple[Lake, ModelRule]:
    """A lake with four weeks of history, and a model of the bundled rule in force."""
    lake.add(EVENT, rows_of(office(DESKS, SERVERS), "import"), "test")
    leases = [
        lease(address(0), DEVICE, START, END),
        # After the history the device has another address: a model knows devices, not addresses.
        lease("10.4.9.9", DEVICE, END, END + timedelta(days=5)),
    ]
    lake.add(DHCP_SEGMENT, leases, "test")
    rule = model_rules(lake.settings).named(NAME)
    assert rule is not None
    store = ModelStore(store_folder(lake.settings))
    done = train(lake, store, rule.rule, START, END)
    store.use(rule.rule.id, done.hash)
    recompile(lake.settings)
    assert done.header.devices == DESKS + SERVERS
    assert done.alerting_hours <= 3, "what is usual must not be told of"
    in_force = model_rules(lake.settings).named(NAME)
    assert in_force is not None
    return lake, in_force.rule


@pytest.mark.full
def test_a_device_that_sends_much_at_night_is_found_once_by_stream_and_history(
    learned: tuple[Lake, ModelRule], broker: Broker
) -> None:
    lake, rule = learned
    model = ModelStore(store_folder(lake.settings)).get(rule.model)
    flows = rows_of(planted(), "live")
    night = next(n for n, row in enumerate(flows) if row["time"] >= STOLEN + timedelta(minutes=22))
    for rows in (flows[:night], flows[night:]):
        lake.add(EVENT, rows, "test")
        models(lake, once=True).wait()
    models(lake, once=True).wait()

    live = [row.asDict(recursive=True) for row in lake.read(FINDING).collect()]
    assert [row["holder"]["mac"] for row in live] == [DEVICE]
    found, looked_at = device_history(lake, rule, model, *whole_hours(END, END + timedelta(days=2)))
    assert looked_at > 100
    assert [row["finding_id"] for row in found] == [row["finding_id"] for row in live]
    told = live[0]
    assert (told["kind"], told["pack"]) == ("model", current_pack(lake))
    assert told["window_start"].replace(tzinfo=UTC) == STOLEN
    assert told["fields"]["model.hash"] == rule.model
    assert float(told["fields"]["score"]) >= rule.threshold
    assert "usual at that time nothing" in told["snippet"]
    assert all("203.0.113.9" in one["snippet"] for one in told["evidence"])
    # The stream told before the hour was over; in history the whole hour is told.
    assert int(told["fields"]["bytes_out"]) < int(dict(found[0]["fields"])["bytes_out"])
    parts = lake.read(DEVICE_HOUR).where(f"entity = 'device|{DEVICE}' AND bytes_out > 1e8")
    assert parts.selectExpr("sum(bytes_out)").first()[0] == 12 * 300_000_000  # type: ignore[index]
    assert sorted(row.told for row in parts.collect()) == [False, True]

    found_again(lake)
    explained(lake, broker, rule)


def found_again(lake: Lake) -> None:
    """Verify reads the hours and findings of the stream, and they say the same again."""
    store = store_folder(lake.settings)
    duck = connect(lake.settings.lake_root, needs=("gold.device_hour", "gold.finding"))
    try:
        hours, findings = read_hours(duck, END, END + timedelta(days=2))
        pack = PackStore(store).get(current_pack(lake))
        known = KnownModel([pack], ModelStore(store).get, through=0)
        assert len(hours) > 100
        assert judge_hours(hours, findings, known) == (len(hours), [])
        assert len(judge_hours(hours, [], known)[1]) == 1
    finally:
        duck.close()


def explained(lake: Lake, broker: Broker, rule: ModelRule) -> None:
    """The finding becomes one alert about the device, which says what was unusual and why."""
    settings = load(
        home=lake.settings.home,
        kafka={"bootstrap": broker.address, "topic_prefix": "m.", "tick_topic": "m.tick",
               "alerts_topic": "m.alerts", "progress_topic": "m.progress",
               "state_topic": "m.state"},
    )  # fmt: skip
    ensure_topics(settings)
    alert(Lake(lake.spark, settings), once=True).wait()
    (told,) = lake.read(ALERT).collect()
    assert (told["entity_type"], told["entity_value"]) == ("device", DEVICE)
    assert told["title"].startswith("Device moves far more than it ever does: desk-0")
    assert "usual at that time nothing" in told["body"]
    with asking(settings) as ask:
        found = explain(ask, settings, told["alert_id"])
    assert found is not None
    assert rule.model in found["rule"]["condition"]
    assert found["matched"][0]["fields"]["feature"] == "bytes_out"
    assert "evidence_sql" in found


def current_pack(lake: Lake) -> str:
    return PackStore(store_folder(lake.settings)).current()


def test_a_model_is_read_without_spark_and_refused_when_it_was_changed(tmp_path: Path) -> None:
    store, tail = ModelStore(tmp_path), Tail(1.0, 0.02, 0.5)
    lists = {name: [getattr(PROFILE, name)] for name in ("centre", "spread", "low", "high")}
    rows = {"entity": ["device|a"], "days": [20], "peers": [0], "largest": [[PROFILE.largest]]}
    header = ModelHeader(
        rule_id="r", rule_version="v", features=("bytes_out",), least={}, since=START, until=END,
        trained_at=END, history_days=14, devices=1, unjudged=3, device_hours=672,
        peers=(Peers(1, 672, {"bytes_out": tail}),),
    )  # fmt: skip
    name = store.put(header, pa.table(rows | lists))
    assert store.put(header, pa.table(rows | lists)) == name, "the same content is one model"
    model = store.get(name)
    assert (model.knows("device|a"), model.knows("device|b")) == (True, False)
    at_three = MONDAY + DAYS * 86_400 + 3 * HOUR_SECONDS
    judged = model.judge("device|a", at_three, {"bytes_out": 4.2e9})
    assert judged.score == round(tail.score(stray(at_three, 4.2e9, PROFILE, 0)), 2)
    assert said(judged, at_three).startswith("sent 4.2 GB in the hour from 03:00 UTC")
    store.use("r", name)
    assert store.current() == {"r": name}
    with pytest.raises(Usage, match="was trained for rule"):
        store.use("another", name)
    folder = store.folder / name
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text.replace('"devices":1', '"devices":2'))
    with pytest.raises(Fatal, match="does not have that hash"):
        store.header(name)


@pytest.mark.full
def test_devices_that_behave_alike_are_peers(spark: SparkSession, tmp_path: Path) -> None:
    chance = np.random.default_rng(5)
    rows = [
        (f"{kind}{n}", (chance.normal(level, 0.1, 9)).tolist())
        for kind, level in (("desk", 5.0), ("server", 20.0))
        for n in range(6)
    ]
    fitted = spark.createDataFrame(rows, "entity string, shape array<double>")
    grouped, pipeline, silhouette = peers_of(fitted, LEAST_DEVICES)
    groups = {row.entity: row.peers for row in grouped.collect()}
    assert len({group for name, group in groups.items() if name.startswith("desk")}) == 1
    assert groups["desk0"] != groups["server0"]
    assert pipeline is not None
    assert silhouette is not None
    assert silhouette > 0.9
    few, none, _ = peers_of(fitted, LEAST_DEVICES - 1)
    assert none is None
    assert {row.peers for row in few.collect()} == {0}


@pytest.mark.full
def test_without_history_there_is_no_model(lake: Lake) -> None:
    rule = model_rules(lake.settings).named(NAME)
    assert rule is not None
    with pytest.raises(Usage, match="none of 0 devices"):
        train(lake, ModelStore(store_folder(lake.settings)), rule.rule, START, END)
