"""A plant on a guarded broker: TLS, SCRAM, each service its own user and rights, no secret seen."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from confluent_kafka import KafkaError, Producer
from pydantic import SecretStr

from alerts.cli.webhooks import listen
from alerts.delivery.publisher import Publisher
from infra.config.settings import KafkaSettings, Settings, WebhookSettings, load
from infra.delta.duckdb_views import connect
from infra.errors import Fatal, Retryable
from infra.kafka.acls import SERVICES, Grant, apply, grants
from infra.kafka.auth import environment
from infra.kafka.client import (
    COMPACTION_LAG_MS,
    Broker,
    client_options,
    ensure_topics,
    free_port,
    require_broker,
    topic_of,
)
from infra.kafka.embedded_auth import Guard
from infra.kafka.range_reader import OffsetRange, read, reader_options
from infra.kafka.transactions import read_all
from infra.process.subprocesses import PlatformProcess
from infra.runtime.ticker import Ticker
from infra.streaming.kafka_offsets import OffsetReader as Offsets
from ingest.pipeline.ingest_job import FETCHED_ROWS
from reporting.erasure.topics import topics_kept
from tests.faults.outbox import begun
from tests.infra.authority import Authority
from tests.wait import until

pytestmark = pytest.mark.full

HOOKS = [WebhookSettings(name="pager", url="https://pager.example/in", secret=SecretStr("s"))]
PASSWORD = 'canary "quoted\\ password'
"""What JAAS would take for the end of the password, or for an escape, is part of it."""
CANARIES = ("canary", "q7Zr-not-to-be-seen")


@dataclass
class Plant:
    """A guarded broker, and how each service reaches it."""

    broker: Broker
    guard: Guard
    folder: Path

    def kafka(self, user: str) -> KafkaSettings:
        return self.guard.settings(self.broker.address, user)

    def settings(self, user: str) -> Settings:
        return load(home=self.folder / "home").model_copy(update={"kafka": self.kafka(user)})


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plant]:
    folder: Path = tmp_path_factory.mktemp("guarded")
    authority = Authority.made(folder)
    users = ("admin", "driver", "forwarder", "consumer", "stranger")
    guard = Guard(
        certificate=authority.certificate(folder, "broker"),
        authority=authority.file,
        subject="CN=broker",
        users={user: SecretStr(PASSWORD + user) for user in users},
        admin="admin",
    )
    broker = Broker(folder / "kafka", free_port(), guard=guard).start()
    try:
        running = Plant(broker, guard, folder)
        settings = running.settings("admin")
        ensure_topics(settings, ("sshd", "headgate"))
        services = ("driver", "forwarder", "consumer")
        apply(settings, {service: grants(service, settings) for service in services})
        yield running
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def driver(plant: Plant) -> Iterator[PlatformProcess]:
    """`headgate run ingest` as user `driver`; secrets by file, environment and settings."""
    password = plant.folder / "driver.password"
    password.write_text(f"{PASSWORD}driver\n")
    password.chmod(0o600)
    config = plant.folder / "headgate.toml"
    config.write_text(
        f"""
[kafka]
bootstrap = "{plant.broker.address}"
protocol = "SASL_SSL"
ca_file = "{plant.guard.authority}"
user = "driver"
password_file = "{password}"

