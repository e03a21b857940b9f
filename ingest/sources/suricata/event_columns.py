"""The columns that several types of Suricata's events have, many lines at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_columns import column
from ingest.parsing.ocsf import (
    A_HOST,
    A_URL,
    AN_AGENT,
    AN_IP,
    VERSION,
)
from ingest.parsing.source import Context, ParseSettings, Record
from ingest.parsing.strict_json import encode
from ingest.parsing.timestamps import EPOCH
from ingest.parsing.vectorized import (
    Mask,
    addresses,
    arrow_type_of,
    constant,
    exact_times,
    json_objects,
    looked_up,
    nowhere,
    null_where,
    observables,
    only_where,
    sensor_columns,
    struct,
)
from ingest.sources.shared.firewall import (
    Fields,
    connection,
)
from ingest.sources.suricata.common import PRODUCT, read_tls
from ingest.sources.suricata.lines import INNER_FIELDS, TOP_FIELDS, EveLines, EveObjects, EvePart

A_TEXT, AN_INT, A_LONG = pa.string(), pa.int32(), pa.int64()
Observed = tuple[str, int, pa.Array]
"""An observable's OCSF path, its type, and its values."""


class EventColumns:
    """The columns of lines of one type."""

    def __init__(self, lines: EveLines, source: str, settings: ParseSettings) -> None:
        self.lines, self.rows, self.top = lines, lines.rows, lines.top
        self.source, self.settings = source, settings
        ports = [self.top.array(f"{end}_port", AN_INT) for end in ("src", "dest")]
        self.turned = _turned(lines)
        self.ips = _swapped(self.turned, *lines.ips)
        self.ports = _swapped(self.turned, *ports)
        # What a type adds to the columns that all have.
        self.event_code = pa.nulls(self.rows, A_TEXT)
        self.flags = pa.nulls(self.rows, A_TEXT)
        self.observed: tuple[Observed, ...] = ()
        # JSON of fields that are only in some lines left in `unmapped`; `flow.state`: in `flow`.
        self.rest: dict[str, pa.Array] = {}
        if self.turned is not None:
            mask = pa.array(self.turned)
            for end, ip, port in zip(("src", "dest"), lines.ips, ports, strict=True):
                self.rest[f"{end}_ip"] = only_where(mask, _json(ip))
                self.rest[f"{end}_port"] = only_where(mask, _json(port))

    def common(self) -> dict[str, pa.Array]:
        """The columns that all types fill alike, to be asked for once the type's own are made."""
        rows, host = self.rows, self.top.array("host")
        product = struct(
            "metadata.product",
            rows,
            **{name: constant(value, rows) for name, value in PRODUCT.items()},
        )
        return sensor_columns(host, self.source, self.settings) | {
            "time": self.lines.time,
            "time_quality": constant("exact", rows),
            "src_ip": self.ips[0],
            "dst_ip": self.ips[1],
            "metadata": struct(
                "metadata",
                rows,
                version=constant(VERSION, rows),
                product=product,
                log_name=constant(self.lines.kind, rows),
                correlation_uid=self.flow_id,
                event_code=self.event_code,
            ),
            "src_endpoint": struct("src_endpoint", rows, ip=self.ips[0], port=self.ports[0]),
            "dst_endpoint": struct("dst_endpoint", rows, ip=self.ips[1], port=self.ports[1]),
            "connection_info": self._connection(),
            "observables": observables(
                rows,
                ("src_endpoint.ip", AN_IP, self.ips[0]),
                ("dst_endpoint.ip", AN_IP, self.ips[1]),
                *self.observed,
            ),
            "unmapped": self._unmapped(),
        }

    @property
    def flow_id(self) -> pa.Array:
        """The flow's number, as text."""
        return self.top.array("flow_id", A_LONG).cast(A_TEXT)

    def _connection(self) -> pa.Array:
        protocol = self.top.array("proto")
        return struct(
            "connection_info",
            self.rows,
            uid=self.flow_id,
            community_uid=self.top.array("community_id"),
            protocol_name=looked_up(protocol, lambda p: _protocol(p)["protocol_name"], A_TEXT),
            protocol_num=looked_up(protocol, lambda p: _protocol(p)["protocol_num"], AN_INT),
            protocol_ver_id=pc.if_else(pc.match_substring(self.ips[0], ":"), *_SIX_OR_FOUR),
            direction_id=constant(0, self.rows, AN_INT),
            direction=constant("Unknown", self.rows),
            flag_history=self.flags,
        )

    def spoken(self) -> pa.Array:
        """The application protocol; `failed` says that none was recognised, and is left."""
        spoken = self.top.array("app_proto")
        failed = pc.equal(spoken, "failed")
        self.rest["app_proto"] = pc.if_else(failed, '"failed"', _NO_TEXT)
        return null_where(failed, spoken)

    def ends(self, before: str) -> pa.Array:
        """Both ends, for a message."""
        return pc.binary_join_element_wise(before, self.ips[0], " to ", self.ips[1], "")

    def objects(self, name: str) -> EveObjects:
        """The field `name`, an object that is read once for each spelling."""
        return self.lines.objects.get(name) or EveObjects([None] * self.rows)

    def _unmapped(self) -> pa.Array:
        pieces = self._left("", self.top, TOP_FIELDS, _TAKEN[""] | self.rest.keys())
        for name, part in self.lines.inner.items():
            if name in self.top:
                left = self._left(
                    f"{name}.", part, INNER_FIELDS[name], _TAKEN[name] | self.rest.keys()
                )
                pieces[name] = json_objects(self.rows, left)
        return json_objects(
            self.rows,
            pieces | {name: text for name, text in self.rest.items() if "." not in name},
        )

    def _left(
        self, where: str, part: EvePart, fields: Mapping[str, Any], taken: frozenset[str]
    ) -> dict[str, pa.Array]:
        """JSON of a part's fields that found no column."""
        result = {
            name.removeprefix(where): text
            for name, text in self.rest.items()
            if where and name.startswith(where)
        }
        for name, kind in fields.items():
            if name not in part or name in taken or f"{where}{name}" in self.rest:
                continue
            if kind is msgspec.Raw:
                objects = self.lines.objects[f"{where}{name}"]
                result[name] = objects.take(json_texts(objects.distinct))
            else:
                arrow = A_TEXT if kind is str else pa.bool_() if kind is bool else A_LONG
                result[name] = _json(part.array(name, arrow))
        return result

    # -- what several types have -------------------------------------------------------------------

    def flow(self) -> dict[str, pa.Array]:
        """Volume and times of the flow, as far as it is known."""
        part = self.lines.inner["flow"]
        out, back, packets_out, packets_in = (
            part.array(name, A_LONG)
            for name in ("bytes_toserver", "bytes_toclient", "pkts_toserver", "pkts_toclient")
        )
        start, end = (exact_times(part.array(name)) for name in ("start", "end"))
        return {
            "traffic": struct(
                "traffic",
                self.rows,
                nowhere(out, back, packets_out, packets_in),
                bytes_out=out,
                bytes_in=back,
                bytes=pc.add(out, back),
                packets_out=packets_out,
                packets_in=packets_in,
                packets=pc.add(packets_out, packets_in),
            ),
            "start_time": start,
            "end_time": end,
            "duration": _between(start, end),
        }

    def http(self) -> dict[str, pa.Array]:
        """Request and response."""
        part, rows = self.lines.inner["http"], self.rows
        host, uri = part.array("hostname"), part.array("url")
        absent, status = pc.is_null(host), part.array("status", AN_INT)
        whole = pc.binary_join_element_wise("http://", host, uri, "")
        parts = pc.extract_regex(uri, r"(?s)^(?P<path>[^?]*)(?:\?(?P<query>.*))?$")
        query = pc.struct_field(parts, "query")
        agent, unanswered = part.array("http_user_agent"), pc.is_null(status)
        url = struct(
            "http_request.url",
            rows,
            absent,
            url_string=whole,
            hostname=host,
            path=pc.struct_field(parts, "path"),
            query_string=null_where(pc.equal(query, ""), query),
            port=part.array("http_port", AN_INT),
            scheme=constant("http", rows),
        )
        # What says more of a response stays behind where the response itself is missing.
        for name, kind in (("http_content_type", A_TEXT), ("length", A_LONG)):
            left = _json(part.array(name, kind))
            self.rest[f"http.{name}"] = only_where(unanswered, left)
        self.observed = (
            ("http_request.url.hostname", A_HOST, host),
            ("http_request.url.url_string", A_URL, whole),
            ("http_request.user_agent", AN_AGENT, agent),
        )
        return {
            "http_request": struct(
                "http_request",
                rows,
                absent,
                http_method=part.array("http_method"),
                version=part.array("protocol"),
                user_agent=agent,
                referrer=part.array("http_refer"),
                url=url,
            ),
            "http_response": struct(
                "http_response",
                rows,
                unanswered,
                code=status,
                content_type=part.array("http_content_type"),
                length=part.array("length", A_LONG),
            ),
        }

    def tls(self) -> pa.Array:
        """What is known of the handshake."""
        objects = self.objects("tls")
        # The arrival is for times that cannot be read, and those stay where they are.
        context = Context(Record("", self.source, "", EPOCH, b""), self.settings)
        left = [None if value is None else Fields(value) for value in objects.distinct]
        columns = [None if each is None else read_tls(each, context) or None for each in left]
        rest = [None if each is None else each.left() or None for each in left]
        self.rest["tls"] = objects.take(json_texts(rest))
        return objects.take(column(columns, arrow_type_of("tls"), "tls"))


