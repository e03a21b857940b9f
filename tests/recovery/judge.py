"""An independent judge: DuckDB over the files and a plain consumer, nothing of ours.

It knows the layout of the tables and the alert contract, and what was put into Kafka.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import duckdb_extension_delta
import duckdb_extension_httpfs
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from upath import UPath

Place = tuple[str, int, int]

OF_THE_PLATFORM = "headgate-job-stuck"
"""Rule of alerts that go to the topic alone: on a slow machine a job misses its target as well."""


def open_lake() -> duckdb.DuckDBPyConnection:
    """DuckDB with its Delta extension, from the wheel."""
    folder = Path(duckdb_extension_delta.__file__).parent / "extensions"
    # The signature of 80 MB is not checked anew for each question.
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "allow_unsigned_extensions": "true",
    }
    connection = duckdb.connect(config=config)
    connection.execute(f"LOAD '{next(folder.glob('*/delta.duckdb_extension'))}'")
    if "AWS_ENDPOINT_URL_S3" in os.environ:
        _reach_store(connection)
    return connection


def _reach_store(connection: duckdb.DuckDBPyConnection) -> None:
    """For a lake in a bucket of a store on this machine."""
    folder = Path(duckdb_extension_httpfs.__file__).parent / "extensions"
    connection.execute(f"LOAD '{next(folder.glob('*/httpfs.duckdb_extension'))}'")
    host = os.environ["AWS_ENDPOINT_URL_S3"].removeprefix("http://")
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{key}', SECRET '{secret}', ENDPOINT '{host}', "
        "URL_STYLE 'path', USE_SSL false)"
    )


def place_of(message: Message) -> Place:
    """Where a message lies."""
    return str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)


def messages(bootstrap: str, name: str) -> Iterator[Message]:
    """All messages of a topic as a `read_committed` consumer gets them, in partition order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    partitions = set(consumer.list_topics(name, timeout=20).topics[name].partitions)
    consumer.assign([TopicPartition(name, p, OFFSET_BEGINNING) for p in partitions])
    while partitions:
        message = consumer.poll(30)
        assert message is not None, "the topic could not be read to its end"
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            partitions.discard(message.partition())
        else:
            yield message
    consumer.close()


def topic(bootstrap: str, name: str) -> list[dict[str, Any]]:
    """The alerts on a topic, in partition order; each has its id as key."""
    found = []
    for message in messages(bootstrap, name):
        body = json.loads(message.value())
        assert message.key().decode() == body["alert_id"]
        found.append(body)
    return found


def lost_or_doubled_records(lake: Path | UPath, *accepted: dict[Place, bytes]) -> list[str]:
    """I1: each accepted message lies in bronze once, bytes unchanged.

    Of several brokers, one after the other: a new one gives the places once more.
    """
    rows = open_lake().execute(
        f"""SELECT topic, "partition", "offset", raw FROM delta_scan('{lake}/bronze/record')"""
    )
    seen = Counter(((name, part, at), bytes(raw or b"")) for name, part, at, raw in rows.fetchall())
    sent = Counter(one for messages in accepted for one in messages.items())
    places = Counter(place for place, _ in sent.elements())
    wrong = []
    for (place, _), count in (seen - sent).items():
        told = "has other bytes, or is there too often" if place in places else "was never sent"
        wrong.append(f"{place} {told} ({count})")
    return wrong + [f"{place} is missing ({count})" for (place, _), count in (sent - seen).items()]


def nameless_records(lake: Path | UPath) -> list[str]:
    """I2: each bronze record is named by a row of silver, and no event is there twice."""
    connection = open_lake()
    nameless = connection.execute(
        f"""SELECT record_id FROM delta_scan('{lake}/bronze/record') WHERE record_id NOT IN
            (SELECT unnest(record_ids) FROM delta_scan('{lake}/silver/event'))"""
    ).fetchall()
    doubled = connection.execute(
        f"""SELECT event_uid, count(*) FROM delta_scan('{lake}/silver/event')
            WHERE source <> '_heartbeat' GROUP BY 1 HAVING count(*) > 1"""
    ).fetchall()
    return [f"{name} has no row" for (name,) in nameless] + [
        f"{uid} is there {count} times" for uid, count in doubled
    ]


