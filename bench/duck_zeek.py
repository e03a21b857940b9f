"""Zeek's logs to silver.event and bronze.record as one would with DuckDB: SQL to two Parquet files.

The same rows and columns as `bench.stock_zeek` gives, so that the engine can be compared
with work done, not with reading alone. What the stock side leaves out, this leaves out too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from bench.stock import MALFORMED, OBSERVED
from bench.stock_zeek import FIELDS, LEFT, METHODS, NETWORK, STATES
from infra.delta.plain_files import duck_type
from ingest.tables import EVENT

_TYPES = {"string": "VARCHAR", "int": "INTEGER"}
_PROTOCOLS = {"icmp": 1, "tcp": 6, "udp": 17}
_DIRECTIONS = ("Unknown", "Inbound", "Outbound", "Lateral")
_WHOLE = "'^[a-zA-Z][a-zA-Z0-9+.-]*://'"


def write(connection: duckdb.DuckDBPyConnection, raw: Path, target: Path) -> None:
    """Read the files of bronze's shape in `raw`; write silver.parquet and bronze.parquet."""
    records = f"read_parquet('{raw}/*.parquet')"
    target.mkdir(exist_ok=True)
    connection.execute("SET TimeZone = 'UTC'")
    for name, query in (("bronze", f"SELECT * FROM {records}"), ("silver", _events(records))):
        connection.execute(f"COPY ({query}) TO '{target}/{name}.parquet' (FORMAT parquet)")


def field_type(kind: str) -> str:
    """The type of one of `bench.stock_zeek.FIELDS` as DuckDB names it."""
    inner = kind.removeprefix("array<").removesuffix(">")
    return _TYPES.get(inner, inner.upper()) + ("[]" if inner != kind else "")


def _events(records: str) -> str:
    shape = {name: _shape(kind) for name, kind in FIELDS.items()}
    text = json.dumps(shape).replace("'", "''")
    given = _identity() | _class() | _objects()
    columns = ", ".join(
        f'CAST({given.get(column.name, "NULL")} AS {duck_type(column.type)}) AS "{column.name}"'
        for column in EVENT.columns
    )
    return f"""
        WITH decoded AS (
            SELECT record_id, source, mode, received_at, TRY(decode(raw)) AS text FROM {records}
        ), read AS (
            SELECT *, json_transform(CASE WHEN json_valid(text) THEN text END, '{text}') AS z
            FROM decoded
        ), told AS (
            SELECT *, CASE WHEN z IS NULL THEN '{MALFORMED}'
                WHEN z.ts IS NULL OR z.id_orig_h IS NULL OR z.id_resp_h IS NULL
                THEN 'a field that must be there is missing' END AS dead_letter_reason
            FROM read
        ), prepared AS (SELECT *, {_prepared()} FROM told)
        SELECT {columns} FROM prepared
    """


def _shape(kind: str) -> Any:
    """The same as `json_transform` wants it."""
    found = field_type(kind)
    return [found.removesuffix("[]")] if found.endswith("[]") else found


def _by_log(conn: str, dns: str, http: str) -> str:
    """A value that differs by log; null in a dead letter."""
    return (
        f"CASE WHEN dead_letter_reason IS NOT NULL THEN NULL WHEN source = 'zeek:conn' THEN {conn} "
        f"WHEN source = 'zeek:dns' THEN {dns} WHEN source = 'zeek:http' THEN {http} END"
    )


def _lookup(values: Mapping[Any, Any], key: str, otherwise: str = "NULL") -> str:
    cases = " ".join(f"WHEN {_literal(k)} THEN {_literal(v)}" for k, v in values.items())
    return f"(CASE {key} {cases} ELSE {otherwise} END)"


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def _good(value: str) -> str:
    return f"CASE WHEN dead_letter_reason IS NULL THEN {value} END"


def _prepared() -> str:
    """What several columns need."""
    states = {state: activity for state, (activity, _) in STATES.items()}
    results = {state: status for state, (_, status) in STATES.items()}
    methods = {method: number for number, method in enumerate(METHODS, 1)}
    other = "CASE WHEN z.method IS NULL THEN 0 ELSE 99 END"
    url = (
        f"CASE WHEN regexp_matches(z.uri, {_WHOLE}) OR z.host IS NULL THEN z.uri "
        "ELSE 'http://' || z.host || coalesce(z.uri, '/') END"
    )
    made = {
        "good": "dead_letter_reason IS NULL",
        "happened": "make_timestamptz(round(z.ts * 1000000)::BIGINT)",
        "activity": _by_log(
            _lookup(states, "z.conn_state", "6"),
            "CASE WHEN z.rcode IS NULL AND z.answers IS NULL THEN 1 ELSE 6 END",
            _lookup(methods, "upper(z.method)", other),
        ),
        "status_uid": _by_log(
            _lookup(results, "z.conn_state", "0"),
            "CASE WHEN z.rcode IS NULL THEN 0 WHEN z.rcode = 0 THEN 1 ELSE 2 END",
            "CASE WHEN z.status_code IS NULL THEN 0 WHEN z.status_code < 400 THEN 1 ELSE 2 END",
        ),
        "span": f"round(({_by_log('z.duration', 'z.rtt', 'NULL')}) * 1000000)::BIGINT",
        "url": f"CASE WHEN source = 'zeek:http' THEN {url} END",
    }
    return ", ".join(f"{value} AS {name}" for name, value in made.items())


