"""Topics, clients, ticks, and a broker of our own for one machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewTopic

from infra.config.settings import KafkaSettings, Settings
from infra.config.tenants import parts_of
from infra.errors import Fatal, Retryable
from infra.kafka.auth import denied, java_security, lacking, librdkafka, unreachable
from infra.kafka.embedded_auth import Guard
from infra.process import java_jars, jdk
from infra.process.subprocesses import die_with_parent
from infra.storage.atomic_files import write_whole

ON_DISK = {"flush.messages": "1"}
"""Of a topic that is forced to disk with each write: else a power cut of the only broker takes
alerts that count as out."""

COMPACTION_LAG = "max.compaction.lag.ms"
COMPACTION_LAG_MS = 24 * 3600 * 1000
"""How long a former value stays on a compacted topic that is written to.

By itself Kafka waits until half of the log is former values, and never looks at the segment that it
writes to, which closes after a week or at 1 GB: what an erasure took back would stay for so long. A
day, as tombstones are kept for a day (delete.retention.ms); less makes only more and smaller files.
"""


def topic_of(source: str, kafka: KafkaSettings) -> str:
    """Topic of a source or feed; Kafka allows no colon: `zeek:conn` is fed by `logs.zeek.conn`."""
    return kafka.topic_prefix + source.replace(":", ".", 1)


def source_of(topic: str, kafka: KafkaSettings) -> str:
    """Source of a topic, the other way round, whosever logs it takes."""
    source, _ = parts_of(topic.removeprefix(kafka.topic_prefix))
    return source.replace(".", ":", 1)


def tenant_of(topic: str, kafka: KafkaSettings) -> str | None:
    """Whose logs a topic takes: `acme`'s that of `logs.tenant-acme.zeek.conn`; None: nobody's."""
    return parts_of(topic.removeprefix(kafka.topic_prefix))[1]


def client_options(kafka: KafkaSettings) -> dict[str, str]:
    """Options every client of librdkafka shares."""
    return {"bootstrap.servers": kafka.bootstrap, **librdkafka(kafka), **kafka.options}


def spark_options(kafka: KafkaSettings) -> dict[str, str]:
    """The same for Spark's Kafka source; the password is not among them, as they may be shown."""
    options = {"bootstrap.servers": kafka.bootstrap, **java_security(kafka), **kafka.options}
    return {f"kafka.{name}": value for name, value in options.items()}


def producer(kafka: KafkaSettings, **options: str | int | bool) -> Producer:
    """A producer that loses and doubles nothing while it lives."""
    return Producer(
        {
            **client_options(kafka),
            "enable.idempotence": True,
            "message.max.bytes": kafka.max_message_bytes + 65536,
            # Messages that come together go out together, and none waits for longer.
            "linger.ms": 5,
            "log_level": 3,
            **options,
        }
    )


def produce(
    client: Producer,
    topic: str,
    value: bytes | None,
    *,
    key: bytes | None = None,
    headers: Sequence[tuple[str, str | bytes | None]] = (),
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
) -> None:
    """Put a message into a producer's queue; while that is full, wait for the broker.

    The wait ends: what the broker does not take within `delivery.timeout.ms` leaves the queue, too.
    """
    while True:
        try:
            client.produce(
                topic, value=value, key=key, headers=list(headers), on_delivery=on_delivery
            )
            break
        except BufferError:
            client.poll(0.5)  # room comes as the broker takes what waits
    # Delivery reports are only handed over inside `poll`, and count as waiting until then.
    client.poll(0)


def admin(kafka: KafkaSettings) -> AdminClient:
    """An admin client."""
    return AdminClient({**client_options(kafka), "log_level": 2})


def require_broker(kafka: KafkaSettings, seconds: float = 5.0) -> None:
    """Raises `Retryable`, naming the address, when no broker answers, and `Fatal` when one
    does and refuses us: wrong password, a certificate nobody vouches for, another protocol.
    """
    errors: list[KafkaError] = []
    options: dict[str, Any] = {**client_options(kafka), "log_level": 0, "error_cb": errors.append}
    client = AdminClient(options)
    end = time.monotonic() + seconds
    while True:
        try:
            # Asked in short turns: why we are refused comes by `error_cb`, long before time is up.
            client.list_topics(timeout=max(0.1, min(1.0, end - time.monotonic())))
            return
        except KafkaException as error:
            client.poll(0)  # hands over what the client heard meanwhile
            why = unreachable(kafka, error, errors)
        if isinstance(why, Fatal) or time.monotonic() > end:
            raise why


