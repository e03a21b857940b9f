"""One platform for the end-to-end tests: a broker, a driver with all jobs, a listener."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pytest

from alerts.delivery.topic_listener import Listener, TopicMessage
from infra.config.settings import Settings, load
from infra.delta.duckdb_views import definitions, needed, open_engine, refresh
from infra.kafka.client import Broker, ensure_topics, free_port, producer, topic_of
from infra.process.subprocesses import PlatformProcess
from tests import wait

SOURCES = ("zeek:http", "zeek:dns", "aws_cloudtrail", "sshd", "isc_dhcpd", "nobody_knows_it")
PACE = {
    "HEADGATE_JOBS__WAIT_SECONDS": "5",
    "HEADGATE_JOBS__WATERMARK_SECONDS": "2",
    "HEADGATE_JOBS__REPAIR_TRIGGER_SECONDS": "10",
}


@dataclass
class Plant:
    """What the tests work on."""

    settings: Settings
    broker: Broker
    driver: PlatformProcess
    drop: Path
    """A folder whose files are read as zeek:http."""
    rules: Path
    """A folder of rules, empty at first."""
    environment: dict[str, str]
    """What the driver was started with, for commands that must see the same."""
    heard: list[TopicMessage] = field(default_factory=list)

    def send(self, source: str, *lines: bytes) -> None:
        """Put lines into a source's topic, acknowledged."""
        client = producer(self.settings.kafka)
        refused: list[object] = []
        for line in lines:
            client.produce(
                topic_of(source, self.settings.kafka),
                line,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert client.flush(60) == 0
        assert refused == []

    def attack(self, address: str, uri: str = "/../../etc/passwd") -> None:
        """One HTTP request that the path traversal rule alerts on."""
        self.send("zeek:http", http(address, uri))

    @cached_property
    def engine(self) -> duckdb.DuckDBPyConnection:
        """Kept: a new one costs half a second of a core, and the tests ask again and again."""
        return open_engine(memory="1GB", threads=2)

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Rows of a question to the lake as it is now."""
        names = re.findall(r"\b(?:bronze|silver|gold|ops)\.\w+", sql)
        refresh(self.engine, needed(names, definitions(self.settings.lake_root)))
        return self.engine.execute(sql).fetchall()

    def until(self, true: Callable[[], Any], what: str, seconds: float = 120) -> Any:
        """Wait until something holds; returns it."""
        return wait.until(true, self.driver, what=what, seconds=seconds, pause=0.3)

    def alerts_on(self, entity: str) -> list[TopicMessage]:
        """Revisions heard about an entity."""
        return [one for one in list(self.heard) if one.body["entity"]["value"] == entity]


def http(address: str, uri: str) -> bytes:
    """A line of Zeek's http.log, as of now."""
    record = {
        "ts": datetime.now(UTC).timestamp(),
        "uid": "C1",
        "id.orig_h": address,
        "id.orig_p": 40000,
        "id.resp_h": "10.9.1.1",
        "id.resp_p": 80,
        "method": "GET",
        "host": "web",
        "uri": uri,
        "status_code": 404,
    }
    return json.dumps(record).encode()


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    folder: Path = tmp_path_factory.mktemp("plant")
    broker = Broker(folder / "kafka", free_port()).start()
    settings = load(home=folder / "home", kafka={"bootstrap": broker.address})
    ensure_topics(settings, SOURCES)
    drop, rules = folder / "drop", folder / "rules"
    drop.mkdir()
    rules.mkdir()
    landing = {"drop": {"paths": [str(drop)], "source": "zeek:http", "min_file_age_seconds": 0}}
    environment = PACE | {
        "HEADGATE_FOLDERS": json.dumps(landing),
        "HEADGATE_ALERTS__RULES": json.dumps([str(rules)]),
    }
    part = PlatformProcess("driver", ("up",), settings, environment=environment)
    running = Plant(settings, broker, part, drop, rules, environment)
    try:
        with Listener(settings, running.heard.append):
            offsets = settings.checkpoint_root / "ingest" / "spark" / "offsets"
            running.until(offsets.is_dir, "the driver comes up")
            yield running
            running.engine.close()
    finally:
        part.stop()
        broker.stop()
