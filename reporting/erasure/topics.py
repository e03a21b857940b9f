"""What names a person or a device on topics: what can be said anew, and what stays for how long.

Of a compacted topic Kafka keeps the newest message under each key, so it is said anew there, or
deleted by a tombstone. The former messages are deleted by Kafka itself, when it gets to it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from confluent_kafka import Message

from alerts.delivery.alert_message import published_state
from alerts.delivery.held_back import held_back
from alerts.delivery.publisher import published
from alerts.delivery.webhook_queue import queue_file
from alerts.domain.alert_body import UNREADABLE, readable_body
from alerts.tables import ALERT
from infra.config.settings import Settings
from infra.delta.log_reader import commit, newest_version, versions
from infra.delta.transaction import active_files
from infra.errors import HeadgateError, Retryable
from infra.kafka.client import COMPACTION_LAG, produce, producer
from infra.kafka.topic_config import topic_settings, topics
from infra.kafka.transactions import read_all
from infra.storage.paths import Location, to_read
from infra.streaming.lake import Lake
from reporting.erasure.subject_match import Search

_TRIES = 5
_ROWS = 5_000
UNLIMITED = 2**63 - 1
"""Kafka's word for a lag that was never set."""


@dataclass(frozen=True)
class _Said:
    """What a topic has under a key of which some message names the subject."""

    newest: bytes | None
    """None: a tombstone."""
    names: bool
    """Whether the newest message names it, by its key or its value."""
    messages: int
    """How many do."""


_Named = Mapping[bytes, _Said]


def naming(messages: Iterator[Message], search: Search) -> dict[bytes, _Said]:
    """Keys of a compacted topic under which some message names the subject."""
    saids: dict[bytes, _Said] = {}
    while some := list(islice(messages, _ROWS)):
        pairs = [(message.key() or b"", message.value()) for message in some]
        keys, values = (pa.array(column, pa.binary()) for column in zip(*pairs, strict=True))
        hits = pc.or_(search.rows(keys), search.rows(values)).to_pylist()
        for (key, value), hit in zip(pairs, hits, strict=True):
            before = saids.get(key)
            # Once a message named the subject, the key's later ones count: the newest is what
            # stays.
            if hit or before:
                saids[key] = _Said(value, hit, (before.messages if before else 0) + hit)
    return saids


def taken_back(
    lake: Lake, search: Search, *, removes: bool, away: str | None
) -> tuple[dict[str, int | str], dict[str, int]]:
    """Say anew or delete on compacted topics what names the subject.

    How many states and counts these were, a sentence where it could not be done. And by topic that
    could be read, how many messages there name it. `away`: why the broker cannot be asked.
    """
    kafka = lake.settings.kafka
    states = partial(_states, lake.settings, search)
    ways: list[tuple[str, str, Callable[[], _Named], Callable[[_Named], int]]] = [
        ("alert_states", kafka.state_topic, states, partial(restated, lake, search))
    ]
    if kafka.rollups_topic:
        held = partial(_counts, lake.settings, search)
        say = partial(recounted, lake.settings, search, removes)
        ways.append(("rollups", kafka.rollups_topic, held, say))
    if away:
        return {where: away for where, *_ in ways}, {}
    done: dict[str, int | str] = {}
    messages: dict[str, int] = {}
    for where, topic, read, say_anew in ways:
        try:
            before = read()
            messages[topic] = sum(topic_count.messages for topic_count in before.values())
            done[where] = say_anew(before)
        except Retryable as error:
            done[where] = str(error)
        except Exception as error:  # the broker's own kinds too: an erasure of the tables goes on
            done[where] = f"topic {topic} could not be gone through: {error}"
    return done, messages


# -- states of alerts ------------------------------------------------------------------------------


def _states(settings: Settings, search: Search) -> _Named:
    return naming(read_all(settings, settings.kafka.state_topic), search)


def restated(lake: Lake, search: Search, before: _Named) -> int:
    """Say the states of some alerts anew on the compacted topic; how many named the subject.

    `before`: what the topic has. A state that names it no more is said once more as long as a
    former message does: Kafka closes the segment that it lies in only when another one comes.
    Raises `Retryable` when the broker does not take it.
    """
    lines: dict[bytes, int] = {}
    for _ in range(_TRIES):
        newest = {
            alert: (revision, body)
            for alert, revision, body in _newest(lake, before.keys())
            # Only what changed since the last round; the loop ends when nothing has.
            if lines.get(alert) != revision
        }
        if not newest:
            break
        # A revision that job `alert` publishes meanwhile is newer: then it is said once more.
        bodies = {alert: search.text(body) for alert, (_, body) in newest.items()}
        # With the time of publishing that it had: nothing new is told, only other words.
        states = [
            (alert, _state(search, body, before[alert].newest)) for alert, body in bodies.items()
        ]
        _say(lake.settings, lake.settings.kafka.state_topic, states)
        lines |= {alert: revision for alert, (revision, _) in newest.items()}
    # Alerts that are no longer in the table have no state that could be said anew.
    gone = {alert: alert_state for alert, alert_state in before.items() if alert not in lines}
    again = [
        (alert, None if alert_state.names else alert_state.newest)
        for alert, alert_state in gone.items()
    ]
    _say(lake.settings, lake.settings.kafka.state_topic, again)
    return sum(alert_state.names for alert_state in before.values())


