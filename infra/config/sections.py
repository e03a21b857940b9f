"""The settings' sections: each field says what it does and why that default."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from infra.config.secrets import is_secret
from infra.config.tenants import site_of


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise ValueError(f"no time zone '{value}'; use a name like Europe/Berlin or UTC") from error
    return value


class SourceSettings(Section):
    """How one source's records are read."""

    tz: str = Field("UTC", description="zone of times that name none")
    hosts: dict[str, str] = Field(
        default_factory=dict, description="zone by host name, where it differs from tz"
    )
    lease_seconds: int = Field(
        86400, gt=0, description="lease length where the log does not say (dhcpd, dnsmasq, Windows)"
    )
    silent_minutes: int | None = Field(
        None,
        ge=0,
        description="silent for longer: named; none: for longer than it ever was; 0: never named",
    )

    format: Literal["text", "avro", "protobuf"] = Field(
        "text", description="how its messages are packed; text serves JSON too"
    )
    schema_file: Path | None = Field(
        None, description="Avro: .avsc; Protobuf: what protoc --descriptor_set_out writes"
    )
    registry: str | None = Field(
        None,
        description="schema registry (URL, or folder with ID.avsc, ID.desc) of framed messages",
    )
    message: str | None = Field(
        None, description="Protobuf: full name of the message, where the file has several"
    )
    accounts: dict[str, str] = Field(
        default_factory=dict,
        description="tenant by cloud account (`cloud.account.uid`: AWS account, GCP project, Azure "
        "tenant or subscription), where what comes in is no tenant's by its way in",
    )
    field: str | None = Field(
        None, description="field that holds the record itself; none: all of the message, as JSON"
    )

    @field_validator("tz")
    @classmethod
    def _tz(cls, value: str) -> str:
        return _zone(value)

    @field_validator("accounts")
    @classmethod
    def _accounts(cls, value: dict[str, str]) -> dict[str, str]:
        spelled: dict[str, str] = {}
        for account in value:
            # Products write them in any case; of two spellings one would count, and nobody knows.
            if (first := spelled.setdefault(account.lower(), account)) != account:
                raise ValueError(f"accounts: '{first}' and '{account}' are one account; keep one")
        return value

    @model_validator(mode="after")
    def _packed(self) -> SourceSettings:
        if self.format == "protobuf" and not (self.schema_file or self.registry):
            raise ValueError("format protobuf needs schema_file or registry")
        if self.schema_file and self.registry:
            raise ValueError("schema_file or registry, not both")
        return self

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, value: dict[str, str]) -> dict[str, str]:
        return {host: _zone(zone) for host, zone in value.items()}


class FolderSettings(Section):
    """Files that land in a folder or bucket. Only finished files belong there."""

    paths: tuple[str, ...] = Field(
        min_length=1,
        description="folders, or patterns with * and **; also s3a://... if Spark has its archives",
    )
    source: str = Field(description="which parser reads them: aws_cloudtrail, windows_dhcp, ...")
    tz: str | None = Field(
        None, description="zone of times that name none; none: that of the source"
    )
    host: str | None = Field(None, description="who wrote them, where the lines do not say")
    mode: Literal["live", "replay", "import"] = Field(
        "live", description="how the events are marked; import raises no alerts"
    )
    min_file_age_seconds: float = Field(
        5.0, ge=0, description="a file is taken once it was not written to for so long"
    )
    tenant: str | None = Field(None, description="whose logs they are, one of `tenants`")

    @field_validator("tz")
    @classmethod
    def _tz(cls, value: str | None) -> str | None:
        return None if value is None else _zone(value)


class ScopeSettings(Section):
    """A site whose addresses are leased by DHCP. The same private address may exist in two."""

    name: str = Field(description="name of the site")
    networks: tuple[str, ...] = Field(description="networks whose addresses DHCP hands out")
    static: tuple[str, ...] = Field(
        (), description="networks or addresses set by hand; no lease is asked for"
    )
    hosts: tuple[str, ...] = Field(
        (),
        description="log hosts, sensors, servers or DHCP relays of this site; none: the default",
    )

    @field_validator("name")
    @classmethod
    def _own(cls, value: str) -> str:
        if site_of(value) != value:
            raise ValueError(f"'{value}' is what a tenant's part of a site is called; take another")
        return value

    @field_validator("networks", "static")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        # Read once here: a slip is refused at the start, not by a batch.
        for network in value:
            ip_network(network)
        return value


class InventorySettings(Section):
    """A list of assets or users that something else keeps up to date."""

    file: str | None = Field(
        None, description="CSV file with a header, file of JSON lines, or folder of such files"
    )
    refresh_minutes: float = Field(
        15, ge=0, description="how often `up` loads what has changed in it; 0: never"
    )


