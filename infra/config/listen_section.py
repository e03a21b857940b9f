"""Settings of the listener: where syslog and OpenTelemetry logs come in, and how much of them."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from infra.config.sections import Section
from infra.config.tenants import feed_of

SyslogFraming = Literal["auto", "octets", "lines"]


class SyslogListenerSettings(Section):
    """A port that takes syslog."""

    protocol: Literal["tcp", "tls", "udp"] = Field(
        description="tcp (RFC 6587), tls (RFC 5425) or udp (RFC 5426)"
    )
    host: str = Field("127.0.0.1", description="address to listen on; loopback unless set")
    port: int = Field(ge=0, le=65535, description="port; 0 picks a free one")
    source: str = Field("syslog", description="source whose topic gets what no route takes")
    framing: SyslogFraming = Field(
        "auto",
        description="how messages are split: octets (each with its length), lines, or auto, "
        "which goes by the first message of a connection; udp: a datagram is a message",
    )
    tenant: str | None = Field(
        None, description="whose logs this port takes, one of `tenants`; routes change the source"
    )


class ListenRouteSettings(Section):
    """Syslog that goes to a source of its own: what fits all that is named here."""

    source: str = Field(description="source whose topic gets it")
    program: str | None = Field(None, description="program (app name, tag) of the line")
    host: str | None = Field(None, description="host that the line names")
    peer: str | None = Field(None, description="address or network that it comes from")

    @field_validator("peer")
    @classmethod
    def _peer(cls, value: str | None) -> str | None:
        if value is not None:
            ip_network(value)
        return value

    @model_validator(mode="after")
    def _names_something(self) -> Self:
        if self.program is None and self.host is None and self.peer is None:
            raise ValueError("name program, host or peer; for a whole port set its source")
        return self


class ListenKeySettings(Section):
    """A bearer token that may send OpenTelemetry logs."""

    name: str = Field(min_length=1, description="whose it is, as header `key` of the messages says")
    token_file: Path = Field(
        description="file with the bearer token in one line, its owner's alone (0600)"
    )
    tenant: str | None = Field(None, description="whose logs it sends, one of `tenants`")


class OtlpListenerSettings(Section):
    """OpenTelemetry logs (OTLP). Requests are answered when Kafka has them."""

    host: str = Field("127.0.0.1", description="address to listen on; loopback unless set")
    http_port: int | None = Field(
        None, ge=0, le=65535, description="port of OTLP/HTTP (usual: 4318); none: not served"
    )
    grpc_port: int | None = Field(
        None, ge=0, le=65535, description="port of OTLP/gRPC (usual: 4317); none: not served"
    )
    tls: bool = Field(False, description="speak TLS, with listen.certificate_file")
    source: str = Field("json", description="source whose topic gets the records")
    services: dict[str, str] = Field(
        default_factory=dict, description="other sources, by `service.name` of the resource"
    )
    keys: tuple[ListenKeySettings, ...] = Field(
        (), description="who may send ([[listen.otlp.keys]] with name, token_file); none: anybody"
    )
    request_bytes: int = Field(
        4 * 1024 * 1024,
        gt=0,
        description="largest request as it is sent, packed or not; over gRPC also unpacked",
    )
    unpacked_bytes: int = Field(
        16 * 1024 * 1024, gt=0, description="largest request once it is unpacked (HTTP)"
    )
    request_records: int = Field(
        20_000, gt=0, description="most records of a request; the rest is reported as rejected"
    )
    answer_seconds: float = Field(
        10.0, gt=0, description="so long Kafka may take before the sender is told to try again"
    )


class ListenSettings(Section):
    """What `headgate listen` takes in; nothing unless told."""

    syslog: tuple[SyslogListenerSettings, ...] = Field(
        (),
        description="ports for syslog ([[listen.syslog]]): protocol, host, port, source, framing",
    )
    routes: tuple[ListenRouteSettings, ...] = Field(
        (),
        description="syslog for other sources ([[listen.routes]]): source and program, host, peer; "
        "the first that fits",
    )
    otlp: OtlpListenerSettings = OtlpListenerSettings()
    certificate_file: Path | None = Field(
        None,
        description="PEM file with the certificate that TLS shows, and those between it and an "
        "authority; read anew when it changes",
    )
    key_file: Path | None = Field(
        None, description="PEM file with its key, where certificate_file does not hold it"
    )
    client_ca_file: Path | None = Field(
        None, description="PEM file with authorities; TLS then asks for a certificate of theirs"
    )
    with_jobs: bool = Field(
        True, description="`up` runs the listener too; false where it has a unit of its own"
    )
    message_bytes: int = Field(
        64 * 1024, ge=480, description="longest syslog message; a longer one is kept in parts"
    )
    connections: int = Field(1000, gt=0, description="most syslog connections at once")
    connections_of_peer: int = Field(100, gt=0, description="the same, of one address")
    idle_seconds: float = Field(
        3600.0, gt=0, description="a syslog connection that says nothing for so long is closed"
    )
    buffer_mb: float = Field(
        64.0,
        gt=0,
        description="most that waits for Kafka, of one peer a quarter; then no more is read",
    )
    udp_buffer_mb: float = Field(
        8.0, gt=0, description="what the kernel keeps of UDP meanwhile (net.core.rmem_max allows)"
    )
    end_seconds: float = Field(
        15.0, ge=0, description="so long it waits for Kafka at the end; the rest is kept on disk"
    )

    @property
    def wanted(self) -> bool:
        """Whether there is anything to listen on."""
        otlp = self.otlp
        return bool(self.syslog) or otlp.http_port is not None or otlp.grpc_port is not None

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that it takes, each once."""
        return tuple(dict.fromkeys(source for source, _ in self._taken()))

    @property
    def feeds(self) -> tuple[str, ...]:
        """What the topics that it writes are named by, each once."""
        return tuple(dict.fromkeys(feed_of(*taken) for taken in self._taken()))

    @property
    def tenants(self) -> tuple[str, ...]:
        """Whose logs its ports and keys take, each once."""
        return tuple(dict.fromkeys(tenant for _, tenant in self._taken() if tenant is not None))

    def _taken(self) -> Iterator[tuple[str, str | None]]:
        """Each source with whom it is taken for."""
        for listener in self.syslog:
            yield listener.source, listener.tenant
            yield from ((route.source, listener.tenant) for route in self.routes)
        if self.otlp.http_port is not None or self.otlp.grpc_port is not None:
            for tenant in [key.tenant for key in self.otlp.keys] or [None]:
                yield self.otlp.source, tenant
                yield from ((source, tenant) for source in self.otlp.services.values())

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        encrypted = any(listener.protocol == "tls" for listener in self.syslog) or self.otlp.tls
        if encrypted and self.certificate_file is None:
            raise ValueError("TLS needs certificate_file, with its key and certificate")
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file goes with certificate_file")
        if self.client_ca_file is not None and not encrypted:
            raise ValueError("client_ca_file is for TLS, and nothing here speaks it")
        names = [key.name for key in self.otlp.keys]
        if len(set(names)) < len(names):
            raise ValueError("otlp.keys: each wants a name of its own")
        return self
