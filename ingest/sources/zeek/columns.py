"""Zeek's JSON of conn, dns and http, many lines at once.

Nine of ten records of a busy sensor are these, in one spelling and without surprises. Such
lines are decoded into typed structs and become columns with no row in between. Whatever is
unusual about a line (an unknown field, a null, another type, a value out of bounds, a key
that may stand twice) leaves it to `ingest.sources.zeek.core`, which reads one line at a time
and says what is wrong. So both must agree on every line that is read here; tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import compress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_columns import column
from ingest.parsing.ocsf import (
    A_HOST,
    A_URL,
    A_USER,
    AN_AGENT,
    AN_IP,
    DNS,
    FAILURE,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SUCCESS,
    UNKNOWN,
    VERSION,
    mac_address,
)
from ingest.parsing.source import ParseSettings, Read
from ingest.parsing.vectorized import (
    arrow_type_of,
    batch_of,
    classified,
    constant,
    looked_up,
    nowhere,
    null_where,
    observables,
    only_where,
    read_of,
    record_columns,
    sensor_columns,
    struct,
    unmapped,
)
from ingest.sources.zeek.core import HIGHEST_RCODE, STATES, TRAFFIC, url_of
from ingest.sources.zeek.lines import LOGS, Lines, decoded, moments, shape_of, sound
from ingest.sources.zeek.row import PRODUCT, PROTOCOLS

__all__ = ["LOGS", "read"]


def read(log: str, records: pa.RecordBatch, settings: ParseSettings) -> Read:
    """The events of those of `records`, all of `zeek:<log>`, that are as they mostly are."""
    raws = records.column("raw").to_numpy(zero_copy_only=False).tolist()
    # A header may give a zone or refuse the record, which only the slow path knows.
    plain = np.asarray(records.column("headers").is_null())
    # A sensor has one spelling, so the first line tells; lines in the other take the slow path.
    prefix = "id." if raws and raws[0] and b'"id.orig_h"' in raws[0] else "id_"
    decoder, kinds = shape_of(log, prefix)
    rows, places = decoded(raws, plain, decoder)
    if not rows:
        return Read(None, list(range(len(raws))))
    lines = Lines.of(rows, kinds)
    # msgspec's types do not see everything: a key that stands twice, or an address that is none.
    good = sound(lines, [raws[place] for place in places], log)
    if not good.all():
        places = list(compress(places, good))
        if not places:
            return Read(None, list(range(len(raws))))
        lines = lines.only(good)
    taken = records if len(places) == len(raws) else records.take(pa.array(places))
    given = _common(lines, taken, log, settings) | _OF[log](lines)
    return read_of(batch_of(lines.rows, given), len(raws), places)


def _common(
    lines: Lines, records: pa.RecordBatch, log: str, settings: ParseSettings
) -> dict[str, pa.Array]:
    """The columns that all logs fill alike, and those of `ingest.parsing.event_rows`."""
    rows, get = lines.rows, lines.arrays
    src, dst = lines.addresses("orig_h"), lines.addresses("resp_h")
    sensor = pc.coalesce(_named(get["@system"]), _named(get["_system_name"]))
    source = f"zeek:{log}"
    cast = pa.array(moments(get["ts"])).cast(pa.timestamp("us", "UTC"))
    product = struct(
        "metadata.product",
        rows,
        name=constant(PRODUCT["name"], rows),
        vendor_name=constant(PRODUCT["vendor_name"], rows),
    )
    seen_by = sensor_columns(sensor, source, settings)
    return (
        record_columns(records, source)
        | seen_by
        | {
            "time": cast,
            "start_time": cast,
            "time_quality": constant("exact", rows),
            "src_ip": src,
            "dst_ip": dst,
            "metadata": struct(
                "metadata",
                rows,
                version=constant(VERSION, rows),
                product=product,
                log_name=constant(log, rows),
                correlation_uid=get["uid"],
            ),
            "src_endpoint": struct(
                "src_endpoint", rows, ip=src, port=get["orig_p"].cast(pa.int32())
            ),
            "dst_endpoint": struct(
                "dst_endpoint", rows, ip=dst, port=get["resp_p"].cast(pa.int32())
            ),
        }
    )


_TEXT = pa.string()


def _named(values: pa.Array) -> pa.Array:
    """The values without empty ones, which name nobody."""
    return null_where(pc.equal(values, ""), values)


def _connection(lines: Lines, protocol: pa.Array, **more: pa.Array) -> pa.Array:
    rows = lines.rows
    six = pc.if_else(pc.match_substring(lines.addresses("orig_h"), ":"), *_SIX_OR_FOUR)
    known = {
        "uid": lines.arrays["uid"],
        "protocol_name": protocol,
        "protocol_num": looked_up(protocol, PROTOCOLS.get, _INT),
        "protocol_ver_id": six,
        "direction_id": constant(0, rows, _INT),
        "direction": constant("Unknown", rows),
    }
    return struct("connection_info", rows, **(known | more))


_INT = pa.int32()
_SIX_OR_FOUR = (pa.scalar(6, _INT), pa.scalar(4, _INT))


def _ended(lines: Lines, name: str) -> dict[str, pa.Array]:
    """Milliseconds and end of what began at `ts` and took the seconds of `name`."""
    span = lines.arrays[name]
    known = span.is_valid()
    # For the arithmetic alone; what was null becomes null again below.
    seconds = pc.fill_null(span, 0.0)
    ends = pa.array(moments(lines.arrays["ts"]) + moments(seconds))
    lasted = pa.array(np.rint(moments(seconds) / 1000).astype(np.int64))
    nothing = pa.scalar(None, pa.int64())
    return {
        "end_time": pc.if_else(known, ends, nothing).cast(pa.timestamp("us", "UTC")),
        "duration": pc.if_else(known, lasted, nothing),
    }


def _rest(lines: Lines, *names: str) -> pa.Array:
    kinds = {name: lines.arrays[name].type for name in names}
    return unmapped(
        lines.rows,
        {
            name: (lines.values(name), kind if _is_plain(kind) else None)
            for name, kind in kinds.items()
        },
    )


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow writes such values as JSON does."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind))


# -- the logs ----------------------------------------------------------------------------------


def conn(lines: Lines) -> dict[str, pa.Array]:
    """As `ingest.sources.zeek.core.conn`."""
    rows, get = lines.rows, lines.arrays
    known = [STATES.get(state or "", (TRAFFIC, UNKNOWN)) for state in lines.values("conn_state")]
    activity = pa.array([activity for activity, _ in known], _INT)
    status = pa.array([status for _, status in known], _INT)
    sent, received = get["orig_bytes"], get["resp_bytes"]
    packets_out, packets_in = get["orig_pkts"], get["resp_pkts"]
    volumes = (sent, received, packets_out, packets_in)
    source, target = (looked_up(get[f"{e}_l2_addr"], mac_address, _TEXT) for e in ("orig", "resp"))
    ways = list(map(_way, lines.values("local_orig"), lines.values("local_resp")))
    ends = {
        name: struct(
            name,
            rows,
            ip=lines.addresses(f"{end}_h"),
            port=get[f"{end}_p"].cast(_INT),
            mac=mac,
        )
        for name, end, mac in (("src_endpoint", "orig", source), ("dst_endpoint", "resp", target))
    }
    spelled = {f"{end}_l2_addr": _named(get[f"{end}_l2_addr"]) for end in ("orig", "resp")}
    odd = {
        name: only_where(pc.is_null(mac), spelled[name]).to_pylist()
        for name, mac in (("orig_l2_addr", source), ("resp_l2_addr", target))
        if mac.null_count != spelled[name].null_count
    }
    return classified(NETWORK, activity, status, rows) | {
        **ends,
        **_ended(lines, "duration"),
        "mac": source,
        "status_code": get["conn_state"],
        "app_name": get["service"],
        "traffic": struct(
            "traffic",
            rows,
            nowhere(*volumes),
            bytes_out=sent,
            bytes_in=received,
            bytes=pc.add(sent, received),
            packets_out=packets_out,
            packets_in=packets_in,
            packets=pc.add(packets_out, packets_in),
        ),
        "connection_info": _connection(
            lines,
            get["proto"],
            flag_history=get["history"],
            community_uid=get["community_id"],
            direction_id=pa.array([way for way, _ in ways], _INT),
            direction=pa.array([name for _, name in ways], _TEXT),
        ),
        "observables": observables(
            rows,
            ("src_endpoint.ip", AN_IP, lines.addresses("orig_h")),
            ("dst_endpoint.ip", AN_IP, lines.addresses("resp_h")),
        ),
        "unmapped": unmapped(
            rows,
            {
                "@proc": (lines.values("@proc"), None),
                **{
                    name: (lines.values(name), pa.int64())
                    for name in ("missed_bytes", "orig_ip_bytes", "resp_ip_bytes")
                },
                **{name: (values, None) for name, values in odd.items()},
            },
        ),
    }


def _way(orig: bool | None, resp: bool | None) -> tuple[int, str]:
    # A sensor that knows no networks of its own writes false for both ends, which therefore says
    # nothing.
    if orig is None or resp is None or not (orig or resp):
        return 0, "Unknown"
    return (3, "Lateral") if orig and resp else (2, "Outbound") if orig else (1, "Inbound")


def dns(lines: Lines) -> dict[str, pa.Array]:
    """As `ingest.sources.zeek.core.dns`."""
    rows, get = lines.rows, lines.arrays
    codes, answers = lines.values("rcode"), lines.values("answers")
    # A line of dns.log is a question together with its answer, so with one it is traffic, and
    # neither of the two alone.
    activity = [
        1 if code is None and result is None else TRAFFIC
        for code, result in zip(codes, answers, strict=True)
    ]
    status = [UNKNOWN if code is None else SUCCESS if code == 0 else FAILURE for code in codes]
    known = [None if code is None else code if code <= HIGHEST_RCODE else OTHER for code in codes]
    return classified(DNS, pa.array(activity, _INT), pa.array(status, _INT), rows) | {
        **_ended(lines, "rtt"),
        "status_code": get["rcode_name"],
        "query": struct(
            "query",
            rows,
            pc.is_null(get["query"]),
            hostname=get["query"],
            type=get["qtype_name"],
            **{"class": get["qclass_name"]},
        ),
        "answers": pa.array(
            list(map(_answered, answers, lines.values("TTLs"))), arrow_type_of("answers")
        ),
        "rcode_id": pa.array(known, _INT),
        "rcode": get["rcode_name"],
        "connection_info": _connection(lines, get["proto"]),
        "observables": observables(
            rows,
            ("src_endpoint.ip", AN_IP, lines.addresses("orig_h")),
            ("dst_endpoint.ip", AN_IP, lines.addresses("resp_h")),
            ("query.hostname", A_HOST, get["query"]),
        ),
        "unmapped": _rest(
            lines,
            *("@proc", "trans_id", "qclass", "qtype", "AA", "TC", "RD", "RA", "Z", "rejected"),
        ),
    }


def _answered(answers: list[str] | None, ttls: list[float] | None) -> list[dict[str, Any]] | None:
    if answers is None:
        return None
    known = (ttls or []) + [None] * (len(answers) - len(ttls or []))
    return [
        {"rdata": answer, "ttl": None if ttl is None else int(ttl)}
        for answer, ttl in zip(answers, known, strict=False)
    ]


def http(lines: Lines) -> dict[str, pa.Array]:
    """As `ingest.sources.zeek.core.http`."""
    rows, get = lines.rows, lines.arrays
    methods, codes = lines.values("method"), lines.values("status_code")
    activity = [HTTP_METHODS.get((m or "").upper(), OTHER if m else UNKNOWN) for m in methods]
    status = [UNKNOWN if c is None else SUCCESS if c < 400 else FAILURE for c in codes]
    urls = list(map(url_of, lines.values("host"), lines.values("uri"), lines.values("resp_p")))
    url = column(urls, arrow_type_of("http_request.url"), "http_request.url")
    unanswered = pc.is_null(get["status_code"])
    left = {
        # What says more of a response stays behind where the response itself is missing.
        name: (
            [v if c is None else None for v, c in zip(lines.values(name), codes, strict=True)],
            k,
        )
        for name, k in (
            ("status_msg", None),
            ("response_body_len", pa.int64()),
            ("resp_mime_types", None),
        )
    }
    user = _named(get["username"])
    return classified(HTTP, pa.array(activity, _INT), pa.array(status, _INT), rows) | {
        "start_time": pa.nulls(rows, pa.timestamp("us", "UTC")),
        "status_code": get["status_code"].cast(_TEXT),
        "http_request": struct(
            "http_request",
            rows,
            http_method=get["method"],
            version=get["version"],
            user_agent=get["user_agent"],
            referrer=get["referrer"],
            length=get["request_body_len"],
            url=url,
        ),
        "http_response": struct(
            "http_response",
            rows,
            unanswered,
            code=get["status_code"].cast(_INT),
            message=get["status_msg"],
            length=get["response_body_len"],
            content_type=pa.array(
                [types[0] if types else None for types in lines.values("resp_mime_types")], _TEXT
            ),
        ),
        "actor": struct(
            "actor",
            rows,
            pc.is_null(user),
            user=struct("actor.user", rows, pc.is_null(user), name=user),
        ),
        "user_name": user,
        "connection_info": _connection(lines, constant("tcp", rows)),
        "app_name": constant("http", rows),
        "observables": observables(
            rows,
            ("src_endpoint.ip", AN_IP, lines.addresses("orig_h")),
            ("dst_endpoint.ip", AN_IP, lines.addresses("resp_h")),
            ("http_request.url.hostname", A_HOST, pc.struct_field(url, "hostname")),
            ("http_request.url.url_string", A_URL, pc.struct_field(url, "url_string")),
            ("http_request.user_agent", AN_AGENT, get["user_agent"]),
            ("actor.user.name", A_USER, user),
        ),
        "unmapped": unmapped(
            rows,
            {
                **{
                    name: (lines.values(name), None)
                    for name in (
                        *("@proc", "trans_depth", "tags", "orig_fuids", "orig_mime_types"),
                        *("resp_fuids", "client_header_names"),
                    )
                },
                **left,
            },
        ),
    }


_OF: Mapping[str, Callable[[Lines], dict[str, pa.Array]]] = {"conn": conn, "dns": dns, "http": http}
