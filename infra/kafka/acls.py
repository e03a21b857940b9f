"""What each service needs at the broker, and no more.

Operations and which of them imply others: https://kafka.apache.org/documentation/#security_authz
(Read and Write imply Describe; an idempotent producer needs only Write on its topics).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not listed
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from infra.config.settings import Settings
from infra.errors import Fatal, Retryable
from infra.kafka.auth import denied, lacking
from infra.kafka.client import admin, require_broker, topic_of

_QUALITY = "headgate"
"""The source under which `headgate quality` reports what it found."""

_GROUPS = "headgate-"
"""Every consumer group of ours begins so. Nothing is committed under them."""
READER = "headgate-reader"
"""The one of who reads a compacted topic to its end (`infra.kafka.transactions.read_all`)."""

Resource = Literal["topic", "group", "transactional-id"]


@dataclass(frozen=True)
class Grant:
    """One right. `prefixed`: `name` is the beginning of the names it is for."""

    resource: Resource
    name: str
    operation: str
    prefixed: bool = False
    allow: bool = True

    @property
    def pattern(self) -> str:
        """As Kafka calls it."""
        return "prefixed" if self.prefixed else "literal"


def _forwarder(settings: Settings, sources: Sequence[str]) -> Iterator[Grant]:
    kafka = settings.kafka
    if sources:
        for source in sources:
            yield Grant("topic", topic_of(source, kafka), "Write")
        return
    yield Grant("topic", kafka.topic_prefix, "Write", prefixed=True)
    # Completeness is told from the ticks, and what quality says comes from us alone.
    for own in (kafka.tick_topic, topic_of(_QUALITY, kafka)):
        yield Grant("topic", own, "Write", allow=False)


def _ingest(settings: Settings, sources: Sequence[str]) -> Iterator[Grant]:
    kafka = settings.kafka
    yield Grant("topic", kafka.topic_prefix, "Read", prefixed=True)
    # An erasure's certificate says how long logs stay there, and the driver asks how long topics
    # keep what is unread (`headgate ledger --check`).
    yield Grant("topic", kafka.topic_prefix, "DescribeConfigs", prefixed=True)
    yield Grant("group", _GROUPS, "Read", prefixed=True)
    yield Grant("topic", kafka.tick_topic, "Write")
    yield Grant("topic", kafka.tick_topic, "DescribeConfigs")
    yield Grant("topic", topic_of(_QUALITY, kafka), "Write")
    if kafka.preliminary_topic:
        yield from _preliminary(settings)
    if settings.webhooks:  # its driver runs `headgate webhooks deliver`
        yield from _consumer(settings, sources)
    if settings.listen.with_jobs:  # its driver runs `headgate listen`
        yield from _listener(settings, sources)


def _alert(settings: Settings, sources: Sequence[str]) -> Iterator[Grant]:
    kafka = settings.kafka
    for topic in (kafka.alerts_topic, kafka.state_topic, kafka.progress_topic):
        yield Grant("topic", topic, "Write")
    for topic in (kafka.progress_topic, kafka.state_topic):  # `headgate erase` reads the latter
        yield Grant("topic", topic, "Read")
    for topic in (kafka.alerts_topic, kafka.state_topic):  # and says how long these keep messages
        yield Grant("topic", topic, "DescribeConfigs")
    yield Grant("group", READER, "Read")
    for purpose in ("alerts", "health"):
        own = f"headgate-{settings.alerts.tenant}-{purpose}"
        yield from (Grant("transactional-id", own, right) for right in ("Write", "Describe"))


def _preliminary(settings: Settings) -> Iterator[Grant]:
    kafka = settings.kafka
    for topic in (kafka.preliminary_topic, kafka.progress_topic):
        yield Grant("topic", topic, "Write")
    yield Grant("topic", kafka.progress_topic, "Read")
    yield Grant("topic", kafka.preliminary_topic, "DescribeConfigs")  # as `headgate erase` says
    yield Grant("group", READER, "Read")
    own = f"headgate-{settings.alerts.tenant}-preliminary"
    yield from (Grant("transactional-id", own, right) for right in ("Write", "Describe"))


def _consumer(settings: Settings, sources: Sequence[str]) -> Iterator[Grant]:
    kafka = settings.kafka
    for topic in (kafka.alerts_topic, kafka.state_topic, kafka.preliminary_topic):
        if topic:
            yield Grant("topic", topic, "Read")
    yield Grant("group", _GROUPS, "Read", prefixed=True)


def _rollup(settings: Settings, sources: Sequence[str]) -> Iterator[Grant]:
    if settings.kafka.rollups_topic:
        for right in ("Write", "Read", "DescribeConfigs"):  # `headgate erase` wants the latter two
            yield Grant("topic", settings.kafka.rollups_topic, right)
        yield Grant("group", READER, "Read")


def _listener(settings: Settings, sources: Sequence[str]) -> Iterator[Grant]:
    """What it writes is what the settings name; `sources` do not matter."""
    for feed in settings.listen.feeds:
        # It looks at topics that are there, which Write implies, and makes none.
        yield Grant("topic", topic_of(feed, settings.kafka), "Write")


def _driver(settings: Settings, sources: Sequence[str]) -> Iterator[Grant]:
    for part in (_ingest, _alert, _rollup):
        yield from part(settings, sources)


SERVICES: Mapping[str, tuple[str, Callable[[Settings, Sequence[str]], Iterator[Grant]]]] = {
    "forwarder": ("what ships logs: writes the topics of sources", _forwarder),
    "listener": ("`headgate listen`: writes the topics of [listen]", _listener),
    "driver": ("`headgate up`: all jobs in one process", _driver),
    "ingest": ("`headgate run ingest` alone", _ingest),
    "alert": ("`headgate run alert` alone", _alert),
    "rollup": ("`headgate run rollup` alone, with `kafka.rollups_topic`", _rollup),
    "consumer": ("reads alerts: `headgate alerts tail`, your own programs", _consumer),
}


def grants(service: str, settings: Settings, sources: Sequence[str] = ()) -> list[Grant]:
    """The rights of a service. `sources` narrow a forwarder to their topics."""
    # Two parts of a service may need the same.
    return list(dict.fromkeys(SERVICES[service][1](settings, sources)))


def acl_command(grant: Grant, user: str, bootstrap: str) -> str:
    """The same as a call of Kafka's own tool."""
    who = "--allow-principal" if grant.allow else "--deny-principal"
    return (
        f"kafka-acls.sh --bootstrap-server {bootstrap} --command-config admin.properties "
        f"--add {who} 'User:{user}' --operation {grant.operation} --{grant.resource} "
        f"'{grant.name}' --resource-pattern-type {grant.pattern}"
    )