def _state(search: Search, body: str, before: bytes | None) -> bytes | None:
    """The state that a revision tells, published when the one before it was. Of a revision whose
    body is damaged, what the topic has in other words: nothing else tells its state any more."""
    if UNREADABLE in readable_body(body):
        return None if before is None else search.text(before.decode("utf-8", "replace")).encode()
    state = msgspec.json.decode(published_state(body.encode()))
    try:
        published_at = msgspec.json.decode(before or b"{}").get("published_at")
    # The topic is open to others: what lies there may be no JSON, or no object.
    except (msgspec.DecodeError, AttributeError):
        published_at = None
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return msgspec.json.encode(state | {"published_at": published_at or now})


def _say(settings: Settings, topic: str, messages: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Send messages to a compacted topic; without a value it is a tombstone."""
    failed: list[str] = []
    client = producer(settings.kafka)
    for key, value in messages:
        produce(
            client,
            topic,
            value,
            key=key,
            on_delivery=lambda error, _: failed.append(str(error)) if error else None,
        )
    # `flush` returns how many messages are still waiting when its time is up.
    if client.flush(30) or failed:
        raise Retryable(f"topic {topic}: {(failed or ['no answer'])[0]}")


def _newest(lake: Lake, alerts: Iterable[bytes]) -> Iterator[tuple[bytes, int, str]]:
    """The newest revision of some alerts in the table."""
    newest: dict[bytes, tuple[int, str]] = {}
    wanted, held = set(alerts), held_back(lake.settings)
    for file in active_files(lake.spark, lake.path(ALERT)) if wanted else ():
        content = to_read(lake.folder(ALERT) / file.name)
        rows = pq.read_table(content, columns=["alert_id", "revision", "body"])
        for row in rows.to_pylist():
            alert = row["alert_id"].encode()
            # What is held back was not told, and is no state that consumers have.
            hold = held.get(row["alert_id"])
            if hold is not None and row["revision"] >= hold.first:
                continue
            if alert in wanted and row["revision"] > newest.get(alert, (0, ""))[0]:
                newest[alert] = (row["revision"], row["body"])
    return ((alert, *content) for alert, content in newest.items())


# -- alerts that wait to be published --------------------------------------------------------------


def unsent(lake: Lake, search: Search) -> list[int]:
    """Versions of gold.alert that name the subject in what job `alert` has yet to publish.

    It reads them from the files of their commits, which an erasure does not change. Raises
    `Retryable` when the broker does not tell how far it is.
    """
    folder = lake.folder(ALERT)
    if newest_version(folder) < 0:
        return []
    return [
        version
        for version in versions(folder, published(lake.settings) + 1)
        if _tells(folder, version, search)
    ]


def _tells(folder: Location, version: int, search: Search) -> bool:
    """Whether what goes out of a commit names the subject. Files that are gone do not go out."""
    table_commit = commit(folder, version)
    for name in table_commit.adds if table_commit.appends else ():
        try:
            rows = pq.read_table(to_read(folder / name), columns=["body", "suppressed_by"])
        # VACUUM took it; the publisher will not find it either.
        except FileNotFoundError:
            continue
        combine_chunks = rows.filter(pc.is_null(rows["suppressed_by"]))["body"].combine_chunks()
        if pc.any(search.rows(combine_chunks)).as_py():
            return True
    return False


# -- alerts that webhooks have yet to read ---------------------------------------------------------


def unqueued(settings: Settings, search: Search) -> int:
    """How many messages name the subject that webhooks have yet to read from the topic of alerts.

    Those that they have read wait in a file (`erase_outside.queued`). Raises `Retryable` when the
    topic cannot be read.
    """
    topic = settings.kafka.alerts_topic
    file = queue_file(settings)
    if not settings.webhooks or not file.exists():
        return 0
    # The consumer writes here all the time; the timeout waits for its lock.
    with closing(sqlite3.connect(file, timeout=30)) as db:
        began = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'alert_place'").fetchone()
        sql = "SELECT number, next FROM alert_place WHERE topic = ?"
        places: dict[int, int] = dict(db.execute(sql, (topic,)).fetchall()) if began else {}
    if not places:
        return 0  # they begin with what comes from then on
    by_topic = naming(read_all(settings, topic, since=places), search)
    return sum(topic_count.messages for topic_count in by_topic.values())


# -- counts ----------------------------------------------------------------------------------------


def _counts(settings: Settings, search: Search) -> dict[bytes, _Said]:
    """What the topic with counts has under keys that name the subject; nothing without a topic.

    Raises `Retryable` when it cannot be read.
    """
    topic = settings.kafka.rollups_topic
    if not topic or topic not in topics(settings.kafka):
        return {}
    return naming(read_all(settings, topic), search)


def recounted(settings: Settings, search: Search, removes: bool, before: _Named) -> int:
    """Delete counts of a topic by tombstones, or put them under other words; how many.

    A key that was deleted before is so once more while a count is still there. Raises `Retryable`
    when the broker does not take it.
    """
    messages: list[tuple[bytes, bytes | None]] = []
    for key, alert_state in before.items():
        if alert_state.newest is not None and not removes:
            other, value = (search.text(text.decode()) for text in (key, alert_state.newest))
            # The new key before the tombstone: a reader in between sees the count twice, never not
            # at all.
            messages.append((other.encode(), value.encode()))
        if search.has(key.decode()) and (
            alert_state.newest is not None or alert_state.messages > 1
        ):
            messages.append((key, None))
    _say(settings, settings.kafka.rollups_topic, messages)
    return sum(alert_state.newest is not None for alert_state in before.values())


# -- what cannot be taken back ---------------------------------------------------------------------


def topics_kept(settings: Settings) -> tuple[dict[str, int], dict[str, dict[str, int | None]]]:
    """How long topics that may name somebody keep messages, by what is set at the broker.

    First of those that delete what is old: milliseconds, -1 for ever. Then of compacted ones how
    long a former value stays (`lag_ms`, None without a limit) and a tombstone after it
    (`tombstone_ms`). Raises `Retryable` when the broker does not say.
    """
    kafka = settings.kafka
    ours = [
        *(kafka.alerts_topic, kafka.state_topic),
        *(kafka.preliminary_topic, kafka.rollups_topic),
    ]
    try:
        there = sorted(topics(kafka) - {kafka.tick_topic})
        result = topic_settings(
            kafka, [name for name in there if name.startswith(kafka.topic_prefix) or name in ours]
        )
    except HeadgateError as error:
        raise Retryable(f"the broker does not say how long it keeps messages: {error}") from None
    deleted: dict[str, int] = {}
    compacted: dict[str, dict[str, int | None]] = {}
    for name, topic_count in result.items():
        policies = topic_count["cleanup.policy"].split(",")
        if "compact" in policies:
            # A former value may stay as long as its segment is open; this setting bounds that.
            lag = int(topic_count[COMPACTION_LAG])
            compacted[name] = {
                "lag_ms": None if lag == UNLIMITED else lag,
                "tombstone_ms": int(topic_count["delete.retention.ms"]),
            }
        # A topic may do both: `compact,delete`.
        if "delete" in policies or "compact" not in policies:
            deleted[name] = int(topic_count["retention.ms"]) if "delete" in policies else -1
    return deleted, compacted


def sentences_of(untouched: Mapping[str, Any]) -> Iterator[str]:
    """How long topics keep what they have, as a person reads it."""
    topics_keep_ms = untouched["topics_keep_ms"]
    if isinstance(topics_keep_ms, str):
        yield topics_keep_ms
        return
    for topic, millis in topics_keep_ms.items():
        yield f"topic {topic} keeps each message {_span(millis)}"
    for topic, topic_state in untouched["topics_compacted"].items():
        count = topic_state.get("messages")
        if count == 0:
            yield f"topic {topic} is compacted: no message of it named it"
            continue
        which = "messages that name it"
        which += ", if there are," if count is None else f" ({count})"
        if topic_state["lag_ms"] is None:
            yield (
                f"topic {topic} is compacted without {COMPACTION_LAG}: {which} stay for as long as "
                "it is quiet; run headgate kafka topics --apply, and the same command again a day "
                "later"
            )
            continue
        yield (
            f"topic {topic} is compacted: {which} go with the first message that comes to their "
            f"partition once they are {_span(topic_state['lag_ms'])} old ({COMPACTION_LAG}); "
            "where none "
            "comes, the same command, run again after that, sends one. A tombstone goes "
            f"{_span(topic_state['tombstone_ms'])} later at the earliest"
        )


def _span(millis: int) -> str:
    """A time as a person says it."""
    return "for ever" if millis < 0 else f"{timedelta(milliseconds=millis)}"