def ensure_topics(
    settings: Settings, sources: Sequence[str] = (), jobs: Sequence[str] = ("ingest", "alert")
) -> None:
    """Make the topics of `sources`, and those of our own that `jobs` use, where they are missing.

    What is there is only looked at, so a service needs no right to make it.
    """
    kafka = settings.kafka
    client = admin(kafka)
    topics = _topics(kafka, sources, jobs)
    existing = _patiently(lambda: client.list_topics(timeout=20)).topics
    absent = [topic for topic in topics if topic.topic not in existing]
    for name, made in client.create_topics(absent).items() if absent else ():
        try:
            made.result(20)
        except KafkaException as error:
            if denied(error.args[0]):
                raise lacking(kafka, f"see or make topic {name}") from None
            # Another service may have made it since the list was read.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise Retryable(f"topic {name} could not be made: {error.args[0].str()}") from None
    if "ingest" in jobs:
        _stamp_on_arrival(client, kafka)


def own_topics(kafka: KafkaSettings) -> list[NewTopic]:
    """The topics of our own that all jobs together use, with what they are made with."""
    return _topics(kafka, (), ("ingest", "alert", "rollup"))


def _topics(kafka: KafkaSettings, sources: Sequence[str], jobs: Sequence[str]) -> list[NewTopic]:
    # A record batch wraps the message; 64 KB leave room for that and for headers.
    largest = {"max.message.bytes": str(kafka.max_message_bytes + 65536)}
    on_arrival = {"message.timestamp.type": "LogAppendTime"}
    compact = {"cleanup.policy": "compact", COMPACTION_LAG: str(COMPACTION_LAG_MS)}
    topics = [(topic_of(source, kafka), 1, on_arrival | largest) for source in sources]
    if "ingest" in jobs:
        # One day is enough, as an old tick says nothing new.
        topics += [(kafka.tick_topic, 1, on_arrival | {"retention.ms": "86400000"})]
    if "alert" in jobs:
        topics += [
            (kafka.alerts_topic, kafka.alerts_partitions, ON_DISK | largest),
            (kafka.progress_topic, 1, ON_DISK | compact),
            (kafka.state_topic, kafka.alerts_partitions, ON_DISK | compact | largest),
        ]
    if "ingest" in jobs and kafka.preliminary_topic:
        # Past the day in which each is answered they say nothing that the alerts do not.
        topics += [
            (
                kafka.preliminary_topic,
                kafka.alerts_partitions,
                ON_DISK | largest | {"retention.ms": str(7 * 86_400_000)},
            )
        ]
        if "alert" not in jobs:  # the place of job `ingest` is there as well
            topics += [(kafka.progress_topic, 1, ON_DISK | compact)]
    if "rollup" in jobs and kafka.rollups_topic:
        topics += [(kafka.rollups_topic, 1, compact)]
    return [NewTopic(name, num_partitions=n, config=config) for name, n, config in topics]


def _stamp_on_arrival(client: AdminClient, kafka: KafkaSettings) -> None:
    """Refuse a tick topic whose times are the sender's: completeness is claimed from them."""
    resource = ConfigResource(ResourceType.TOPIC, kafka.tick_topic)
    try:
        config = _patiently(lambda: client.describe_configs([resource])[resource].result(20))
    except KafkaException:
        raise lacking(kafka, f"read the configuration of topic {kafka.tick_topic}") from None
    if config["message.timestamp.type"].value != "LogAppendTime":
        raise Fatal(
            f"topic {kafka.tick_topic} carries the sender's time; set its "
            "message.timestamp.type to LogAppendTime"
        )


