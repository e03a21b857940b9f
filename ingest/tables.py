"""Bronze and silver: records as received, and the events they hold."""

from __future__ import annotations

from pyspark.sql import types as T

from infra.tables import Column, Table, View, struct

S, N, L, B, D, TS = (
    T.StringType(),
    T.IntegerType(),
    T.LongType(),
    T.BooleanType(),
    T.DoubleType(),
    T.TimestampType(),
)
STRINGS = T.ArrayType(S)

RECORD = Table(
    name="bronze.record",
    doc="One message or file as received, bytes unchanged.",
    columns=(
        Column("record_id", S, "topic id, partition and offset; or path, content hash and index"),
        Column("source", S, "which parser reads it: zeek:conn, aws_cloudtrail, sshd, ..."),
        Column("mode", S, "live, replay (old events fed as new) or import (no live alerts)"),
        Column("received_at", TS, "when the broker took it (its append time), UTC"),
        Column("topic", S, "Kafka topic", False),
        Column("partition", N, "Kafka partition", False),
        Column("offset", L, "Kafka offset", False),
        Column("raw", T.BinaryType(), "the bytes as they came", False),
        Column(
            "headers",
            T.ArrayType(struct(key=S, value=T.BinaryType())),
            "Kafka headers: sender, zone, header line",
            False,
        ),
    ),
    event_time="received_at",
    key=("record_id",),
    cluster_by=("received_at", "source"),
    stats=("record_id", "source", "mode", "received_at", "topic", "partition", "offset"),
)

USER = struct(name=S, uid=S, domain=S, type=S, email_addr=S, account_uid=S, groups=STRINGS)
ENDPOINT = struct(ip=S, port=N, mac=S, hostname=S, domain=S, svc_name=S, uid=S)
HASHES = T.ArrayType(struct(algorithm=S, value=S))
FILE = struct(name=S, path=S, size=L, mime_type=S, hashes=HASHES)
PARENT = struct(name=S, pid=L, cmd_line=S, path=S, uid=S, user=USER)
PROCESS = struct(name=S, pid=L, cmd_line=S, path=S, uid=S, cwd=S, user=USER, parent=PARENT)

OCSF_COLUMNS = (
    Column("activity_id", N, "OCSF activity in its class"),
    Column("activity_name", S, "its name", False),
    Column("category_uid", N, "OCSF category"),
    Column("class_uid", N, "OCSF class: 3002 authentication, 4003 DNS, 4001 network, ..."),
    Column("class_name", S, "its name"),
    Column("type_uid", L, "class_uid * 100 + activity_id"),
    Column("severity_id", N, "OCSF severity: 1 informational ... 6 fatal, 0 unknown"),
    Column("severity", S, "its name", False),
    Column("status_id", N, "1 success, 2 failure, 0 unknown", False),
    Column("status", S, "its name", False),
    Column("status_code", S, "the product's own result code", False),
    Column("status_detail", S, "the product's own words for it", False),
    Column("message", S, "one sentence a person can read", False),
    Column(
        "metadata",
        struct(
            version=S,
            product=struct(name=S, vendor_name=S, version=S),
            log_name=S,
            log_provider=S,
            event_code=S,
            uid=S,
            correlation_uid=S,
            original_time=S,
        ),
        "OCSF version, product and the product's own ids",
        False,
    ),
    Column("src_endpoint", ENDPOINT, "where it came from", False),
    Column("dst_endpoint", ENDPOINT, "where it went", False),
    Column("user", USER, "the user acted upon or logging in", False),
    Column(
        "actor",
        struct(user=USER, process=PROCESS, session=struct(uid=S, is_mfa=B), invoked_by=S),
        "who did it",
        False,
    ),
    Column(
        "device",
        struct(hostname=S, ip=S, mac=S, uid=S, name=S, type_id=N),
        "the machine that logged it",
        False,
    ),
    Column("process", PROCESS, "the process it is about", False),
    Column("file", FILE, "the file it is about", False),
    Column("query", struct(hostname=S, type=S, **{"class": S}), "DNS question", False),
    Column("answers", T.ArrayType(struct(rdata=S, type=S, ttl=L)), "DNS answers", False),
    Column("rcode_id", N, "DNS response code", False),
    Column("rcode", S, "its name", False),
    Column(
        "http_request",
        struct(
            http_method=S,
            version=S,
            user_agent=S,
            referrer=S,
            length=L,
            url=struct(url_string=S, hostname=S, path=S, query_string=S, port=N, scheme=S),
        ),
        "HTTP request",
        False,
    ),
    Column(
        "http_response",
        struct(code=N, message=S, length=L, content_type=S),
        "HTTP response",
        False,
    ),
    Column(
        "api",
        struct(
            operation=S,
            version=S,
            service=struct(name=S),
            request=struct(uid=S),
            response=struct(code=N, error=S, error_message=S),
        ),
        "API call",
        False,
    ),
    Column(
        "cloud",
        struct(provider=S, region=S, account=struct(uid=S, name=S)),
        "cloud account and region",
        False,
    ),
    Column(
        "resources",
        T.ArrayType(struct(uid=S, name=S, type=S)),
        "what an API call touched",
        False,
    ),
    Column(
        "traffic",
        struct(bytes=L, bytes_in=L, bytes_out=L, packets=L, packets_in=L, packets_out=L),
        "volume, in as seen by the source endpoint",
        False,
    ),
    Column(
        "connection_info",
        struct(
            uid=S,
            protocol_name=S,
            protocol_num=N,
            protocol_ver_id=N,
            direction=S,
            direction_id=N,
            flag_history=S,
            community_uid=S,
        ),
        "the connection",
        False,
    ),
    Column("app_name", S, "service or application protocol", False),
    Column("duration", L, "milliseconds", False),
    Column("start_time", TS, "start of the activity, UTC", False),
    Column("end_time", TS, "end of the activity, UTC", False),
    Column("auth_protocol", S, "authentication protocol", False),
    Column("auth_method", S, "password, publickey, keyboard-interactive, ... (not OCSF)", False),
    Column("logon_type_id", N, "OCSF logon type", False),
    Column("is_remote", B, "whether the login came over a network", False),
    Column("is_mfa", B, "whether a second factor was used", False),
    Column("service", struct(name=S, uid=S), "service logged in to", False),
    Column("session", struct(uid=S, issuer=S, terminal=S), "login session", False),
    Column("lease_dur", L, "DHCP lease, seconds", False),
    Column("transaction_uid", S, "DHCP transaction", False),
    Column("is_renewal", B, "DHCP: the client held this address before", False),
    Column("relay_ip", S, "DHCP relay agent (not OCSF)", False),
)