def _identity() -> dict[str, str]:
    return {
        "event_uid": "record_id || '#0'",
        "record_ids": "[record_id]",
        "dead_letter_reason": "dead_letter_reason",
        "source": "source",
        "mode": "mode",
        "time": "CASE WHEN good THEN happened ELSE received_at END",
        "received_at": "received_at",
        "time_quality": "CASE WHEN good THEN 'exact' ELSE 'received' END",
        "scope": _good("'default'"),
        "src_ip": _good("z.id_orig_h"),
        "dst_ip": _good("z.id_resp_h"),
        "user_name": _by_log("NULL", "NULL", "z.username"),
        "host_name": _good('z."@system"'),
        "mac": _by_log("lower(z.orig_l2_addr)", "NULL", "NULL"),
        "start_time": "CASE WHEN good AND source <> 'zeek:http' THEN happened END",
        "end_time": _good("happened + to_microseconds(span)"),
        "duration": _good("round_even(span / 1000, 0)::BIGINT"),
    }


def _class() -> dict[str, str]:
    titles = {number: method.capitalize() for number, method in enumerate(METHODS, 1)}
    class_uid = f"coalesce({_by_log('4001', '4003', '4002')}, 0)"
    return {
        "activity_id": "coalesce(activity, 0)",
        "activity_name": _by_log(
            _lookup(dict(enumerate(NETWORK)), "activity"),
            "CASE WHEN activity = 1 THEN 'Query' ELSE 'Traffic' END",
            _lookup(titles | {0: "Unknown"}, "activity", "'Other'"),
        ),
        "category_uid": "CASE WHEN good THEN 4 ELSE 0 END",
        "class_uid": class_uid,
        "class_name": "coalesce("
        + _by_log("'Network Activity'", "'DNS Activity'", "'HTTP Activity'")
        + ", 'Base Event')",
        "type_uid": f"{class_uid} * 100 + coalesce(activity, 0)",
        "severity_id": "CASE WHEN good THEN 1 ELSE 0 END",
        "severity": _good("'Informational'"),
        "status_id": "status_uid",
        "status": _lookup({0: "Unknown", 1: "Success", 2: "Failure"}, "status_uid"),
        "status_code": _by_log("z.conn_state", "z.rcode_name", "z.status_code::VARCHAR"),
        "app_name": _by_log("z.service", "NULL", "'http'"),
        "rcode_id": _by_log("NULL", "CASE WHEN z.rcode > 25 THEN 99 ELSE z.rcode END", "NULL"),
        "rcode": _by_log("NULL", "z.rcode_name", "NULL"),
    }


def _struct(path: str, /, **given: str) -> str:
    """A struct of silver.event with all its fields, those not given null."""
    kind: Any = EVENT.schema
    for name in path.split("."):
        kind = kind[name].dataType
    fields = ", ".join(
        f'"{f.name}": CAST({given.get(f.name, "NULL")} AS {duck_type(f.dataType)})' for f in kind
    )
    return f"{{{fields}}}"


def _objects() -> dict[str, str]:
    answers = (
        "CASE WHEN z.answers IS NOT NULL THEN list_transform(z.answers, lambda rdata, n: "
        "{'rdata': rdata, 'type': NULL::VARCHAR, 'ttl': z.TTLs[n]::BIGINT}) END"
    )
    endpoint = {
        side: _struct(
            f"{side}_endpoint",
            ip=f"z.id_{zeek}_h",
            port=f"z.id_{zeek}_p",
            mac=f"CASE WHEN source = 'zeek:conn' THEN lower(z.{zeek}_l2_addr) END",
        )
        for side, zeek in (("src", "orig"), ("dst", "resp"))
    }
    product = _struct("metadata.product", name="'Zeek'", vendor_name="'Zeek'")
    metadata = _struct(
        "metadata",
        version="'1.8.0'",
        product=product,
        log_name="source[6:9]",
        correlation_uid="z.uid",
    )
    query = _struct("query", hostname="z.query", type="z.qtype_name", **{"class": "z.qclass_name"})
    actor = _struct("actor", user=_struct("actor.user", name="z.username"))
    device = _struct("device", hostname='z."@system"', type_id="0")
    return {
        "metadata": _good(metadata),
        "src_endpoint": _good(endpoint["src"]),
        "dst_endpoint": _good(endpoint["dst"]),
        "device": _when('good AND z."@system" IS NOT NULL', device),
        "actor": _by_log("NULL", "NULL", _when("z.username IS NOT NULL", actor)),
        "query": _by_log("NULL", _when("z.query IS NOT NULL", query), "NULL"),
        "answers": _by_log("NULL", answers, "NULL"),
        "http_request": _by_log("NULL", "NULL", _request()),
        "http_response": _by_log("NULL", "NULL", _when("z.status_code IS NOT NULL", _response())),
        "traffic": _by_log(_traffic(), "NULL", "NULL"),
        "connection_info": _good(_connection()),
        "observables": _good(_observables()),
        "unmapped": _good(_unmapped()),
    }


