"""What names a person or a device outside of the tables: the spool, webhooks, the topics."""

from __future__ import annotations

import fcntl
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from alerts.model_store import BASELINES, FOLDER
from alerts.publish import state_of
from alerts.store import store_folder
from alerts.tables import ALERT
from alerts.webhook_cli import file_of
from infra.delta import active_files
from infra.errors import Retryable
from infra.files import write_whole
from infra.kafka import admin, producer
from infra.lake import Lake
from infra.location import to_read
from infra.settings import Settings
from reporting.erase_words import Search

TRIES = 5


def spooled(settings: Settings, search: Search, *, dry: bool) -> int:
    """Replace words in rows that wait to be folded into tables; how many rows had some."""
    done = 0
    root = settings.home.absolute() / "spool"
    for folder in sorted({file.relative_to(root).parts[0] for file in root.glob("*/**/*.json")}):
        # Nobody folds meanwhile: a row that was moved away and written again would be there twice.
        with (root / folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for file in (root / folder).glob("**/*.json"):
                with suppress(FileNotFoundError):
                    said = file.read_text("utf-8")
                    if search.has(said):
                        done += 1
                        if not dry:
                            write_whole(file, search.text(said))
    return done


def queued(settings: Settings, search: Search, *, dry: bool) -> int:
    """Replace words in alerts that wait for webhooks; how many had some."""
    file = file_of(settings)
    if not file.exists():
        return 0
    done = 0
    with closing(sqlite3.connect(file, timeout=30, isolation_level=None)) as queue:
        queue.execute("PRAGMA secure_delete = ON")
        queue.execute("BEGIN IMMEDIATE")
        rows = queue.execute("SELECT rowid, title, body, problem FROM delivery").fetchall()
        for row, title, body, problem in rows:
            texts = [title or "", bytes(body).decode("utf-8"), problem or ""]
            if any(search.has(text) for text in texts):
                done += 1
                title, text, problem = (search.text(text) for text in texts)
                queue.execute(
                    "UPDATE delivery SET title = ?, body = ?, problem = ? WHERE rowid = ?",
                    (title, text.encode(), problem, row),
                )
        queue.execute("ROLLBACK" if dry else "COMMIT")
        if not dry:
            queue.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return done


# -- the compacted topic ---------------------------------------------------------------------------


def restated(lake: Lake, search: Search, before: Mapping[str, str]) -> int:
    """Say the states of some alerts anew on the compacted topic; how many.

    `before`: what the topic has, by alert, and names the subject. Raises `Retryable` when the
    broker does not take it.
    """
    wanted = set(before)
    said: dict[str, int] = {}
    for _ in range(TRIES):
        newest = {
            alert: (revision, body)
            for alert, revision, body in _newest(lake, wanted)
            if said.get(alert) != revision
        }
        if not newest:
            break
        # A revision that job `alert` publishes meanwhile is newer: then it is said once more.
        _say(lake.settings, newest, search)
        said |= {alert: revision for alert, (revision, _) in newest.items()}
    gone = wanted - said.keys()
    _say(lake.settings, dict.fromkeys(gone), search)
    return len(wanted)


def _say(settings: Settings, states: Mapping[str, tuple[int, str] | None], search: Search) -> None:
    """A state each, a tombstone where there is none."""
    failed: list[str] = []
    client = producer(settings.kafka)
    for alert, found in states.items():
        body = None if found is None else state_of(msgspec.json.decode(search.text(found[1])))
        client.produce(
            settings.kafka.state_topic,
            key=alert.encode(),
            value=None if body is None else msgspec.json.encode(body),
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    if client.flush(30) or failed:
        raise Retryable(f"topic {settings.kafka.state_topic}: {(failed or ['no answer'])[0]}")


def _newest(lake: Lake, alerts: set[str]) -> Iterator[tuple[str, int, str]]:
    """The newest revision of some alerts in the table."""
    newest: dict[str, tuple[int, str]] = {}
    for file in active_files(lake.spark, lake.path(ALERT)):
        found = to_read(lake.folder(ALERT) / file.name)
        rows = pq.read_table(found, columns=["alert_id", "revision", "body"])
        for row in rows.to_pylist():
            known = newest.get(row["alert_id"], (0, ""))
            if row["alert_id"] in alerts and row["revision"] > known[0]:
                newest[row["alert_id"]] = (row["revision"], row["body"])
    return ((alert, *found) for alert, found in newest.items())


def naming(states: Iterator[Any], search: Search) -> dict[str, str]:
    """Messages of the compacted topic whose newest value names the subject, by key."""
    newest: dict[str, str] = {}
    for message in states:
        key, value = message.key() or b"", message.value()
        newest[key.decode()] = (value or b"").decode()
    return {key: value for key, value in newest.items() if search.has(value)}


# -- what cannot be taken back ---------------------------------------------------------------------


def retentions(settings: Settings) -> dict[str, int]:
    """By topic with logs or alerts, how long the broker keeps a message: milliseconds, -1 for ever.

    Raises `Retryable` when the broker does not say.
    """
    kafka = settings.kafka
    client = admin(kafka)
    try:
        topics = client.list_topics(timeout=10).topics
        ours = [name for name in topics if name.startswith(kafka.topic_prefix)]
        ours += [name for name in (kafka.alerts_topic, kafka.state_topic) if name in topics]
        asked = client.describe_configs([ConfigResource(ResourceType.TOPIC, one) for one in ours])
        return {
            resource.name: int(answer.result(10)["retention.ms"].value)
            for resource, answer in asked.items()
            if resource.name != kafka.tick_topic
        }
    except Exception as error:  # librdkafka's and futures' own kinds, all of one meaning here
        raise Retryable(f"the broker does not say how long it keeps messages: {error}") from None


def left(settings: Settings, search: Search) -> Sequence[str]:
    """Files beside the tables that name the subject and are not touched, and that a person must."""
    home = settings.home.absolute()
    found: list[str] = []
    for folder in ("backtests", "status", "reports"):
        found += [
            str(file.relative_to(home))
            for file in sorted((home / folder).rglob("*"))
            if file.is_file() and _names(file, search)
        ]
    return found


def models(settings: Settings, search: Search) -> list[str]:
    """Models that judge the subject by what it did, or cannot be read: their folders."""
    side = settings.lake_side.absolute()
    files = (store_folder(settings).absolute() / FOLDER).glob(f"[!.]*/{BASELINES}")
    return [str(file.parent.relative_to(side)) for file in sorted(files) if _judges(file, search)]


def _judges(file: Path, search: Search) -> bool:
    try:
        with pa.OSFile(str(file)) as source:
            entities = pa.ipc.open_file(source).read_all().column("entity").combine_chunks()
    except (OSError, KeyError, pa.ArrowInvalid):
        return True
    return bool(pc.any(search.rows(entities)).as_py())


def _names(file: Path, search: Search) -> bool:
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as held:
            return any(
                any(search.rows(column).to_pylist())
                for batch in held.iter_batches(20_000)
                for column in batch.columns
            )
    if file.suffix in (".json", ".ndjson", ".html", ".txt", ".csv", ".log"):
        return search.has(file.read_text("utf-8", "replace"))
    return False