[spark]
ui = true
conf = {{ "spark.hadoop.fs.s3a.secret.key" = "{CANARIES[1]}", "spark.ui.port" = "{free_port()}" }}
"""
    )
    settings = plant.settings("driver")
    settings.home.mkdir(mode=0o700)
    environment = {"HEADGATE_API__TOKEN": CANARIES[1]}
    part = PlatformProcess(
        "driver", ("run", "ingest"), settings, config=config, environment=environment
    )
    try:
        yield part
    finally:
        part.stop()


def sent(kafka: KafkaSettings, topic: str, line: bytes) -> KafkaError | None:
    """Send one message; what the broker has against it."""
    told: list[KafkaError | None] = []
    client = Producer(client_options(kafka) | {"log_level": "0"})
    client.produce(topic, line, on_delivery=lambda error, _: told.append(error))
    assert client.flush(30) == 0
    return told[0]


# Those below look at the driver that this one waits for.
def test_logs_come_in_with_the_drivers_own_rights(plant: Plant, driver: PlatformProcess) -> None:
    topic = topic_of("sshd", plant.kafka("forwarder"))
    line = b"<38>Nov 20 12:00:00 web sshd[77]: Accepted password for kim from 192.0.2.7 port 4 ssh2"
    assert sent(plant.kafka("forwarder"), topic, line) is None
    lake = plant.settings("driver").lake_root

    def read() -> list[tuple[Any, ...]]:
        if not (lake / "silver" / "event" / "_delta_log").is_dir():
            return []
        connection = connect(lake)
        try:
            return connection.execute(
                "SELECT e.class_name, r.raw FROM silver.events e JOIN bronze.record r "
                "ON list_contains(e.record_ids, r.record_id) WHERE e.source = 'sshd'"
            ).fetchall()
        finally:
            connection.close()

    # Each look opens an engine of its own, half a second of a core.
    assert until(read, driver, seconds=150, pause=1.0) == [("Authentication", line)]


def test_alerts_go_out_and_are_heard_with_each_services_own_rights(
    plant: Plant, tmp_path: Path
) -> None:
    settings = load(home=tmp_path).model_copy(update={"kafka": plant.kafka("driver")})
    outbox = begun(settings)
    outbox.append(("a1", 1, False), ("a1", 2, False))
    assert Publisher(settings).publish() == 2
    reader = settings.model_copy(update={"kafka": plant.kafka("consumer")})
    heard = [message.key() for message in read_all(reader, settings.kafka.alerts_topic)]
    assert heard == [b"a1", b"a1"]
    stranger = settings.model_copy(update={"kafka": plant.kafka("stranger")})
    with pytest.raises(Retryable, match="Topic authorization failed"):
        list(read_all(stranger, settings.kafka.alerts_topic))
    with pytest.raises(Retryable, match="does not allow user 'stranger' to publish alerts"):
        Publisher(stranger).publish()


def test_an_erasure_may_see_how_long_topics_keep_messages_with_the_drivers_rights(
    plant: Plant,
) -> None:
    settings = plant.settings("driver")
    deleted, compacted = topics_kept(settings)
    assert {settings.kafka.alerts_topic, topic_of("sshd", settings.kafka)} <= deleted.keys()
    assert compacted[settings.kafka.state_topic]["lag_ms"] == COMPACTION_LAG_MS
    with pytest.raises(Retryable, match="does not allow user 'consumer' to read settings of"):
        topics_kept(plant.settings("consumer"))


def family(*pids: int | None) -> list[psutil.Process]:
    """The processes and all below them."""
    parents = [psutil.Process(pid) for pid in pids if pid is not None]
    found = [*parents, *(child for one in parents for child in one.children(recursive=True))]
    return [process for process in found if process.status() != psutil.STATUS_ZOMBIE]


def test_workers_read_with_the_drivers_rights_and_the_password_of_their_environment(
    plant: Plant, driver: PlatformProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = plant.kafka("driver")
    options = reader_options(kafka)
    assert "canary" not in repr(options)
    topic = topic_of("sshd", kafka)
    lines = [b"line %d" % number for number in range(FETCHED_ROWS)]
    client = Producer(client_options(plant.kafka("forwarder")) | {"log_level": "0"})
    for line in lines:
        client.produce(topic, line)
    assert client.flush(60) == 0
    end = Offsets(kafka).ends([(topic, 0)])[topic, 0]
    monkeypatch.setenv(*environment(kafka).popitem())
    wanted = OffsetRange(topic, 0, end - len(lines), end)
    assert [m.value() for _, several in read([wanted], options) for m in several] == lines

    # So does the driver: Spark's workers have its environment.
    def come() -> bool:
        connection = connect(plant.settings("driver").lake_root)
        try:
            rows = 'SELECT count(*) FROM bronze.record WHERE "offset" >= ?'
            return connection.execute(rows, [wanted.start]).fetchone() == (len(lines),)
        finally:
            connection.close()

    assert until(come, driver, seconds=150, pause=1.0)


def test_no_secret_is_in_a_command_line_a_log_or_a_file(
    plant: Plant, driver: PlatformProcess
) -> None:
    processes = family(driver.process.pid, plant.broker.pid)
    lines = [" ".join(process.cmdline()) for process in processes]
    assert sum("org.apache.spark.deploy.SparkSubmit" in line for line in lines) == 1
    assert [line for line in lines if any(canary in line for canary in CANARIES)] == []
    home = plant.settings("driver").home
    files = [path for path in (*home.rglob("*"), *plant.broker.folder.rglob("*")) if path.is_file()]
    assert driver.log in files
    telling = []
    for path in files:
        with suppress(FileNotFoundError):  # the driver writes beside a file and puts it in place
            content = path.read_bytes()
            telling += [path for canary in CANARIES if canary.encode() in content]
    assert telling == []


def test_everything_listens_on_loopback_only(plant: Plant, driver: PlatformProcess) -> None:
    listening = [
        (process.name(), socket.laddr)
        for process in family(driver.process.pid, plant.broker.pid)
        for socket in process.net_connections()
        if socket.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 6  # three of the broker; Spark's RPC, blocks and pages
    assert [one for one in listening if one[1].ip not in ("127.0.0.1", "::1")] == []


def test_sparks_pages_want_the_token_and_hide_secrets(
    plant: Plant, driver: PlatformProcess
) -> None:
    port = re.search(r'ui.port" = "(\d+)"', (plant.folder / "headgate.toml").read_text())
    assert port is not None
    pages = f"http://127.0.0.1:{port[1]}/api/v1/applications"
    token = (plant.settings("driver").home / "spark-ui.token").read_text().strip()
    forged = f"{token[:-4]}AAAA"
    with httpx.Client(timeout=60) as client:
        assert client.get(pages).status_code == 403
        client.headers["Authorization"] = f"Bearer {forged}"
        assert client.get(pages).status_code == 403
        client.headers["Authorization"] = f"Bearer {token}"
        (app,) = client.get(pages).json()
        told = client.get(f"{pages}/{app['id']}/environment").text
    assert "spark.hadoop.fs.s3a.secret.key" in told
    assert [canary for canary in CANARIES if canary in told] == []


def test_what_is_kept_is_its_owners_alone(plant: Plant, driver: PlatformProcess) -> None:
    home = plant.settings("driver").home
    open_ = []
    for path in (home, *home.rglob("*")):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & 0o066:  # Spark lets all execute what it copied
                open_.append(f"{path} {mode:o}")
    assert open_ == []


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"password": SecretStr("wrong")}, Fatal, "refuses user 'driver': SASL authentication"),
        ({"ca_file": "other"}, Fatal, "certificate verify failed: broker certificate could not be"),
        (
            {"protocol": "PLAINTEXT", "user": None, "password": None},
            Retryable,
            "something listens there: is kafka.protocol = 'PLAINTEXT' what it speaks?",
        ),
    ],
)
def test_who_is_refused_at_the_door_is_told_why(
    plant: Plant, tmp_path: Path, change: dict[str, object], kind: type[Exception], said: str
) -> None:
    if "ca_file" in change:
        change = {"ca_file": Authority.made(tmp_path, "other").file}
    with pytest.raises(kind) as refused:
        require_broker(plant.kafka("driver").model_copy(update=change), 3.0)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "canary" not in str(refused.value)


def test_a_certificate_of_ours_opens_where_the_broker_wants_one(plant: Plant) -> None:
    told = (plant.broker.folder / "server.properties").read_text()
    address = re.search(r"INTERNAL://(127\.0\.0\.1:\d+)", told)
    assert address is not None
    kafka = KafkaSettings(
        bootstrap=address[1],
        protocol="SSL",
        ca_file=plant.guard.authority,
        certificate_file=plant.guard.certificate,
    )
    require_broker(kafka)
    with pytest.raises((Fatal, Retryable), match=r"no TLS with the Kafka|no Kafka broker"):
        require_broker(kafka.model_copy(update={"certificate_file": None}), 2.0)


def test_who_delivers_to_webhooks_may_read_what_it_delivers() -> None:
    bare, hooked = load(), load(webhooks=HOOKS)
    wanted = set(grants("consumer", hooked))
    for service in ("ingest", "driver"):
        assert wanted <= set(grants(service, hooked))
        assert not wanted <= set(grants(service, bare))


@pytest.mark.parametrize("service", SERVICES)
def test_no_right_is_asked_for_twice(service: str) -> None:
    given = grants(service, load(webhooks=HOOKS))
    assert len(given) == len(set(given))


def test_a_missing_right_is_named(plant: Plant) -> None:
    with pytest.raises(Fatal, match="does not allow user 'stranger' to see or make topic logs"):
        ensure_topics(plant.settings("stranger"))
    hooked = plant.settings("stranger").model_copy(update={"webhooks": HOOKS})
    with pytest.raises(Fatal, match="does not allow user 'stranger' to read the topic alerts"):
        listen(hooked, threading.Event())
    with pytest.raises(Fatal, match="does not allow user 'driver' to change ACLs"):
        apply(plant.settings("driver"), {"driver": grants("driver", plant.settings("driver"))})


def test_ticks_outlive_a_right_that_is_missing_for_a_while(
    plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    topic, end = "late-ticks", time.monotonic() + 60
    own = {"tick_topic": topic, "tick_seconds": 0.1}
    admin = plant.settings("admin")
    admin = admin.model_copy(update={"kafka": admin.kafka.model_copy(update=own)})
    ensure_topics(admin)
    ticker = Ticker(plant.kafka("stranger").model_copy(update=own)).start()
    try:
        while "late-ticks takes none" not in capsys.readouterr().err:
            assert time.monotonic() < end
            time.sleep(0.3)
        apply(admin, {"stranger": [Grant("topic", topic, "Write")]})
        while Offsets(admin.kafka).held([(topic, 0)])[topic, 0].end < 3:
            assert time.monotonic() < end
            time.sleep(0.3)
    finally:
        ticker.stop()


@pytest.mark.parametrize(
    ("user", "topic"),
    [
        ("forwarder", "logs.tick"),
        ("forwarder", "logs.headgate"),
        ("forwarder", "alerts"),
        ("driver", "logs.sshd"),
        ("consumer", "alerts"),
        ("consumer", "alerts.progress"),
        ("stranger", "logs.sshd"),
    ],
)
def test_no_service_writes_where_it_has_no_business(plant: Plant, user: str, topic: str) -> None:
    refused = sent(plant.kafka(user), topic, b"forged")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_command_names_and_sets_the_rights(plant: Plant, tmp_path: Path) -> None:
    kafka = plant.kafka("admin")
    environment = {
        "HEADGATE_KAFKA__BOOTSTRAP": kafka.bootstrap,
        "HEADGATE_KAFKA__PROTOCOL": kafka.protocol,
        "HEADGATE_KAFKA__CA_FILE": str(kafka.ca_file),
        "HEADGATE_KAFKA__USER": "admin",
        "HEADGATE_KAFKA__PASSWORD": f"{PASSWORD}admin",
    }
    acls = [sys.executable, "-m", "headgate.cli", "--home", str(tmp_path), "kafka", "acls"]
    for_one = [*acls, "--user", "forwarder=stranger", "--source", "sudo"]
    listed = subprocess.run([*for_one, "--output", "json"], capture_output=True, check=True)
    rights = [(row["name"], row["operation"]) for row in json.loads(listed.stdout)]
    assert rights == [("logs.sudo", "Write")]
    done = subprocess.run(
        [*for_one, "--apply"], capture_output=True, text=True, env=os.environ | environment
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert done.stderr.startswith("1 rights are set")
    ensure_topics(plant.settings("admin"), ("sudo",))
    assert sent(plant.kafka("stranger"), "logs.sudo", b"a line") is None
    still = sent(plant.kafka("stranger"), "logs.sshd", b"a line")
    assert still is not None
    assert still.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