def _when(condition: str, value: str) -> str:
    return f"(CASE WHEN {condition} THEN {value} END)"


def _request() -> str:
    uri = f"CASE WHEN NOT regexp_matches(z.uri, {_WHOLE}) THEN z.uri END"
    url = _struct(
        "http_request.url",
        url_string="url",
        hostname="z.host",
        path=f"nullif(split_part({uri}, '?', 1), '')",
        query_string=f"nullif(regexp_extract({uri}, '\\?(.*)$', 1), '')",
        port="z.id_resp_p",
        scheme="'http'",
    )
    return _struct(
        "http_request",
        http_method="z.method",
        version="z.version",
        user_agent="z.user_agent",
        referrer="z.referrer",
        length="z.request_body_len",
        url=_when("url IS NOT NULL", url),
    )


def _response() -> str:
    return _struct(
        "http_response",
        code="z.status_code",
        message="z.status_msg",
        length="z.response_body_len",
        content_type="CASE WHEN len(z.resp_mime_types) = 1 THEN z.resp_mime_types[1] END",
    )


def _traffic() -> str:
    counted = ("orig_bytes", "resp_bytes", "orig_pkts", "resp_pkts")
    some = " OR ".join(f"z.{name} IS NOT NULL" for name in counted)
    made = _struct(
        "traffic",
        bytes="z.orig_bytes + z.resp_bytes",
        bytes_out="z.orig_bytes",
        bytes_in="z.resp_bytes",
        packets="z.orig_pkts + z.resp_pkts",
        packets_out="z.orig_pkts",
        packets_in="z.resp_pkts",
    )
    return _when(some, made)


def _connection() -> str:
    protocol = "CASE WHEN source = 'zeek:http' THEN 'tcp' ELSE z.proto END"
    direction = (
        "CASE WHEN NOT z.local_orig AND z.local_resp THEN 1 "
        "WHEN z.local_orig AND NOT z.local_resp THEN 2 "
        "WHEN z.local_orig AND z.local_resp THEN 3 ELSE 0 END"
    )
    return _struct(
        "connection_info",
        uid="z.uid",
        protocol_name=protocol,
        protocol_num=_lookup(_PROTOCOLS, f"({protocol})"),
        protocol_ver_id="CASE WHEN contains(z.id_orig_h, ':') THEN 6 ELSE 4 END",
        direction_id=direction,
        direction=_lookup(dict(enumerate(_DIRECTIONS)), f"({direction})"),
        flag_history="CASE WHEN source = 'zeek:conn' THEN z.history END",
        community_uid="CASE WHEN source = 'zeek:conn' THEN z.community_id END",
    )


def _observables() -> str:
    http = "source = 'zeek:http'"
    found = (
        ("src_endpoint.ip", 2, "z.id_orig_h"),
        ("dst_endpoint.ip", 2, "z.id_resp_h"),
        ("query.hostname", 1, _when("source = 'zeek:dns'", "z.query")),
        ("http_request.url.hostname", 1, _when(http, "z.host")),
        ("http_request.url.url_string", 6, "url"),
        ("http_request.user_agent", 16, _when(http, "z.user_agent")),
        ("actor.user.name", 4, _when(http, "z.username")),
    )
    each = ", ".join(
        f"CASE WHEN {value} <> '' THEN {{'name': '{path}', 'type': '{OBSERVED[kind]}', "
        f"'type_id': {kind}, 'value': {value}}} END"
        for path, kind, value in found
    )
    return f"list_filter([{each}], lambda one: one IS NOT NULL)"


def _unmapped() -> str:
    fields = ", ".join(f"'{name}': z.\"{name}\"" for name in LEFT)
    return f"nullif(json_merge_patch('{{}}', to_json({{{fields}}}))::VARCHAR, '{{}}')"
