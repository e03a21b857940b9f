"""Zeek's JSON of conn, dns and http, many lines at once.

Nine of ten records of a busy sensor are these, in one spelling and without surprises. Such
lines are decoded into typed structs and become columns with no row in between. Whatever is
unusual about a line (an unknown field, a null, another type, a value out of bounds, a key
that may stand twice) leaves it to `ingest.sources.zeek.core`, which reads one line at a time
and says what is wrong. So both must agree on every line that is read here; tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from ingest.parsing.strict_json import encode
from ingest.parsing.vectorized import (
    arrow_type_of,
    batch_of,
    classified,
    constant,
    json_objects,
    json_of,
    looked_up,
    nowhere,
    null_where,
    observables,
    only_where,
    read_of,
    record_columns,
    sensor_columns,
    struct,
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
    whence = record_columns(records, f"zeek:{log}", places)
    given = whence | _common(lines, log, settings) | _OF[log](lines)
    return read_of(batch_of(lines.rows, given), len(raws), places)


def _common(lines: Lines, log: str, settings: ParseSettings) -> dict[str, pa.Array]:
    """The columns that all logs fill alike, and those of `ingest.parsing.event_rows`."""
    rows, get = lines.rows, lines.arrays
    src, dst = lines.addresses("orig_h"), lines.addresses("resp_h")
    sensor = pc.coalesce(_named(get["@system"]), _named(get["_system_name"]))
    cast = pa.array(moments(get["ts"])).cast(pa.timestamp("us", "UTC"))
    product = struct(
        "metadata.product",
        rows,
        name=constant(PRODUCT["name"], rows),
        vendor_name=constant(PRODUCT["vendor_name"], rows),
    )
    return sensor_columns(sensor, f"zeek:{log}", settings) | {
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
        "src_endpoint": struct("src_endpoint", rows, ip=src, port=get["orig_p"].cast(pa.int32())),
        "dst_endpoint": struct("dst_endpoint", rows, ip=dst, port=get["resp_p"].cast(pa.int32())),
    }


_TEXT = pa.string()


def _named(values: pa.Array) -> pa.Array:
    """The values without empty ones, which name nobody."""
    return null_where(pc.equal(values, ""), values)


def _connection(lines: Lines, protocol: pa.Array, **more: pa.Array) -> pa.Array:
    rows = lines.rows
    six = pc.if_else(pc.match_substring(lines.addresses("orig_h"), ":"), *_SIX_OR_FOUR)
    leaves = {
        "uid": lines.arrays["uid"],
        "protocol_name": protocol,
        "protocol_num": looked_up(protocol, PROTOCOLS.get, _INT),
        "protocol_ver_id": six,
        "direction_id": constant(0, rows, _INT),
        "direction": constant("Unknown", rows),
    }
    return struct("connection_info", rows, **(leaves | more))


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


def _rest(lines: Lines, *names: str) -> dict[str, pa.Array]:
    """JSON of fields that found no column."""
    return {
        name: _json_of_lists(lines.values(name))
        if pa.types.is_list(lines.arrays[name].type)
        else json_of(lines.arrays[name])
        for name in names
        if lines.arrays[name].null_count < lines.rows
    }


def _unmapped(rows: int, texts: Mapping[str, pa.Array]) -> pa.Array:
    # As `ingest.sources.zeek.core.left_over`.
    return json_objects(rows, dict(sorted(texts.items())))


def _json_of_lists(values: Sequence[list[str] | None]) -> pa.Array:
    return pa.array([None if each is None else encode(each) for each in values], _TEXT)


# -- the logs ----------------------------------------------------------------------------------


def conn(lines: Lines) -> dict[str, pa.Array]:
    """As `ingest.sources.zeek.core.conn`."""
    rows, get = lines.rows, lines.arrays
    states = pc.fill_null(get["conn_state"], "")
    activity = looked_up(states, lambda state: STATES.get(state, _OTHER_STATE)[0], _INT)
    status = looked_up(states, lambda state: STATES.get(state, _OTHER_STATE)[1], _INT)
    sent, received = get["orig_bytes"], get["resp_bytes"]
    packets_out, packets_in = get["orig_pkts"], get["resp_pkts"]
    volumes = (sent, received, packets_out, packets_in)
    source, target = (looked_up(get[f"{e}_l2_addr"], mac_address, _TEXT) for e in ("orig", "resp"))
    ways = _ways(get["local_orig"], get["local_resp"])
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
        name: json_of(only_where(pc.is_null(mac), spelled[name]))
        for name, mac in (("orig_l2_addr", source), ("resp_l2_addr", target))
        if mac.null_count != spelled[name].null_count
    }
    for name, other in (("local_orig", "local_resp"), ("local_resp", "local_orig")):
        if get[other].null_count:
            alone = only_where(pc.is_null(get[other]), json_of(get[name]))
            if alone.null_count < rows:
                odd[name] = alone
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
            direction_id=ways,
            direction=_DIRECTIONS.take(ways),
        ),
        "observables": observables(
            rows,
            ("src_endpoint.ip", AN_IP, lines.addresses("orig_h")),
            ("dst_endpoint.ip", AN_IP, lines.addresses("resp_h")),
        ),
        "unmapped": _unmapped(
            rows, _rest(lines, "@proc", "missed_bytes", "orig_ip_bytes", "resp_ip_bytes") | odd
        ),
    }


_OTHER_STATE = (TRAFFIC, UNKNOWN)
_DIRECTIONS = pa.array(["Unknown", "Inbound", "Outbound", "Lateral"])


def _ways(orig: pa.Array, resp: pa.Array) -> pa.Array:
    """Which of the directions each is, of what is local at both ends."""
    # A sensor that knows no networks of its own writes false for both ends, which therefore says
    # nothing.
    from_here, to_here = (np.asarray(pc.fill_null(end, False)) for end in (orig, resp))
    known = np.asarray(pc.and_(orig.is_valid(), resp.is_valid()))
    return pa.array((known * (2 * from_here + to_here)).astype(np.int32))


def dns(lines: Lines) -> dict[str, pa.Array]:
    """As `ingest.sources.zeek.core.dns`."""
    rows, get = lines.rows, lines.arrays
    codes = get["rcode"]
    # A line of dns.log is a question together with its answer, so with one it is traffic, and
    # neither of the two alone.
    unanswered = pc.and_(codes.is_null(), get["answers"].is_null())
    activity = pc.if_else(unanswered, pa.scalar(1, _INT), pa.scalar(TRAFFIC, _INT))
    status = looked_up(
        pc.fill_null(codes, -1),
        lambda code: UNKNOWN if code < 0 else FAILURE if code else SUCCESS,
        _INT,
    )
    rcodes = looked_up(codes, lambda code: code if code <= HIGHEST_RCODE else OTHER, _INT)
    nameless = {
        name: json_of(only_where(pc.is_null(get["query"]), get[name]))
        for name in ("qtype_name", "qclass_name")
        if get["query"].null_count
    }
    return classified(DNS, activity, status, rows) | {
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
        "answers": _answers(lines),
        "rcode_id": rcodes,
        "rcode": get["rcode_name"],
        "connection_info": _connection(lines, get["proto"]),
        "observables": observables(
            rows,
            ("src_endpoint.ip", AN_IP, lines.addresses("orig_h")),
            ("dst_endpoint.ip", AN_IP, lines.addresses("resp_h")),
            ("query.hostname", A_HOST, get["query"]),
        ),
        "unmapped": _unmapped(
            rows,
            _rest(
                lines,
                *("@proc", "trans_id", "qclass", "qtype", "AA", "TC", "RD", "RA", "Z", "rejected"),
            )
            | nameless,
        ),
    }


def _answers(lines: Lines) -> pa.Array:
    """The answers, each with its time to live."""
    kind, answers, ttls = arrow_type_of("answers"), lines.arrays["answers"], lines.arrays["TTLs"]
    counts = pc.fill_null(pc.list_value_length(answers), 0)
    if not counts.equals(pc.fill_null(pc.list_value_length(ttls), 0)):
        pairs = map(_answered, lines.values("answers"), lines.values("TTLs"))
        return pa.array(list(pairs), kind)
    ends = np.zeros(lines.rows + 1, np.int32)
    np.cumsum(np.asarray(counts), out=ends[1:])
    fields = [kind.value_type.field(place) for place in range(kind.value_type.num_fields)]
    leaves = {
        "rdata": answers.flatten(),
        # What is less than a second is cut off.
        "ttl": pc.cast(ttls.flatten(), kind.value_type.field("ttl").type, safe=False),
    }
    elements = [leaves.get(field.name, pa.nulls(int(ends[-1]), field.type)) for field in fields]
    return pa.ListArray.from_arrays(
        pa.array(ends),
        pa.StructArray.from_arrays(elements, fields=fields),
        type=kind,
        mask=answers.is_null(),
    )


def _answered(answers: list[str] | None, ttls: list[float] | None) -> list[dict[str, Any]] | None:
    if answers is None:
        return None
    ttls_padded = (ttls or []) + [None] * (len(answers) - len(ttls or []))
    return [
        {"rdata": answer, "ttl": None if ttl is None else int(ttl)}
        for answer, ttl in zip(answers, ttls_padded, strict=False)
    ]


def http(lines: Lines) -> dict[str, pa.Array]:
    """As `ingest.sources.zeek.core.http`."""
    rows, get = lines.rows, lines.arrays
    activity = looked_up(
        pc.fill_null(get["method"], ""),
        lambda method: HTTP_METHODS.get(method.upper(), OTHER if method else UNKNOWN),
        _INT,
    )
    status = looked_up(
        pc.fill_null(get["status_code"], -1),
        lambda code: UNKNOWN if code < 0 else SUCCESS if code < 400 else FAILURE,
        _INT,
    )
    urls = list(map(url_of, lines.values("host"), lines.values("uri"), lines.values("resp_p")))
    url = column(urls, arrow_type_of("http_request.url"), "http_request.url")
    unanswered = pc.is_null(get["status_code"])
    types = get["resp_mime_types"]
    # What says more of a response stays behind where the response itself is missing.
    left = {
        name: only_where(unanswered, text)
        for name, text in _rest(lines, "status_msg", "response_body_len", "resp_mime_types").items()
    }
    user = _named(get["username"])
    return classified(HTTP, activity, status, rows) | {
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
            content_type=_firsts(types),
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
        "unmapped": _unmapped(
            rows,
            _rest(
                lines,
                *("@proc", "trans_depth", "tags", "orig_fuids", "orig_mime_types"),
                *("resp_fuids", "client_header_names"),
            )
            | left,
        ),
    }


def _firsts(lists: pa.Array) -> pa.Array:
    """Of lists that have one element each that element; null where there is no list."""
    places = np.cumsum(np.asarray(lists.is_valid())) - 1
    return lists.flatten().take(pa.array(places, mask=np.asarray(lists.is_null())))


_OF: Mapping[str, Callable[[Lines], dict[str, pa.Array]]] = {"conn": conn, "dns": dns, "http": http}