def doubled_findings(lake: Path | UPath) -> list[str]:
    """Each finding is there once."""
    rows = open_lake().execute(
        f"""SELECT finding_id, count(*) FROM delta_scan('{lake}/gold/finding')
            WHERE rule_id <> '_heartbeat' GROUP BY 1 HAVING count(*) > 1"""
    )
    return [f"finding {name} is there {count} times" for name, count in rows.fetchall()]


def unattributed_findings(lake: Path | UPath) -> list[str]:
    """Each finding about an event has a row in gold.attribution."""
    rows = open_lake().execute(
        f"""SELECT finding_id FROM delta_scan('{lake}/gold/finding')
            WHERE rule_id <> '_heartbeat' AND kind = 'event' AND finding_id NOT IN
            (SELECT finding_id FROM delta_scan('{lake}/gold/attribution'))"""
    )
    return [name for (name,) in rows.fetchall()]


def doubled_attributions(lake: Path | UPath) -> list[str]:
    """Each job says once whose address it was, for each segment that it rests on."""
    rows = open_lake().execute(
        f"""SELECT finding_id, rev, via, count(*) FROM delta_scan('{lake}/gold/attribution')
            WHERE via <> 'heartbeat' GROUP BY finding_id, role, rev, via HAVING count(*) > 1"""
    )
    return [
        f"{name}: rev {rev} by {via} {count} times" for name, rev, via, count in rows.fetchall()
    ]


def wrong_on_topic(lake: Path | UPath, messages: list[dict[str, Any]]) -> list[str]:
    """I3: each revision of gold.alert that is not silenced is on the topic once, in order.

    Those about the platform itself are in order, too, and in no table.
    """
    table = {
        (alert, revision): json.loads(body)
        for alert, revision, body in open_lake()
        .execute(
            f"SELECT alert_id, revision, body FROM delta_scan('{lake}/gold/alert') "
            "WHERE suppressed_by IS NULL"
        )
        .fetchall()
    }
    wrong = []
    newest: dict[str, int] = {}
    for body in messages:
        key = (body["alert_id"], body["revision"])
        if body["revision"] != newest.get(body["alert_id"], 0) + 1:
            wrong.append(f"{key} came after revision {newest.get(body['alert_id'], 0)}")
        newest[body["alert_id"]] = body["revision"]
        expected = table.pop(key, None)
        if expected is None and _is_of_the_platform(body):
            continue
        if expected is None:
            wrong.append(f"{key} is not in the table, or came twice")
        elif {k: v for k, v in body.items() if k != "published_at"} != expected:
            wrong.append(f"{key} differs from the table")
    return wrong + [f"{key} never came" for key in table]


def wrong_order(messages: list[dict[str, Any]], wanted: Sequence[tuple[str, int]]) -> list[str]:
    """I3 without a lake: each revision of `wanted` is on the topic once, in order."""
    told = Counter((body["alert_id"], body["revision"]) for body in messages)
    newest: dict[str, int] = {}
    wrong = [f"{key} is there {count} times" for key, count in told.items() if count > 1]
    for body in messages:
        alert, revision = body["alert_id"], body["revision"]
        if revision <= newest.get(alert, 0):
            wrong.append(f"{alert}: {revision} came after {newest[alert]}")
        newest[alert] = revision
    wrong += [f"{key} was never wanted" for key in told if key not in set(wanted)]
    return wrong + [f"{key} never came" for key in wanted if key not in told]


