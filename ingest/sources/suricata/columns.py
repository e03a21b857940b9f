"""Suricata's alerts, flows, DNS, HTTP and TLS events, many lines at once.

Lines are decoded into typed structs, by type of event, and become columns with no row in between.
What repeats from line to line as it is (the rule of an alert, a certificate, TCP's flags) is
kept as bytes, and read once for each spelling by the functions of the row reader. Whatever is
unusual about a line (an unknown field, a null, another type, a time without zone, a key that may
stand twice) leaves it to `ingest.sources.suricata.source`. So both must agree on every line that
is read here; tests compare them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_columns import column
from ingest.parsing.ocsf import (
    A_HOST,
    ACTION,
    DISPOSITION,
    DNS,
    FAILURE,
    FINDING,
    HTTP,
    HTTP_METHODS,
    NETWORK,
    OTHER,
    SEVERITY,
    SUCCESS,
    UNKNOWN,
)
from ingest.parsing.source import ParseSettings, Read
from ingest.parsing.vectorized import (
    arrow_type_of,
    batch_of,
    classified,
    constant,
    looked_up,
    null_where,
    read_of,
    record_columns,
    struct,
)
from ingest.sources.shared.firewall import (
    CLOSE,
    REFUSE,
    TRAFFIC,
    Fields,
    firewall_disposition,
)
from ingest.sources.suricata.alert import rule_columns
from ingest.sources.suricata.common import code_of
from ingest.sources.suricata.event_columns import (
    A_TEXT,
    AN_INT,
    EventColumns,
    json_texts,
    true_of,
)
from ingest.sources.suricata.lines import decoded_events, known_lines

FEWEST_EVENTS = 32
"""Events of a type that are worth it: the row reader takes as long for 25 to 30."""


def read_events(source: str, records: pa.RecordBatch, settings: ParseSettings) -> Read:
    """The events of those of `records`, all of `source`, that are as they mostly are."""
    raws = records.column("raw").to_numpy(zero_copy_only=False).tolist()
    # A header may give a zone or refuse the record, which only the row reader knows.
    plain = np.asarray(records.column("headers").is_null()).tolist()
    taken_places: list[int] = []
    batches = []
    for kind, (structs, places) in decoded_events(raws, plain).items():
        if len(places) < FEWEST_EVENTS:
            continue
        lines, places = known_lines(kind, structs, places, raws)
        if lines is None:
            continue
        reader = EventColumns(lines, source, settings)
        columns = record_columns(records, source, places) | _OF[kind](reader) | reader.common()
        batches.append(batch_of(lines.rows, columns))
        taken_places += places
    if not batches:
        return Read(None, list(range(len(raws))))
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    return read_of(whole, len(raws), taken_places)


# -- the types ---------------------------------------------------------------------------------


def _alert(events: EventColumns) -> dict[str, pa.Array]:
    """A rule that matched."""
    rows, objects = events.rows, events.objects("alert")
    left = [Fields(value or {}) for value in objects.distinct]
    rules = [rule_columns(each) for each in left]
    events.rest["alert"] = objects.take(json_texts([each.left() or None for each in left]))

    def of_rule(name: str, kind: pa.DataType) -> pa.Array:
        return objects.take(pa.array([rule[name] for rule in rules], kind))

    infos = [rule["finding_info"] for rule in rules]
    info = objects.take(column(infos, arrow_type_of("finding_info"), "finding_info"))
    leaves = {field.name: pc.struct_field(info, field.name) for field in info.type}
    uid = pc.struct_field(info, "uid")
    decision = {name: of_rule(f"{name}_id", AN_INT) for name in ("action", "disposition")}
    severity = of_rule("severity_id", AN_INT)
    columns = events.http() if "http" in events.top else {}
    if "flow" in events.top:
        columns |= events.flow()
    if "tls" in events.top:
        columns["tls"] = events.tls()
    events.event_code = null_where(pc.equal(uid, "unknown"), uid)
    return (
        classified(FINDING, constant(1, rows, AN_INT), pa.nulls(rows, AN_INT), rows)
        | columns
        | {
            "severity_id": severity,
            "severity": looked_up(severity, SEVERITY.__getitem__, A_TEXT),
            "action_id": decision["action"],
            "action": looked_up(decision["action"], ACTION.__getitem__, A_TEXT),
            "disposition_id": decision["disposition"],
            "disposition": looked_up(decision["disposition"], DISPOSITION.__getitem__, A_TEXT),
            "message": of_rule("message", A_TEXT),
            "finding_info": struct(
                "finding_info", rows, **(leaves | {"created_time": events.lines.time})
            ),
            "more": objects.take(json_texts([rule["more"] for rule in rules])),
            "app_name": events.spoken(),
        }
    )


def _flow(events: EventColumns) -> dict[str, pa.Array]:
    """A flow that ended."""
    part, rows, tcp = events.lines.inner["flow"], events.rows, events.objects("tcp")
    left = [Fields(value or {}) for value in tcp.distinct]
    events.flags = tcp.take(pa.array([each.text("tcp_flags") for each in left], A_TEXT))
    events.rest["tcp"] = tcp.take(json_texts([each.left() or None for each in left]))
    for name in ("state", "reason", "action"):
        events.rest[f"flow.{name}"] = pa.nulls(rows, A_TEXT)
    action, state = part.array("action"), part.array("state")
    dropped = true_of(pc.equal(action, "drop"))
    closed = true_of(pc.equal(state, "closed"))
    activity = pa.array(np.where(dropped, REFUSE, np.where(closed, CLOSE, TRAFFIC)), AN_INT)

    def decided(name: str) -> pa.Array:
        return looked_up(action, lambda word: _DECIDED.get(word, {}).get(name), AN_INT)

    verdict, disposition = decided("action_id"), decided("disposition_id")
    return (
        classified(NETWORK, activity, decided("status_id"), rows)
        | events.flow()
        | {
            "action_id": verdict,
            "action": looked_up(verdict, ACTION.__getitem__, A_TEXT),
            "disposition_id": disposition,
            "disposition": looked_up(disposition, DISPOSITION.__getitem__, A_TEXT),
            "status_code": state,
            "status_detail": part.array("reason"),
            "message": events.ends("Flow from "),
            "app_name": events.spoken(),
        }
    )


_DECIDED: Mapping[str, Mapping[str, Any]] = {
    "pass": firewall_disposition(True),
    "accept": firewall_disposition(True),
    "drop": firewall_disposition(False),
}


def _dns(events: EventColumns) -> dict[str, pa.Array]:
    """A question or its answer."""
    part, rows = events.lines.inner["dns"], events.rows
    queries, name, kind = part.values("queries"), part.array("rrname"), part.array("rrtype")
    if "queries" in part:
        questions = [None if each is None else each[0] for each in queries]
        name, kind = (
            pc.coalesce(whole, pa.array([getattr(each, leaf, None) for each in questions], A_TEXT))
            for whole, leaf in ((name, "rrname"), (kind, "rrtype"))
        )
    events.observed = (("query.hostname", A_HOST, name),)
    rcode = part.array("rcode")
    number = looked_up(rcode, code_of, AN_INT)
    status = [
        UNKNOWN if each is None else SUCCESS if each == 0 else FAILURE
        for each in number.to_pylist()
    ]
    types = part.values("type")
    return classified(
        DNS,
        pa.array([_WAYS.get(each, 6) for each in types], AN_INT),
        pa.array(status, AN_INT),
        rows,
    ) | {
        "status_code": rcode,
        "message": pa.array(
            [
                f"DNS {of or 'message'} {host or ''}".rstrip()
                for of, host in zip(types, name.to_pylist(), strict=True)
            ],
            A_TEXT,
        ),
        "query": struct("query", rows, pc.is_null(name), hostname=name, type=kind),
        "answers": pa.array(events.lines.answers, arrow_type_of("answers")),
        "rcode": rcode,
        "rcode_id": number,
    }


_WAYS: Mapping[str | None, int] = {"query": 1, "request": 1, "answer": 2, "response": 2}


def _http(events: EventColumns) -> dict[str, pa.Array]:
    """A request and its response."""
    part, rows = events.lines.inner["http"], events.rows
    columns = events.http()
    url = pc.struct_field(columns["http_request"], ["url", "url_string"])
    method, code = part.array("http_method"), part.array("status", AN_INT)
    activity = looked_up(
        pc.fill_null(method, ""),
        lambda name: HTTP_METHODS.get(name.upper(), OTHER if name else UNKNOWN),
        AN_INT,
    )
    status = looked_up(
        pc.fill_null(code, -1),
        lambda number: UNKNOWN if number < 0 else SUCCESS if number < 400 else FAILURE,
        AN_INT,
    )
    return (
        classified(HTTP, activity, status, rows)
        | columns
        | {
            "status_code": code.cast(A_TEXT),
            "message": pc.binary_join_element_wise(pc.fill_null(method, "HTTP request"), url, " "),
            "app_name": constant("http", rows),
        }
    )


def _tls(events: EventColumns) -> dict[str, pa.Array]:
    """A TLS handshake."""
    rows, known_of = events.rows, events.tls()
    name = pc.struct_field(known_of, "sni")
    events.observed = (("tls.sni", A_HOST, name),)
    ends = events.ends("TLS handshake of ")
    return classified(
        NETWORK, constant(TRAFFIC, rows, AN_INT), constant(SUCCESS, rows, AN_INT), rows
    ) | {
        "message": pc.coalesce(pc.binary_join_element_wise(ends, name, " for "), ends),
        "app_name": constant("tls", rows),
        "tls": known_of,
    }


_OF: Mapping[str, Callable[[EventColumns], dict[str, pa.Array]]] = {
    "alert": _alert,
    "flow": _flow,
    "dns": _dns,
    "http": _http,
    "tls": _tls,
}
