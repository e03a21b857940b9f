"""What is measured: mixes of records, how stock Spark reads each kind, where both must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import duckdb
from pyspark.sql import DataFrame

from bench import duck_zeek, stock_cloudtrail, stock_edge, stock_syslog, stock_zeek
from bench.cloudtrail_records import cloudtrail
from bench.edge_records import nginx, suricata
from bench.records import Family
from bench.syslog_records import syslog
from bench.zeek_records import zeek

_ALL = (
    "event_uid", "record_ids", "source", "mode", "class_uid", "class_name", "category_uid",
    "activity_id", "activity_name", "type_uid", "severity_id", "severity", "status_id", "status",
    "status_code", "status_detail", "time", "time_quality", "received_at", "scope", "src_ip",
    "dst_ip", "user_name", "host_name", "mac", "app_name", "metadata.product.name",
    "metadata.log_name", "metadata.event_code", "metadata.uid", "metadata.correlation_uid",
    "src_endpoint", "dst_endpoint.ip", "dst_endpoint.port", "dst_endpoint.hostname",
    "observables",
)  # fmt: skip
_UNMAPPED = "array_sort(map_entries(from_json(unmapped, 'map<string,string>')))"
"""Without regard to the order of its fields."""
_NETWORK = ("connection_info", "traffic", "query", "http_request", "duration", "start_time",
            "end_time")  # fmt: skip
_ZEEK = ("dst_endpoint", "device.hostname", "answers", "rcode_id", "rcode", "http_response.code",
         "http_response.length")  # fmt: skip
_CLOUDTRAIL = (
    "actor", "cloud", "http_request", "api", "resources",
    "array_sort(map_entries(map_filter(from_json(unmapped, 'map<string,string>'), "
    "(k, v) -> k != 'userIdentity' AND v IS NOT NULL)))",
)  # fmt: skip
_SYSLOG = (
    "message", "metadata", "dst_endpoint", "device", "actor", "user", "process", "service",
    "query", "answers", "rcode", "rcode_id", "connection_info", "auth_method", "logon_type_id",
    "is_remote", "lease_dur", "transaction_uid", _UNMAPPED,
)  # fmt: skip
_SURICATA = ("message", "finding_info", "action", "disposition", "more", "dst_endpoint", *_NETWORK,
             _UNMAPPED)  # fmt: skip
_NGINX = ("message", "actor", "http_request", "http_response", "traffic", "unmapped")


@dataclass(frozen=True)
class Kind:
    """A kind of records: who makes them, who reads them on the other side, what must agree."""

    name: str
    family: Callable[[], Family]
    where: str
    """Which rows of bronze.record and silver.event are of this kind."""
    stock: Callable[[DataFrame], DataFrame]
    compared: tuple[str, ...]
    not_done: str


ZEEK = Kind("zeek", zeek, "source LIKE 'zeek:%'", stock_zeek.events,
            (*_ALL, *_NETWORK, *_ZEEK), stock_zeek.NOT_DONE)  # fmt: skip
CLOUDTRAIL = Kind("cloudtrail", cloudtrail, "source = 'aws_cloudtrail'", stock_cloudtrail.events,
                  (*_ALL, *_CLOUDTRAIL), stock_cloudtrail.NOT_DONE)  # fmt: skip
SYSLOG = Kind("syslog", syslog, "source IN ('sshd', 'sudo', 'dnsmasq', 'isc_dhcpd')",
              stock_syslog.events, (*_ALL, *_SYSLOG), stock_syslog.NOT_DONE)  # fmt: skip
SURICATA = Kind("suricata", suricata, "source = 'suricata'", stock_edge.suricata,
                (*_ALL, *_SURICATA), stock_edge.NOT_DONE)  # fmt: skip
NGINX = Kind("nginx", nginx, "source = 'nginx'", stock_edge.nginx,
             (*_ALL, *_NGINX), stock_edge.NOT_DONE)  # fmt: skip


Write = Callable[[duckdb.DuckDBPyConnection, Path, Path], None]
"""Reads the files in one folder, writes silver.parquet and bronze.parquet into another."""


@dataclass(frozen=True)
class Mix:
    """Records of kinds that take turns; `bar`: how many times stock Spark's rate is asked."""

    name: str
    turns: tuple[Kind, ...]
    records: int
    bar: float | None = None
    limit: Mapping[str, str] | None = None
    """The columns DuckDB reads of them, where it is the limit."""
    limit_bar: float | None = None
    duck: Write | None = None
    """How DuckDB makes files of both tables of them."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds, each once."""
        return tuple(dict.fromkeys(self.turns))

    def families(self) -> tuple[Family, ...]:
        """Who makes the records, in turns."""
        made = {kind.name: kind.family() for kind in self.kinds}
        return tuple(made[kind.name] for kind in self.turns)

    def stock(self, records: DataFrame) -> DataFrame:
        """Events as stock Spark makes them: a select a kind, united."""
        if len(self.kinds) == 1:
            return self.turns[0].stock(records)
        read = [kind.stock(records.where(kind.where)) for kind in self.kinds]
        return reduce(DataFrame.unionAll, read)


_AWS_IDENTITY = (
    "STRUCT(type VARCHAR, principalId VARCHAR, arn VARCHAR, accountId VARCHAR, "
    "accessKeyId VARCHAR, userName VARCHAR, invokedBy VARCHAR, sessionContext JSON)"
)
AWS_COLUMNS = {
    **dict.fromkeys(
        (
            "eventVersion", "eventTime", "eventSource", "eventName", "awsRegion",
            "sourceIPAddress", "userAgent", "errorCode", "errorMessage", "requestID", "eventID",
            "eventType", "apiVersion", "recipientAccountId", "sharedEventID", "eventCategory",
            "vpcEndpointId", "sessionCredentialFromConsole", "@timestamp", "@version",
        ),
        "VARCHAR",
    ),
    **dict.fromkeys(
        ("requestParameters", "responseElements", "additionalEventData", "tlsDetails"), "JSON"
    ),
    **dict.fromkeys(("readOnly", "managementEvent"), "BOOLEAN"),
    "userIdentity": _AWS_IDENTITY,
    "resources": "STRUCT(accountId VARCHAR, type VARCHAR, ARN VARCHAR)[]",
}  # fmt: skip
ZEEK_COLUMNS = {name: duck_zeek.field_type(kind) for name, kind in stock_zeek.FIELDS.items()}

MIXES = (
    Mix("zeek", (ZEEK,), 200_000, bar=2.0, limit=ZEEK_COLUMNS, limit_bar=0.45,
        duck=duck_zeek.write),
    Mix("cloudtrail", (CLOUDTRAIL,), 60_000, limit=AWS_COLUMNS),
    Mix("syslog", (SYSLOG,), 200_000),
    Mix(
        "mix",
        (
            ZEEK, SYSLOG, ZEEK, NGINX, SYSLOG, ZEEK, CLOUDTRAIL, ZEEK, SYSLOG, SURICATA,
            ZEEK, SYSLOG, ZEEK, NGINX, SYSLOG, ZEEK, CLOUDTRAIL, ZEEK, SYSLOG, SURICATA,
        ),
        200_000,
        bar=1.5,
    ),
)  # fmt: skip