_NO_TEXT = pa.scalar(None, A_TEXT)
_SIX_OR_FOUR = (pa.scalar(6, AN_INT), pa.scalar(4, AN_INT))
_TAKEN: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {
            *("timestamp", "src_ip", "dest_ip", "src_port", "dest_port", "proto", "flow_id"),
            *("community_id", "host"),
        }
    ),
    "flow": frozenset(INNER_FIELDS["flow"])
    - {"age", "tx_cnt", "alerted", "state", "reason", "action"},
    "http": frozenset(INNER_FIELDS["http"]) - {"redirect"},
    "dns": frozenset(
        {"type", "rcode", "rrname", "rrtype", "rdata", "ttl", "queries", "answers", "grouped"}
    ),
}
"""Fields that always find a column, or stay in `EventColumns.rest` where they do not."""


def _protocol(spoken: str) -> Mapping[str, Any]:
    return connection(spoken, None, uid="") or {}


def _json(values: pa.Array) -> pa.Array:
    """JSON text of each value; null for null and for empty text."""
    if values.type != A_TEXT:
        return values.cast(A_TEXT)
    return looked_up(null_where(pc.equal(values, ""), values), encode, A_TEXT)


def json_texts(values: list[Any]) -> pa.Array:
    """JSON text of each value; null for none."""
    return pa.array([None if value is None else encode(value) for value in values], A_TEXT)


