"""Zeek's logs to silver.event as one would with stock Spark: `from_json` and column expressions.

One `from_json` with all fields of the three logs reads each record once, which is
quicker than a pass a log; the class of a row then follows from its source.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from bench.stock import MALFORMED, identity, left, lookup, observables, product, silver, struct

NOT_DONE = (
    "the stock side does not refuse a second object or bytes after the first, keys that stand "
    "twice, bad UTF-8 or ports and addresses out of range; does not bring addresses to one "
    "spelling; gives no place in its reasons; and keeps of unmapped fields only those its schema "
    "names"
)
_LEFT = (
    "`@proc` string, missed_bytes bigint, orig_ip_bytes bigint, resp_ip_bytes bigint, "
    "trans_id bigint, qclass bigint, qtype bigint, AA boolean, TC boolean, RD boolean, "
    "RA boolean, Z bigint, rejected boolean, trans_depth bigint, tags array<string>, "
    "resp_fuids array<string>, client_header_names array<string>, orig_fuids array<string>, "
    "orig_mime_types array<string>"
)
_READ = (
    "`@stream` string, `@system` string, ts double, uid string, id_orig_h string, id_orig_p int, "
    "id_resp_h string, id_resp_p int, proto string, service string, duration double, "
    "orig_bytes bigint, resp_bytes bigint, conn_state string, history string, orig_pkts bigint, "
    "resp_pkts bigint, orig_l2_addr string, resp_l2_addr string, community_id string, "
    "local_orig boolean, local_resp boolean, rtt double, query string, qclass_name string, "
    "qtype_name string, rcode int, rcode_name string, answers array<string>, TTLs array<double>, "
    "method string, host string, uri string, version string, user_agent string, referrer string, "
    "username string, request_body_len bigint, response_body_len bigint, status_code int, "
    "status_msg string, resp_mime_types array<string>"
)
FIELDS = {
    name.strip("`"): kind
    for name, kind in (field.split() for field in f"{_READ}, {_LEFT}".split(", "))
}
"""All fields of the three logs, and their types."""
SCHEMA = f"{_READ}, {_LEFT}, _corrupt string"
LEFT = tuple(field.split()[0].strip("`") for field in _LEFT.split(", "))
STATES = {
    "S0": (4, 2), "S1": (1, 1), "S2": (6, 1), "S3": (6, 1), "SF": (2, 1), "REJ": (5, 2),
    "RSTO": (3, 1), "RSTR": (3, 1), "RSTOS0": (3, 2), "RSTRH": (3, 2), "SH": (4, 2), "SHR": (4, 2),
}  # fmt: skip
METHODS = ("CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE", "PATCH")
NETWORK = ("Unknown", "Open", "Close", "Reset", "Fail", "Refuse", "Traffic")


def events(records: DataFrame) -> DataFrame:
    """Rows of bronze.record as rows of silver.event, dead letters included."""
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    read = records.select(
        "record_id", "source", "mode", "received_at",
        F.from_json(F.col("raw").cast("string"), SCHEMA, how).alias("z"),
    )  # fmt: skip
    reason = F.when(F.col("z._corrupt").isNotNull() | F.col("z").isNull(), F.lit(MALFORMED)).when(
        F.col("z.ts").isNull() | F.col("z.id_orig_h").isNull() | F.col("z.id_resp_h").isNull(),
        F.lit("a field that must be there is missing"),
    )
    told = read.withColumn("dead_letter_reason", reason)
    prepared = told.withColumns(_prepared())
    return silver(prepared, _identity() | _class() | _objects())


def _z(name: str) -> Column:
    return F.col(f"z.`{name}`")


def _of(log: str) -> Column:
    return F.col("source") == f"zeek:{log}"


def _by_log(conn: Any, dns: Any, http: Any) -> Column:
    """A value that differs by log; null in a dead letter."""
    good = F.col("dead_letter_reason").isNull()
    one = [(_of("conn"), conn), (_of("dns"), dns), (_of("http"), http)]
    picked = F.when(good & one[0][0], one[0][1])
    return picked.when(good & one[1][0], one[1][1]).when(good & one[2][0], one[2][1])


def _prepared() -> dict[str, Column]:
    """What several columns need."""
    state, method = _z("conn_state"), F.upper(_z("method"))
    code = _z("status_code")
    activity = _by_log(
        F.coalesce(lookup({s: a for s, (a, _) in STATES.items()}, state), F.lit(6)),
        F.when(_z("rcode").isNull() & _z("answers").isNull(), 1).otherwise(6),
        F.coalesce(lookup({m: n for n, m in enumerate(METHODS, 1)}, method),
                   F.when(method.isNotNull(), 99).otherwise(0)),
    )  # fmt: skip
    status = _by_log(
        F.coalesce(lookup({s: k for s, (_, k) in STATES.items()}, state), F.lit(0)),
        F.when(_z("rcode").isNull(), 0).when(_z("rcode") == 0, 1).otherwise(2),
        F.when(code.isNull(), 0).when(code < 400, 1).otherwise(2),
    )
    whole = _z("uri").rlike("^[a-zA-Z][a-zA-Z0-9+.-]*://")
    url = F.when(whole | _z("host").isNull(), _z("uri")).otherwise(
        F.concat(F.lit("http://"), _z("host"), F.coalesce(_z("uri"), F.lit("/")))
    )
    return {
        "good": F.col("dead_letter_reason").isNull(),
        "micros": F.round(_z("ts") * 1_000_000).cast("long"),
        "activity": activity,
        "status_uid": status,
        "span": _by_log(_z("duration"), _z("rtt"), F.lit(None).cast("double")),
        "url": F.when(_of("http"), url),
        "agent": F.when(_of("http"), _z("user_agent")),
        "asked": F.when(_of("dns"), _z("query")),
    }


def _identity() -> dict[str, Column]:
    at = F.timestamp_micros("micros")
    good = F.col("good")
    micros = F.round(F.col("span") * 1e6)
    return {
        **identity(good, at, F.lit("exact")),
        "src_ip": F.when(good, _z("id_orig_h")),
        "dst_ip": F.when(good, _z("id_resp_h")),
        "user_name": F.when(good & _of("http"), _z("username")),
        "host_name": F.when(good, _z("@system")),
        "mac": F.when(good & _of("conn"), F.lower(_z("orig_l2_addr"))),
        "start_time": F.when(good & ~_of("http"), at),
        "end_time": F.when(good, F.timestamp_micros(F.col("micros") + micros.cast("long"))),
        "duration": F.bround(micros / 1000).cast("long"),
    }


def _class() -> dict[str, Column]:
    class_uid = F.coalesce(_by_log(4001, 4003, 4002), F.lit(0))
    activity = F.coalesce(F.col("activity"), F.lit(0))
    titles = {str(n): m.capitalize() for n, m in enumerate(METHODS, 1)}
    names = _by_log(
        lookup({str(n): name for n, name in enumerate(NETWORK)}, F.col("activity").cast("string")),
        F.when(F.col("activity") == 1, "Query").otherwise("Traffic"),
        F.coalesce(lookup(titles, F.col("activity").cast("string")),
                   F.when(F.col("activity") == 0, "Unknown").otherwise("Other")),
    )  # fmt: skip
    status = F.col("status_uid")
    return {
        "activity_id": activity,
        "activity_name": names,
        "category_uid": F.when(F.col("good"), 4).otherwise(0),
        "class_uid": class_uid,
        "class_name": F.coalesce(
            _by_log(F.lit("Network Activity"), F.lit("DNS Activity"), F.lit("HTTP Activity")),
            F.lit("Base Event"),
        ),
        "type_uid": class_uid * 100 + activity,
        "severity_id": F.when(F.col("good"), 1).otherwise(0),
        "severity": F.when(F.col("good"), "Informational"),
        "status_id": status,
        "status": F.when(status == 1, "Success")
        .when(status == 2, "Failure")
        .when(status == 0, "Unknown"),
        "status_code": _by_log(
            _z("conn_state"), _z("rcode_name"), _z("status_code").cast("string")
        ),
        "app_name": _by_log(_z("service"), F.lit(None).cast("string"), F.lit("http")),
        "rcode_id": _by_log(
            F.lit(None).cast("int"),
            F.when(_z("rcode") > 25, 99).otherwise(_z("rcode")),
            F.lit(None).cast("int"),
        ),
        "rcode": _by_log(None, _z("rcode_name"), None),
    }


def _objects() -> dict[str, Column]:
    good, conn, http = F.col("good"), _of("conn"), _of("http")
    mac = {"src": F.when(conn, F.lower(_z("orig_l2_addr"))),
           "dst": F.when(conn, F.lower(_z("resp_l2_addr")))}  # fmt: skip
    none = F.lit(None)
    return {
        "metadata": F.when(good, struct(
            "metadata", version=F.lit("1.8.0"), product=product("Zeek", "Zeek"),
            log_name=F.substring("source", 6, 4), correlation_uid=_z("uid"))),
        "src_endpoint": F.when(good, struct(
            "src_endpoint", ip=_z("id_orig_h"), port=_z("id_orig_p"), mac=mac["src"])),
        "dst_endpoint": F.when(good, struct(
            "dst_endpoint", ip=_z("id_resp_h"), port=_z("id_resp_p"), mac=mac["dst"])),
        "device": F.when(good & _z("@system").isNotNull(), struct(
            "device", hostname=_z("@system"), type_id=F.lit(0))),
        "actor": F.when(good & http & _z("username").isNotNull(), struct(
            "actor", user=struct("actor.user", name=_z("username")))),
        "query": _by_log(none, F.when(_z("query").isNotNull(), struct(
            "query", hostname=_z("query"), type=_z("qtype_name"),
            **{"class": _z("qclass_name")})), none),
        "answers": _by_log(none, _answers(), none),
        "http_request": _by_log(none, none, _request()),
        "http_response": _by_log(none, none, F.when(_z("status_code").isNotNull(), struct(
            "http_response", code=_z("status_code"), message=_z("status_msg"),
            length=_z("response_body_len"),
            content_type=F.when(F.size(_z("resp_mime_types")) == 1, F.try_element_at(
                _z("resp_mime_types"), F.lit(1)))))),
        "traffic": _by_log(_traffic(), none, none),
        "connection_info": F.when(good, _connection()),
        "observables": F.when(good, _observables()),
        "unmapped": F.when(good, left(*[_z(name).alias(name) for name in LEFT])),
    }  # fmt: skip


def _answers() -> Column:
    """Answers with their TTLs, where Zeek saw any."""
    ttl = _z("TTLs")
    return F.when(
        _z("answers").isNotNull(),
        F.transform(
            _z("answers"),
            lambda rdata, n: F.struct(
                rdata.alias("rdata"),
                F.lit(None).cast("string").alias("type"),
                F.try_element_at(ttl, n + 1).cast("long").alias("ttl"),
            ),
        ),
    )


def _request() -> Column:
    uri = F.when(~_z("uri").rlike("^[a-zA-Z][a-zA-Z0-9+.-]*://"), _z("uri"))
    url = struct(
        "http_request.url",
        url_string=F.col("url"),
        hostname=_z("host"),
        path=F.nullif(F.substring_index(uri, "?", 1), F.lit("")),
        query_string=F.nullif(F.regexp_extract(uri, r"\?(.*)$", 1), F.lit("")),
        port=_z("id_resp_p"),
        scheme=F.lit("http"),
    )
    return struct(
        "http_request",
        http_method=_z("method"),
        version=_z("version"),
        user_agent=_z("user_agent"),
        referrer=_z("referrer"),
        length=_z("request_body_len"),
        url=F.when(F.col("url").isNotNull(), url),
    )


def _traffic() -> Column:
    counted = [_z(name) for name in ("orig_bytes", "resp_bytes", "orig_pkts", "resp_pkts")]
    some = reduce(lambda a, b: a | b, [one.isNotNull() for one in counted])
    made = struct(
        "traffic",
        bytes=F.try_add(counted[0], counted[1]),
        bytes_out=counted[0],
        bytes_in=counted[1],
        packets=F.try_add(counted[2], counted[3]),
        packets_out=counted[2],
        packets_in=counted[3],
    )
    return F.when(some, made)


def _connection() -> Column:
    protocol = F.when(_of("http"), "tcp").otherwise(_z("proto"))
    here, there = _z("local_orig"), _z("local_resp")
    direction = F.when(~here & there, 1).when(here & ~there, 2).when(here & there, 3).otherwise(0)
    names = F.array(*[F.lit(n) for n in ("Unknown", "Inbound", "Outbound", "Lateral")])
    return struct(
        "connection_info",
        uid=_z("uid"),
        protocol_name=protocol,
        protocol_num=lookup({"icmp": 1, "tcp": 6, "udp": 17}, protocol),
        protocol_ver_id=F.when(F.contains(_z("id_orig_h"), F.lit(":")), 6).otherwise(4),
        direction_id=direction,
        direction=F.get(names, direction),
        flag_history=F.when(_of("conn"), _z("history")),
        community_uid=F.when(_of("conn"), _z("community_id")),
    )


def _observables() -> Column:
    return observables(
        ("src_endpoint.ip", 2, _z("id_orig_h")),
        ("dst_endpoint.ip", 2, _z("id_resp_h")),
        ("query.hostname", 1, F.col("asked")),
        ("http_request.url.hostname", 1, F.when(_of("http"), _z("host"))),
        ("http_request.url.url_string", 6, F.col("url")),
        ("http_request.user_agent", 16, F.col("agent")),
        ("actor.user.name", 4, F.when(_of("http"), _z("username"))),
    )
