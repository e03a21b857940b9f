"""Suricata's events and nginx's access log to silver.event as one would with stock Spark."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bench.stock import (
    MALFORMED,
    captured,
    classified,
    identity,
    left,
    lookup,
    observables,
    part,
    product,
    silver,
    status_of,
    struct,
)

NOT_DONE = (
    "Suricata and nginx: other event types and formats than those in the samples; refuse a second "
    "object, bytes after the first, keys that stand twice or bad UTF-8; addresses in one spelling; "
    "unmapped fields that its schema does not name"
)
_FLOW = (
    "struct<pkts_toserver:bigint,pkts_toclient:bigint,bytes_toserver:bigint,bytes_toclient:bigint,"
    "start:string,end:string,age:bigint,state:string,reason:string,alerted:boolean>"
)
_ALERT = (
    "struct<action:string,gid:bigint,signature_id:bigint,rev:bigint,signature:string,"
    "category:string,severity:int,tx_id:bigint>"
)
_DNS = "struct<type:string,id:bigint,rrname:string,rrtype:string,tx_id:bigint>"
_HTTP = (
    "struct<hostname:string,url:string,http_user_agent:string,http_content_type:string,"
    "http_refer:string,http_method:string,protocol:string,status:string,redirect:string,"
    "length:bigint>"
)
_LEFT = (
    "pcap_cnt bigint, in_iface string, tx_id bigint, payload string, payload_printable string, "
    "stream bigint, packet string, packet_info struct<linktype:bigint>, app_proto_tc string, "
    "vars string"
)
EVE = (
    "timestamp string, flow_id bigint, event_type string, src_ip string, src_port int, "
    f"dest_ip string, dest_port int, proto string, app_proto string, alert {_ALERT}, "
    f"flow {_FLOW}, dns {_DNS}, http {_HTTP}, {_LEFT}, _corrupt string"
)
LEFT = tuple(field.split()[0] for field in _LEFT.split(", "))
TYPES = {"alert": 2004, "dns": 4003, "http": 4002, "flow": 4001}
CLASSES = {
    0: "Base Event",
    2004: "Detection Finding",
    4001: "Network Activity",
    4002: "HTTP Activity",
    4003: "DNS Activity",
}
METHODS = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE", "PATCH")
ACTIVITIES = {0: "Unknown", 200401: "Create", 400106: "Traffic", 400301: "Query"} | {
    400200 + number: method.capitalize() for number, method in enumerate(METHODS, 1)
}


# -- Suricata ------------------------------------------------------------------------------------


def suricata(records: DataFrame) -> DataFrame:
    """Rows of bronze.record as rows of silver.event, dead letters included."""
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    read = records.select(
        "record_id", "source", "mode", "received_at",
        F.from_json(F.col("raw").cast("string"), EVE, how).alias("z"),
    )  # fmt: skip
    reason = F.when(F.col("z._corrupt").isNotNull() | F.col("z").isNull(), F.lit(MALFORMED)).when(
        _z("event_type").isNull(), F.lit("a field that must be there is missing")
    )
    told = read.withColumn("dead_letter_reason", reason)
    prepared = told.withColumns(_prepared())
    return silver(prepared, _eve_identity() | _eve_class() | _eve_objects())


def _z(name: str) -> Column:
    return F.col(f"z.{name}")


def _of(kind: str, value: Column) -> Column:
    """A value that only events of one type have."""
    return F.when(F.col("good") & (_z("event_type") == kind), value)


def _good(value: Column) -> Column:
    return F.when(F.col("good"), value)


def _moment(text: Column) -> Column:
    return text.try_cast("timestamp")


def _prepared() -> dict[str, Column]:
    """What several columns need."""
    good = F.col("dead_letter_reason").isNull()
    method = F.array_position(F.array(*[F.lit(one) for one in METHODS]), _z("http.http_method"))
    activity = (
        F.when(_z("event_type") == "flow", 6)
        .when(_z("event_type") == "http", method.cast("int"))
        .otherwise(1)
    )
    return {
        "good": good,
        "at": _moment(_z("timestamp")),
        "class_id": F.when(good, lookup(TYPES, _z("event_type"))).otherwise(0),
        "activity": F.when(good, activity).otherwise(0),
        "url": F.concat(F.lit("http://"), _z("http.hostname"), _z("http.url")),
        "begun": _moment(_z("flow.start")),
        "ended": _moment(_z("flow.end")),
    }


def _eve_identity() -> dict[str, Column]:
    return {
        **identity(F.col("good"), F.col("at"), F.lit("exact")),
        "src_ip": _good(_z("src_ip")),
        "dst_ip": _good(_z("dest_ip")),
        "start_time": _good(F.col("begun")),
        "end_time": _good(F.col("ended")),
        "duration": _good(F.unix_millis("ended") - F.unix_millis("begun")),
    }


def _eve_class() -> dict[str, Column]:
    class_uid, activity = F.col("class_id"), F.col("activity")
    alarm = F.greatest(F.lit(2), F.lit(5) - _z("alert.severity"))
    severity = F.when(class_uid == 2004, alarm).when(F.col("good"), 1).otherwise(0)
    code = _z("http.status").try_cast("int")
    status = F.when(class_uid == 4003, 0).when(
        class_uid == 4002,
        F.when(code.isNull(), 0).when(code < 400, 1).otherwise(2),
    )
    blocked = _z("alert.action") == "blocked"
    words = (
        F.when(class_uid == 2004, _z("alert.signature"))
        .when(class_uid == 4003, F.concat(F.lit("DNS query "), _z("dns.rrname")))
        .when(class_uid == 4002, F.concat_ws(" ", _z("http.http_method"), F.col("url")))
        .otherwise(F.concat(F.lit("Flow from "), _z("src_ip"), F.lit(" to "), _z("dest_ip")))
    )
    app = F.nullif(_z("app_proto"), F.lit("failed"))
    return {
        **classified(class_uid, activity, severity, CLASSES),
        "activity_name": _good(lookup(ACTIVITIES, class_uid * 100 + activity)),
        **status_of(_good(status)),
        "status_code": _of("flow", _z("flow.state")),
        "status_detail": _of("flow", _z("flow.reason")),
        "message": _good(words),
        "app_name": _good(F.when(class_uid == 4002, F.coalesce(app, F.lit("http"))).otherwise(app)),
        "action_id": _of("alert", F.when(blocked, 2).otherwise(1)),
        "action": _of("alert", F.when(blocked, "Denied").otherwise("Allowed")),
        "disposition_id": _of("alert", F.when(blocked, 2).otherwise(1)),
        "disposition": _of("alert", F.when(blocked, "Blocked").otherwise("Allowed")),
        "more": _of("alert", F.lit('{"is_alert":true}')),
    }


def _eve_objects() -> dict[str, Column]:
    rule = _z("alert.signature_id").cast("string")
    protocol = F.lower(_z("proto"))
    flow = _z("flow_id").cast("string")
    return {
        "metadata": _good(
            struct(
                "metadata",
                version=F.lit("1.8.0"),
                product=product("Suricata", "OISF"),
                log_name=_z("event_type"),
                event_code=rule,
                correlation_uid=flow,
            )
        ),
        "src_endpoint": _good(struct("src_endpoint", ip=_z("src_ip"), port=_z("src_port"))),
        "dst_endpoint": _good(struct("dst_endpoint", ip=_z("dest_ip"), port=_z("dest_port"))),
        "connection_info": _good(
            struct(
                "connection_info",
                uid=flow,
                protocol_name=protocol,
                protocol_num=lookup({"icmp": 1, "tcp": 6, "udp": 17}, protocol),
                protocol_ver_id=F.when(F.contains(_z("src_ip"), F.lit(":")), 6).otherwise(4),
                direction_id=F.lit(0),
                direction=F.lit("Unknown"),
            )
        ),
        "finding_info": _of("alert", _finding(rule)),
        "traffic": _good(F.when(_z("flow").isNotNull(), _traffic())),
        "query": _of("dns", struct("query", hostname=_z("dns.rrname"), type=_z("dns.rrtype"))),
        "http_request": _good(F.when(_z("http").isNotNull(), _request())),
        "http_response": _good(F.when(_z("http.status").isNotNull(), _response())),
        "observables": _good(
            observables(
                ("src_endpoint.ip", 2, _z("src_ip")),
                ("dst_endpoint.ip", 2, _z("dest_ip")),
                ("query.hostname", 1, _z("dns.rrname")),
                ("http_request.url.hostname", 1, _z("http.hostname")),
                ("http_request.url.url_string", 6, F.col("url")),
                ("http_request.user_agent", 16, _z("http.http_user_agent")),
            )
        ),
        "unmapped": _good(_unmapped()),
    }


def _finding(rule: Column) -> Column:
    return struct(
        "finding_info",
        uid=rule,
        title=_z("alert.signature"),
        types=F.array(_z("alert.category")),
        created_time=F.col("at"),
        analytic=struct(
            "finding_info.analytic",
            uid=rule,
            name=_z("alert.signature"),
            category=_z("alert.category"),
            version=_z("alert.rev").cast("string"),
            type_id=F.lit(1),
        ),
    )


def _traffic() -> Column:
    sent, got = _z("flow.bytes_toserver"), _z("flow.bytes_toclient")
    packets = _z("flow.pkts_toserver"), _z("flow.pkts_toclient")
    return struct(
        "traffic",
        bytes=F.try_add(sent, got),
        bytes_out=sent,
        bytes_in=got,
        packets=F.try_add(*packets),
        packets_out=packets[0],
        packets_in=packets[1],
    )


def _request() -> Column:
    path = F.substring_index(_z("http.url"), "?", 1)
    query = F.when(
        F.contains(_z("http.url"), F.lit("?")),
        F.substring(_z("http.url"), F.length(path) + 2, F.length(_z("http.url"))),
    )
    return struct(
        "http_request",
        http_method=_z("http.http_method"),
        version=_z("http.protocol"),
        user_agent=F.nullif(_z("http.http_user_agent"), F.lit("")),
        referrer=_z("http.http_refer"),
        url=struct(
            "http_request.url",
            url_string=F.col("url"),
            hostname=_z("http.hostname"),
            path=path,
            query_string=query,
            scheme=F.lit("http"),
        ),
    )


def _response() -> Column:
    return struct(
        "http_response",
        code=_z("http.status").try_cast("int"),
        content_type=_z("http.http_content_type"),
        length=_z("http.length"),
    )


def _unmapped() -> Column:
    alert = F.struct(_z("alert.gid").alias("gid"), _z("alert.tx_id").alias("tx_id"))
    age = F.struct(_z("flow.age").alias("age"), _z("flow.alerted").alias("alerted"))
    dns = F.struct(_z("dns.id").alias("id"), _z("dns.tx_id").alias("tx_id"))
    unanswered = F.when(_z("http.status").isNull(), _z("http.length"))
    http = F.struct(_z("http.redirect").alias("redirect"), unanswered.alias("length"))
    of_http = _z("http.redirect").isNotNull() | unanswered.isNotNull()
    return left(
        *[_z(name).alias(name) for name in LEFT if name != "payload"],
        F.nullif(_z("payload"), F.lit("")).alias("payload"),
        F.when(_z("app_proto") == "failed", "failed").alias("app_proto"),
        F.when(_z("alert").isNotNull(), alert).alias("alert"),
        F.when(_z("flow.age").isNotNull(), age).alias("flow"),
        F.when(_z("dns").isNotNull(), dns).alias("dns"),
        F.when(of_http, http).alias("http"),
    )


# -- nginx ---------------------------------------------------------------------------------------

COMBINED = (
    r"(\S+) - (\S+) \[([^\]]+)\] \"(?:(\S+) (\S+) HTTP/([\d.]+)|[^\"]*)\" (\d{3}) (\d+) "
    r"\"([^\"]*)\" \"([^\"]*)\""
)
FIELDS = (
    "client", "name", "clock", "method", "url", "version", "code", "size", "referrer", "agent",
)  # fmt: skip


def nginx(records: DataFrame) -> DataFrame:
    """Rows of bronze.record as rows of silver.event, dead letters included."""
    found = captured(
        F.col("raw").cast("string"), COMBINED, [f"${n}" for n in range(1, len(FIELDS) + 1)]
    )
    read = records.select("record_id", "source", "mode", "received_at", found.alias("found"))
    parts = read.withColumns(
        {name: F.nullif(part(F.col("found"), at), F.lit("-")) for at, name in enumerate(FIELDS)}
    )
    good = F.size("found") == len(FIELDS)
    method = F.array_position(F.array(*[F.lit(one) for one in METHODS]), F.col("method"))
    prepared = parts.withColumns(
        {
            "good": good,
            "dead_letter_reason": F.when(~good, F.lit(MALFORMED)),
            "status_number": F.col("code").cast("int"),
            "bytes": F.col("size").cast("long"),
            "agent": F.replace("agent", F.lit(r"\x22"), F.lit('"')),
            "activity": F.when(good, F.coalesce(method.cast("int"), F.lit(0))).otherwise(0),
            "path": F.substring_index("url", "?", 1),
        }
    )
    return silver(prepared, _access_identity() | _access_class() | _access_objects())


def _access_identity() -> dict[str, Column]:
    at = F.try_to_timestamp("clock", F.lit("dd/MMM/yyyy:HH:mm:ss Z"))
    return {
        **identity(F.col("good"), at, F.lit("exact")),
        "src_ip": _good(F.col("client")),
        "user_name": _good(F.col("name")),
    }


def _access_class() -> dict[str, Column]:
    code = F.col("status_number")
    class_uid = F.when(F.col("good"), 4002).otherwise(0)
    severity = F.when(~F.col("good"), 0).when(code < 400, 1).otherwise(2)
    words = F.concat(F.col("method"), F.lit(" "), F.col("url"), F.lit(": "), F.col("code"))
    return {
        **classified(class_uid, F.col("activity"), severity, CLASSES),
        "activity_name": _good(lookup(ACTIVITIES, class_uid * 100 + F.col("activity"))),
        **status_of(_good(F.when(code < 400, 1).otherwise(2))),
        "status_code": _good(F.col("code")),
        "message": _good(words),
    }


def _access_objects() -> dict[str, Column]:
    query = F.when(
        F.contains(F.col("url"), F.lit("?")),
        F.substring("url", F.length("path") + 2, F.length("url")),
    )
    url = struct(
        "http_request.url", url_string=F.col("url"), path=F.col("path"), query_string=query
    )
    user = struct("actor.user", name=F.col("name"))
    return {
        "metadata": _good(
            struct(
                "metadata",
                version=F.lit("1.8.0"),
                product=product("nginx", "F5"),
                log_name=F.lit("access"),
            )
        ),
        "src_endpoint": _good(struct("src_endpoint", ip=F.col("client"))),
        "actor": F.when(F.col("name").isNotNull(), struct("actor", user=user)),
        "http_request": _good(
            struct(
                "http_request",
                http_method=F.col("method"),
                version=F.col("version"),
                user_agent=F.col("agent"),
                referrer=F.col("referrer"),
                url=url,
            )
        ),
        "http_response": _good(
            struct("http_response", code=F.col("status_number"), length=F.col("bytes"))
        ),
        "traffic": _good(struct("traffic", bytes=F.col("bytes"), bytes_in=F.col("bytes"))),
        "observables": _good(
            observables(
                ("src_endpoint.ip", 2, F.col("client")),
                ("actor.user.name", 4, F.col("name")),
                ("http_request.url.url_string", 6, F.col("url")),
                ("http_request.user_agent", 16, F.col("agent")),
            )
        ),
    }