def _swapped(turned: Mask | None, source: pa.Array, target: pa.Array) -> tuple[pa.Array, pa.Array]:
    if turned is None:
        return source, target
    mask = pa.array(turned)
    return pc.if_else(mask, target, source), pc.if_else(mask, source, target)


def _turned(lines: EveLines) -> Mask | None:
    """Where the server sent what the event is about; None: nowhere. As the row reader says."""
    top, flow = lines.top, lines.inner.get("flow")
    src_port, dest_port = (_filled(top, f"{end}_port") for end in ("src", "dest"))
    turned: Mask = np.zeros(lines.rows, np.bool_)
    if "direction" in top:
        turned |= true_of(pc.equal(top.array("direction"), "to_client"))
    if lines.kind == "dns":
        # Version 1 wrote an answer as its packet went.
        answer = true_of(pc.equal(lines.inner["dns"].array("type"), "answer"))
        turned |= answer & (src_port == 53) & (dest_port != 53)
    if flow is not None and "src_ip" in flow and "dest_ip" in flow:
        client, server = (addresses(flow.array(f"{end}_ip")) for end in ("src", "dest"))
        ports = [_filled(flow, f"{end}_port") for end in ("src", "dest")]
        comparable = np.asarray(pc.and_(client.is_valid(), server.is_valid()))
        comparable &= true_of(pc.not_equal(client, server)) | (ports[0] != ports[1])
        same = true_of(pc.equal(client, lines.ips[1])) & true_of(pc.equal(server, lines.ips[0]))
        unknown = (ports[0] < 0) & (ports[1] < 0)
        same &= unknown | ((ports[0] == dest_port) & (ports[1] == src_port))
        turned = np.where(comparable, same, turned)
    return turned if turned.any() else None


def _filled(part: EvePart, name: str) -> np.ndarray[Any, Any]:
    """Ports, -1 where there is none."""
    return np.asarray(pc.fill_null(part.array(name, AN_INT), -1))


def true_of(values: pa.Array) -> Mask:
    """Where a truth value is true; null is not."""
    return cast(Mask, np.asarray(pc.fill_null(values, False)))


def _between(start: pa.Array, end: pa.Array) -> pa.Array:
    """Milliseconds from one time to a later one, each rounded by itself; as the row reader."""
    spans = [
        pc.round(
            pc.multiply(pc.divide(times.cast(A_LONG).cast(pa.float64()), 1e6), 1000.0),
            round_mode="half_to_even",
        ).cast(A_LONG)
        for times in (start, end)
    ]
    span = pc.subtract(spans[1], spans[0])
    return pc.if_else(pc.greater_equal(span, 0), span, pa.scalar(None, A_LONG))