def _patiently(ask: Callable[[], Any], seconds: float = 15.0) -> Any:
    """What the broker answers; one that has just made a topic may not know it for a moment."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaException as error:
            if denied(error.args[0]):
                raise
            if time.monotonic() > end:
                raise Retryable(f"the broker does not answer: {error.args[0].str()}") from None
            time.sleep(0.2)


class Broker:
    """A KRaft broker in a JVM of its own, from the pinned archives, for one machine.

    `folder` keeps its log and a `server.properties`; started again on the same
    folder it goes on where it was.
    """

    def __init__(
        self,
        folder: Path,
        port: int,
        heap: str = "384m",
        largest: int = 10485760,
        guard: Guard | None = None,
    ):
        self.folder = folder.absolute()
        self.port = port
        self.guard = guard
        self._heap = heap
        self._largest = largest
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """host:port for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def _scratch(self) -> Path:
        return self.folder / "scratch"

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def ended(self) -> int | None:
        """Its exit code when it ended by itself, None while it runs or was stopped."""
        return self._process.poll() if self._process else None

    def start(self, seconds: float = 60.0) -> Broker:
        """Start and wait until it answers; raises `Fatal` for a taken port, or when it dies."""
        jdk.require_java()
        require_free(self.port, "Kafka", "--kafka-port")
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        if not properties.exists():
            properties.write_text(self._properties(free_port()))
            self._format(properties)
        self._settle(properties)
        # A JVM that was killed leaves the libraries that it unpacked.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(exist_ok=True)
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", properties),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                # A Ctrl-C in the terminal goes to a whole process group; `stop` ends the broker.
                start_new_session=True,
                # Else a port stays taken after a kill -9; to its log that is a power cut.
                preexec_fn=die_with_parent,
                env=os.environ | {"LOG_DIR": str(self.folder)},
            )
        self._await(seconds)
        return self

    def _settle(self, properties: Path) -> None:
        """Let the folder name its own log, also where it was moved, or came from a backup."""
        lines = properties.read_text("utf-8").splitlines()
        here = f"log.dirs={self.folder / 'log'}"
        mine = [here if line.startswith("log.dirs=") else line for line in lines]
        if mine != lines:
            write_whole(properties, "\n".join(mine) + "\n")

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def stop(self) -> None:
        """End it in order."""
        if self._process:
            # A broker that is killed reads its whole log through at the next start.
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
            self._process = None

    def _await(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        kafka = self.guard.settings(self.address) if self.guard else None
        options = client_options(kafka or KafkaSettings(bootstrap=self.address))
        client = AdminClient({**options, "log_level": 0})
        while time.monotonic() < end:
            if self._process and self._process.poll() is not None:
                tail = (self.folder / "broker.log").read_text(errors="replace")[-400:]
                raise Fatal(f"the Kafka broker in {self.folder} ended at once: {tail.strip()}")
            try:
                if client.list_topics(timeout=1).brokers:
                    return
            except KafkaException:
                time.sleep(0.1)
        raise Fatal(f"the Kafka broker in {self.folder} did not answer within {seconds:.0f} s")

    def _command(self, main: str, *arguments: object) -> list[str]:
        classpath = ":".join(str(path) for path in java_jars.paths("broker"))
        java = [
            jdk.require_java(),
            f"-Xmx{self._heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
        ]
        quiet = ["-Dlog4j2.level=WARN", "-Djava.net.preferIPv4Stack=true"]
        own = f"-Djava.io.tmpdir={self._scratch}"
        return [*java, *quiet, own, "-cp", classpath, main, *map(str, arguments)]

    def _format(self, properties: Path) -> None:
        arguments = [f"-t={_cluster_id()}", "-c", str(properties)]
        if self.guard is None:
            self._java("kafka.tools.StorageTool", "format", *arguments)
            return
        users = self.folder / "users"
        try:
            self.guard.arguments(users)
            self._java("kafka.tools.StorageTool", "format", *arguments, f"@{users}")
        finally:
            users.unlink(missing_ok=True)

    def _java(self, main: str, *arguments: object) -> None:
        done = subprocess.run(
            self._command(main, *arguments), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise Fatal(f"{main} failed: {(done.stderr or done.stdout).strip()[-400:]}")

    def _properties(self, controller: int) -> str:
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "log"),
            # Else a mistyped name makes a topic without our settings, such as time of arrival.
            "auto.create.topics.enable": "false",
            "message.max.bytes": str(self._largest + 65536),
            "replica.fetch.max.bytes": str(self._largest + 65536),
            "log.message.timestamp.type": "LogAppendTime",
            # Kafka's default is three copies, which one broker cannot make.
            "offsets.topic.replication.factor": "1",
            # By default 50, each a folder with files of its own.
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "4",
            # By default a new group waits 3 s for further members.
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.hours": "168",
        }
        if self.guard is not None:
            properties |= self.guard.properties(self.port, free_port(), controller)
        else:
            properties |= {
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port},"
                f"CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            }
        return "".join(f"{name}={value}\n" for name, value in properties.items())


def _cluster_id() -> str:
    import base64

    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def free_port() -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def require_free(port: int, what: str, option: str) -> None:
    """Raises `Fatal` naming the port, its wish and the way out when somebody listens there."""
    with socket.socket() as probe:
        # Without it a port counts as taken while its last connections are in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise Fatal(
                f"port {port}, wanted for {what}, is taken; "
                f"stop what listens there or choose another with {option}"
            ) from None


@contextmanager
def broker(folder: Path, port: int = 0) -> Iterator[Broker]:
    """A running broker; port 0 picks a free one."""
    running = Broker(folder, port or free_port()).start()
    try:
        yield running
    finally:
        running.stop()