def apply(settings: Settings, grants_of: Mapping[str, Sequence[Grant]]) -> int:
    """Give users their rights at the broker; what is there already stays. Returns how many.

    Raises `Fatal` when the broker knows no ACLs or we may not change them.
    """
    require_broker(settings.kafka)
    bindings = [_binding(grant, user) for user, given in grants_of.items() for grant in given]
    client = admin(settings.kafka)  # kept: what it was asked ends with it
    for made in client.create_acls(bindings).values():
        try:
            made.result(20)
        except KafkaException as error:
            args = error.args[0]
            if args.code() == KafkaError.SECURITY_DISABLED:
                raise Fatal(
                    f"the Kafka broker at {settings.kafka.bootstrap} keeps no ACLs; set its "
                    "authorizer.class.name"
                ) from None
            if denied(args):
                raise lacking(settings.kafka, "change ACLs (Alter on the cluster)") from None
            raise Retryable(f"the ACLs could not be set: {args.str()}") from None
    return len(bindings)


_TYPES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}


def _binding(grant: Grant, user: str) -> AclBinding:
    return AclBinding(
        _TYPES[grant.resource],
        grant.name,
        ResourcePatternType.PREFIXED if grant.prefixed else ResourcePatternType.LITERAL,
        f"User:{user}",
        "*",
        _OPERATIONS[grant.operation],
        AclPermissionType.ALLOW if grant.allow else AclPermissionType.DENY,
    )