class KafkaSettings(Section):
    """The broker and its topics."""

    bootstrap: str = Field("127.0.0.1:9092", description="host:port of the broker")
    topic_prefix: str = Field("logs.", description="topics with raw logs: prefix and source")
    tick_topic: str = Field("logs.tick", description="fed every tick_seconds; moves time when idle")
    tick_seconds: float = Field(1.0, gt=0, description="how often; shorter: quicker 'no lease'")
    idle_tick_seconds: float = Field(
        30.0,
        gt=0,
        description="how often while nothing comes and nothing waits for time to pass; after five "
        "minutes of that a fourth as often",
    )
    alerts_topic: str = Field("alerts", description="where alerts go; its partitions are fixed")
    alerts_partitions: int = Field(3, gt=0, description="partitions of the alerts topic")
    progress_topic: str = Field(
        "alerts.progress", description="compacted; the publisher's place in gold.alert"
    )
    state_topic: str = Field(
        "alerts.state", description="compacted; the present state of each alert"
    )
    preliminary_topic: str = Field(
        "",
        description="where preliminary alerts and their answers go; empty: none are made",
    )
    rollups_topic: str = Field(
        "",
        description="compacted; where counts go (docs/reference/counts.md); empty: nowhere",
    )
    max_message_bytes: int = Field(
        10 * 1024 * 1024, gt=0, description="largest record; a larger one is refused"
    )
    protocol: Literal["PLAINTEXT", "SSL", "SASL_SSL"] = Field(
        "PLAINTEXT", description="what the broker speaks there; PLAINTEXT only on one machine"
    )
    ca_file: Path | None = Field(
        None, description="PEM file with the authorities trusted for the broker's certificate"
    )
    certificate_file: Path | None = Field(
        None, description="PEM file with our own key and certificate, where the broker wants one"
    )
    user: str | None = Field(None, description="SASL user; for SASL_SSL")
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = Field(
        "SCRAM-SHA-512", description="how the password is proved"
    )
    password_file: Path | None = Field(
        None, description="file with the SASL password in one line, its owner's alone (0600)"
    )
    password: SecretStr | None = Field(
        None, description="the SASL password itself; better by HEADGATE_KAFKA__PASSWORD or a file"
    )
    options: dict[str, str] = Field(
        default_factory=dict, description="further client options; no passwords"
    )

    @field_validator("options")
    @classmethod
    def _options(cls, value: dict[str, str]) -> dict[str, str]:
        # Options are shown in plans and errors of Spark, where no secret may stand.
        for name in filter(is_secret, value):
            raise ValueError(f"'{name}' is a secret; use kafka.user and kafka.password_file")
        return value

    @model_validator(mode="after")
    def _complete(self) -> KafkaSettings:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password or password_file, not both")
        has_password = self.password is not None or self.password_file is not None
        if has_password != (self.user is not None):
            raise ValueError("user and password_file (or HEADGATE_KAFKA__PASSWORD) go together")
        # Without TLS the password, or what proves it, can be read on its way.
        if self.user is not None and self.protocol != "SASL_SSL":
            raise ValueError("user and password go to a broker only with protocol = 'SASL_SSL'")
        return self


class SparkSettings(Section):
    """The Spark session."""

    master: str = Field("local[2]", description="Spark master")
    driver_memory: str = Field("3g", description="heap of the driver")
    shuffle_partitions: int = Field(
        2, gt=0, description="frozen in a checkpoint at the first run of a stateful job"
    )
    small: bool = Field(
        True,
        description="for a small machine: C1 compiler (drivers: C2, late), serial GC, "
        "jobs without code generation",
    )
    wheel: Path | None = Field(
        None, description="wheel of headgate sent to executors; none: they have it installed"
    )
    ui: bool = Field(
        False,
        description="serve Spark's own pages on loopback, to who has <home>/spark-ui.token",
    )
    secret_file: Path | None = Field(
        None, description="file with the secret that driver and workers of a cluster share"
    )
    conf: dict[str, str] = Field(default_factory=dict, description="further Spark settings")

    @property
    def local(self) -> bool:
        """Whether this process's JVM does the work itself, so that all workers are its own."""
        return self.master.startswith("local")


AlertLevel = Literal["informational", "low", "medium", "high", "critical"]
"""Levels of Sigma rules, the gravest last."""


class AlertSettings(Section):
    """Rules and alerts."""

    tenant: str = Field("default", description="stamped on each alert")
    rules: tuple[Path, ...] = Field(
        (), description="folders with rules of your own, beside the bundled ones"
    )
    bundled: bool = Field(True, description="run the bundled rules")
    dedup_seconds: int = Field(3600, gt=0, description="repeats inside it fold into one alert")
    count_every_seconds: int = Field(
        300, gt=0, description="revisions that only count come at most this often"
    )
    levels: tuple[AlertLevel, ...] = Field(
        ("medium", "high", "critical"), description="levels that become alerts"
    )
    hourly_budget: int = Field(
        100,
        gt=0,
        description="alerts of one rule, of each tenant by itself, that go to the topic in an hour",
    )
    budgets: dict[str, int] = Field(
        default_factory=dict, description="the same for single rules, by id"
    )
    preliminary_levels: tuple[AlertLevel, ...] = Field(
        ("high", "critical"),
        description="levels of Sigma rules whose findings are sent early "
        "(`kafka.preliminary_topic`)",
    )
    preliminary_rules: dict[str, bool] = Field(
        default_factory=dict, description="the same for single rules, by id: true or false"
    )
    preliminary_by: Literal["batch", "lane"] = Field(
        "batch",
        description="what sends them: job ingest behind each batch, or a process that waits for "
        "none",
    )
    preliminary_seconds: int = Field(
        120, gt=0, description="a preliminary alert without an answer for so long is an alarm"
    )
    incident_score: int = Field(
        200, gt=0, description="risk of an entity within 24 hours that makes an incident"
    )
    incident_tactics: int = Field(3, gt=0, description="or so many ATT&CK tactics")
    incident_rules: int = Field(4, gt=0, description="or so many rules above informational")
    query_seconds: float = Field(
        10.0,
        gt=0,
        description="most time a rule in SQL or Python may take of a batch, and again for each "
        "further 100,000 events; else it is set aside",
    )
    query_rows: int = Field(
        10_000, gt=0, description="most findings such a rule may give at once, else the same"
    )
    window_seconds: float = Field(
        10.0, ge=0, description="how often such a rule looks at its windows again"
    )