EVENT = Table(
    name="silver.event",
    doc="One event under OCSF 1.8.0 names, all classes in one table; dead letters are rows too.",
    columns=(
        Column("event_uid", S, "first record id and an index; the same input gives the same id"),
        Column("record_ids", STRINGS, "bronze records it was read from"),
        Column("correlation_uid", S, "shared by rows that are parts of one event", False),
        Column("duplicate_of", S, "event_uid of the first delivery of the same event", False),
        Column("dead_letter_reason", S, "why the record could not be read; null for events", False),
        Column("source", S, "which parser read it; '_heartbeat' rows are hidden by the views"),
        Column("mode", S, "live, replay or import"),
        Column("time", TS, "when it happened, UTC"),
        Column("received_at", TS, "when we got it, UTC"),
        Column("time_quality", S, "exact, assumed_zone, assumed_year, received (no time)", False),
        Column("scope", S, "site or server whose DHCP pool its addresses belong to", False),
        Column("src_ip", S, "source address, for searching", False),
        Column("dst_ip", S, "destination address, for searching", False),
        Column("user_name", S, "user, for searching", False),
        Column("host_name", S, "host, for searching", False),
        Column("mac", S, "hardware address, lower case with colons, for searching", False),
        *OCSF_COLUMNS,
        Column(
            "observables",
            T.ArrayType(struct(name=S, type=S, type_id=N, value=S)),
            "addresses, hosts, users and hashes worth searching",
            False,
        ),
        Column("unmapped", S, "what has no place in OCSF, as a JSON object", False),
    ),
    event_time="time",
    key=("event_uid",),
    cluster_by=("class_uid", "time"),
    stats=(
        "event_uid",
        "dead_letter_reason",
        "source",
        "mode",
        "time",
        "received_at",
        "src_ip",
        "dst_ip",
        "user_name",
        "host_name",
        "mac",
        "class_uid",
    ),
)

HEARTBEAT = "_heartbeat"
"""`source` of the row that says how far the ingest job has finished its input."""

CLASS_VIEWS = {
    "authentication": (3002, "Logins and logouts"),
    "dns_activity": (4003, "DNS questions and answers"),
    "network_activity": (4001, "Network connections"),
    "http_activity": (4002, "HTTP requests"),
    "dhcp_activity": (4004, "DHCP messages"),
    "api_activity": (6003, "API calls"),
    "process_activity": (1007, "Processes started and ended"),
    "base_event": (0, "Events that fit no class"),
}

TABLES = (RECORD, EVENT)
VIEWS = (
    View(
        "silver.events",
        "Events that could be read, without dead letters and heartbeats",
        f"SELECT * FROM silver.event WHERE source <> '{HEARTBEAT}' AND dead_letter_reason IS NULL",
    ),
    View(
        "silver.dead_letter",
        "Records that could not be read, with the reason",
        "SELECT event_uid, record_ids, source, mode, received_at, dead_letter_reason, unmapped "
        "FROM silver.event WHERE dead_letter_reason IS NOT NULL",
    ),
    *(
        View(
            f"silver.{name}",
            doc,
            f"SELECT * FROM silver.event WHERE class_uid = {uid} "
            f"AND source <> '{HEARTBEAT}' AND dead_letter_reason IS NULL",
        )
        for name, (uid, doc) in CLASS_VIEWS.items()
    ),
)
