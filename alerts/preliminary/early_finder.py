"""Raw messages to the findings that job `ingest` will have of them, with the same identity."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import Message

from alerts.matching.matcher import Matcher
from alerts.preliminary.early_publisher import EarlyFinding
from alerts.preliminary.raw_topics import STALE
from alerts.preliminary.selection import chosen_now, early_findings, is_selected
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings
from infra.delta.parquet_writer import arrow_schema
from infra.errors import Fatal, Retryable
from infra.kafka.client import source_of, tenant_of
from infra.kafka.range_reader import headers_of, moment_of
from infra.process.clock import clock
from infra.streaming.kafka_offsets import OffsetReader, kafka_checkpoint
from ingest.parsing.arrow_parser import Parser
from ingest.parsing.event_rows import is_large, joins_by
from ingest.parsing.source import LIVE_MODES, ParseSettings, Record, mode_of, sources
from ingest.pipeline.batch_pass import dated
from ingest.pipeline.kafka_fetch import header_rows
from ingest.tables import RECORD

_IDS_FOR = 10.0
"""Seconds until it is looked again what the topics' records are named by."""

_SCHEMA = arrow_schema(RECORD)


class EarlyFinder:
    """The rules that are told early, over single records.

    What takes more than the record alone is left to the tables: an event that is joined of
    several records has the identity that its batch gives it, and a file of many events takes long.
    """

    def __init__(self, settings: Settings, packs: PackStore) -> None:
        # Loaded now, as the first event must not wait for it.
        sources()
        self._settings = settings
        self._packs = packs
        self._parsing = ParseSettings.of(settings)
        self._parser = Parser(self._parsing)
        self._pack = ""
        self._matcher: Matcher | None = None
        self._sources: frozenset[str] | None = None
        self._ids: dict[str, str] = {}
        self._ids_at = float("-inf")
        self._broker = OffsetReader(settings.kafka)

    def wants(self, source: str) -> bool:
        """Whether a rule that is told early may look at events of a source."""
        return self._sources is None or source in self._sources

    def reload(self) -> bool:
        """Take the rules in force; whether they are others than before.

        Raises `Retryable` before any were compiled.
        """
        try:
            pack = self._packs.current()
        except Fatal as error:
            raise Retryable(str(error)) from None
        if pack == self._pack:
            return False
        alerts = self._settings.alerts
        whole = self._packs.get(pack)
        rules = tuple(
            rule
            for rule in whole.rules
            if is_selected(rule, alerts.preliminary_levels, alerts.preliminary_rules)
        )
        self._matcher = Matcher(msgspec.structs.replace(whole, rules=rules))
        everywhere = not all(rule.sources for rule in rules)
        self._sources = None if everywhere else frozenset(s for r in rules for s in r.sources)
        self._rules = pa.array([rule.id for rule in rules], pa.string())
        self._pack = pack
        return True

    def find(self, messages: Iterable[Message]) -> list[EarlyFinding]:
        """What the rules find, in order of time."""
        places: dict[str, tuple[str, int, int]] = {}
        rows = []
        for message in messages:
            if (row := self._row(message)) is not None:
                places[row["record_id"]] = (row["topic"], row["partition"], row["offset"])
                rows.append(row)
        if not rows or self._matcher is None:
            return []
        records = pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
        events = list(self._parser(dated(records, clock.now())))
        findings = self._matcher.match(pa.concat_batches(events))
        if not findings.num_rows:
            return []
        chosen = chosen_now(self._settings, clock.time(), every=True)
        return [
            EarlyFinding(row | {"pack": self._pack}, places[row["event_uid"].rpartition("#")[0]])
            for row in early_findings(findings, self._rules, chosen).to_pylist()
            if row["answer_by"] is not None
        ]

    def _row(self, message: Message) -> dict[str, Any] | None:
        """A row of bronze.record as job `ingest` makes it; None: it is not looked at here."""
        topic, raw = str(message.topic()), message.value()
        source = source_of(topic, self._settings.kafka)
        received_at = moment_of(message.timestamp()[1])
        try:
            headers = headers_of(message)
        except Retryable:  # Spark reads such names, and job `ingest` finds what there is to find
            return None
        mode = mode_of(headers or ())
        stale = clock.time() - received_at.timestamp() > STALE
        if raw is None or stale or mode not in LIVE_MODES or not self.wants(source):
            return None
        topic_id = self._topic_id(topic)
        if topic_id is None:
            return None
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        row = {
            "record_id": f"{topic_id}:{partition}:{offset}",
            "source": source,
            "mode": mode,
            "received_at": received_at,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "raw": raw,
            "headers": header_rows(headers),
            "tenant_uid": tenant_of(topic, self._settings.kafka),
        }
        return None if self._needs_others(row) else row

    def _needs_others(self, row: Mapping[str, Any]) -> bool:
        headers = {h["key"]: h["value"] for h in row["headers"] or () if h["value"]}
        record = Record(
            row["record_id"], row["source"], row["mode"], row["received_at"], row["raw"], headers
        )
        return is_large(record) or joins_by(record, self._parsing) is not None

    def _topic_id(self, topic: str) -> str | None:
        """What ingest names the topic's records by; None: nobody knows it at the moment."""
        if time.monotonic() - self._ids_at > _IDS_FOR:
            checkpoint = kafka_checkpoint(self._settings.checkpoint_root / "ingest")
            self._ids = {**self._ids, **checkpoint.ids}
            self._ids_at = time.monotonic()
        if topic not in self._ids:
            self._ids |= self._broker.ids([topic])
        return self._ids.get(topic)