def wrong_deliveries(
    called: Sequence[tuple[str, int]], wanted: Sequence[tuple[str, int]]
) -> list[str]:
    """A hook gets each revision at least once, of an alert in order; one may come again at once."""
    newest: dict[str, int] = {}
    wrong = []
    for alert, revision in called:
        if revision - newest.get(alert, 0) not in (0, 1):
            wrong.append(f"{alert}: {revision} came after {newest.get(alert, 0)}")
        newest[alert] = revision
    got, asked = set(called), set(wanted)
    return (
        wrong
        + [f"{key} was never wanted" for key in got - asked]
        + [f"{key} was never delivered" for key in asked - got]
    )


def has_place(kept: Path, partitions: int = 3) -> bool:
    """Whether a consumer of alerts has noted a place in each partition."""
    return _asked(kept, "SELECT count(*) FROM alert_place") == partitions


def waiting_deliveries(kept: Path) -> int:
    """How many deliveries wait for a hook, or were given up; -1: the file does not say."""
    found = _asked(kept, "SELECT count(*) FROM delivery")
    return -1 if found is None else found


def _asked(kept: Path, sql: str) -> int | None:
    if not kept.exists():
        return None
    connection = sqlite3.connect(f"file:{kept}?mode=ro", uri=True)
    try:
        return int(connection.execute(sql).fetchone()[0])
    except sqlite3.OperationalError:
        return None
    finally:
        connection.close()


def wrong_states(messages: list[dict[str, Any]], states: list[dict[str, Any]]) -> list[str]:
    """I4: the state of each alert goes with its revisions, message by message."""
    told = Counter((body["alert_id"], body["revision"], body["state"]) for body in messages)
    kept = Counter((body["alert_id"], body["revision"], body["state"]) for body in states)
    newest = {body["alert_id"]: body["revision"] for body in states}
    of_jobs = {body["alert_id"] for body in messages if _is_of_the_platform(body)}
    wrong = [f"{key} has a state and no revision, or twice" for key in kept - told]
    # Compaction takes older states of an alert, never its newest.
    return wrong + [
        f"alert {alert} is at revision {revision}, its state at {newest.get(alert)}"
        for alert, revision in {body["alert_id"]: body["revision"] for body in messages}.items()
        if newest.get(alert) != revision and alert not in of_jobs
    ]


def _is_of_the_platform(body: Mapping[str, Any]) -> bool:
    return bool(body["rule"]["id"] == OF_THE_PLATFORM)


def final_alerts(messages: list[dict[str, Any]]) -> dict[str, tuple[Any, ...]]:
    """What each alert came to: rule, entity, how it was attributed, how many findings.

    Without those about the platform itself. Without incidents: one is told when it is seen and
    never taken back, so a finding that was another address's for a moment may make one in one
    run and not in the other.
    """
    newest: dict[str, dict[str, Any]] = {}
    for body in messages:
        newest[body["alert_id"]] = body
    return {
        name: (
            body["rule"]["name"],
            body["entity"]["value"],
            body["attribution"]["status"],
            body["count"],
        )
        for name, body in newest.items()
        if body["rule"]["id"] != "headgate-incident" and not _is_of_the_platform(body)
    }


def wrong_holders(lake: Path | UPath, truth: Sequence[tuple[str, datetime, str]]) -> list[str]:
    """I5: at each instant the newest word on an address names its holder."""
    connection, wrong = open_lake(), []
    for address, instant, holder in truth:
        found = connection.execute(
            f"""SELECT max_by(mac, rev) FROM delta_scan('{lake}/silver/dhcp_segment')
                WHERE ip = ? AND seg_start <= ? AND seg_end > ?""",
            (address, instant, instant),
        ).fetchone()
        if found is None or found[0] != holder:
            wrong.append(f"{address} at {instant}: {found and found[0]}, not {holder}")
    return wrong


def column(table: Path, name: str) -> list[Any]:
    """The values of a column of a table, sorted, as another engine reads them."""
    rows = open_lake().execute(f"SELECT {name} FROM delta_scan('{table}')").fetchall()
    return sorted(value for (value,) in rows)
