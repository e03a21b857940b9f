"""Lines of Suricata's EVE decoded at once: which can be, and what they hold by field."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cache
from itertools import compress
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta, Raw
from msgspec.structs import astuple

from ingest.parsing.strict_json import plain_object
from ingest.parsing.vectorized import Mask, addresses, exact_times, single_keys, taken

_Port = Annotated[int, Meta(ge=0, le=65535)]
# Two of these are added up, and the sum must fit 64 bits with a sign.
_Count = Annotated[int, Meta(ge=0, le=2**61)]
_Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Any64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Status = Annotated[int, Meta(ge=0, le=999)]
_Ttl = Annotated[int, Meta(ge=0, le=2**32)]

_LONGEST = 64 * 1024
"""Bytes of a line read here; longer ones are read under a bound on their time."""
_NOTHING = pa.array(["", "-", "N/A", "n/a"])
"""How products write that there is no value; `Fields` leaves such a value where it is."""

TOP_FIELDS: dict[str, Any] = {
    "timestamp": str,
    "src_ip": str,
    "dest_ip": str,
    "proto": str,
    "src_port": _Port,
    "dest_port": _Port,
    "flow_id": _Whole,
    "community_id": str,
    "host": str,
    "app_proto": str,
    "direction": str,
    **dict.fromkeys(
        (
            *("in_iface", "pcap_filename", "pkt_src", "app_proto_ts", "app_proto_tc"),
            *("app_proto_orig", "app_proto_expected", "ts_progress", "tc_progress"),
            *("payload", "payload_printable", "packet"),
        ),
        str,
    ),
    **dict.fromkeys(
        ("pcap_cnt", "tx_id", "ip_v", "icmp_type", "icmp_code", "parent_id", "stream"), _Any64
    ),
    "tx_guessed": bool,
    **dict.fromkeys(("vlan", "metadata", "packet_info", "verdict", "vars"), Raw),
}
"""Fields that any event may have; one with another field is read line by line."""
_MUST = ("timestamp", "src_ip", "dest_ip", "proto")
_FLOW: Mapping[str, Any] = {
    **dict.fromkeys(("pkts_toserver", "pkts_toclient", "bytes_toserver", "bytes_toclient"), _Count),
    **dict.fromkeys(("start", "end", "state", "reason", "action", "src_ip", "dest_ip"), str),
    **dict.fromkeys(("src_port", "dest_port"), _Port),
    **dict.fromkeys(("age", "tx_cnt"), _Any64),
    "alerted": bool,
}
_HTTP_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            *("hostname", "url", "http_user_agent", "http_content_type", "http_refer"),
            *("http_method", "protocol", "redirect"),
        ),
        str,
    ),
    "status": _Status,
    "length": _Whole,
    "http_port": _Port,
}
_QUERY: Mapping[str, Any] = {"rrname": str, "rrtype": str}
_ANSWER: Mapping[str, Any] = {**_QUERY, "ttl": _Ttl, "rdata": str}


def _struct(name: str, fields: Mapping[str, Any], must: Iterable[str] = (), **more: Any) -> Any:
    """A struct of the fields, none of which may be null; those not in `must` may be missing."""
    return msgspec.defstruct(
        name,
        [(key, kind) if key in must else (key, kind, None) for key, kind in fields.items()],
        # An unknown field must leave the line to the slow path, which keeps it in `unmapped`.
        forbid_unknown_fields=True,
        gc=False,
        **more,
    )


_Flow, _Http = _struct("Flow", _FLOW), _struct("Http", _HTTP_FIELDS)
_DNS_FIELDS: Mapping[str, Any] = {
    **dict.fromkeys(("type", "rcode", "rrname", "rrtype", "rdata", "flags"), str),
    "ttl": _Ttl,
    "queries": list[_struct("Query", _QUERY)],  # type: ignore[misc]  # made at run time
    "answers": list[_struct("Answer", _ANSWER)],  # type: ignore[misc]  # made at run time
    "grouped": dict[str, list[str]],
    **dict.fromkeys(("version", "id", "tx_id", "opcode"), _Any64),
    **dict.fromkeys(("qr", "aa", "tc", "rd", "ra", "z"), bool),
    "authorities": Raw,
}
_Dns = _struct("Dns", _DNS_FIELDS)
INNER_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "flow": _FLOW,
    "http": _HTTP_FIELDS,
    "dns": _DNS_FIELDS,
}
_OWN: dict[str, dict[str, Any]] = {
    # Its own object comes first, and must be there.
    "alert": {"alert": Raw, "flow": _Flow, "http": _Http, "tls": Raw},
    "flow": {"flow": _Flow, "tcp": Raw},
    "dns": {"dns": _Dns},
    "http": {"http": _Http},
    "tls": {"tls": Raw},
}
"""Fields of each type of event besides those of `TOP_FIELDS`."""


@cache
def _decoder() -> msgspec.json.Decoder[Any]:
    shapes: Any = None
    for kind, own in _OWN.items():
        must = (*_MUST, next(iter(own)))
        fields = TOP_FIELDS | own
        # msgspec wants fields without a default before those that have one.
        ordered = {name: fields[name] for name in (*must, *fields)}
        shape = _struct(kind, ordered, must, tag_field="event_type", tag=kind)
        shapes = shape if shapes is None else shapes | shape
    return msgspec.json.Decoder(shapes)


def decoded_events(
    raws: Sequence[bytes | None], plain: Sequence[bool]
) -> Mapping[str, tuple[list[Any], list[int]]]:
    """By type the lines that decode, and which records they are; `plain`: without headers."""
    result: dict[str, tuple[list[Any], list[int]]] = {kind: ([], []) for kind in _OWN}
    decode = _decoder().decode
    for index, raw in enumerate(raws):
        if raw is None or not plain[index] or len(raw) >= _LONGEST:
            continue
        try:
            event = decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        structs, places = result[type(event).__name__]
        structs.append(event)
        places.append(index)
    return result


class EvePart:
    """Structs of one kind by field; a field that none of them has takes no room."""

    def __init__(self, structs: Sequence[Any], names: Sequence[str]) -> None:
        nothing = (None,) * len(names)
        tuples = [nothing if each is None else astuple(each) for each in structs]
        self.rows = len(tuples)
        self.keys = len(names) - np.fromiter((each.count(None) for each in tuples), np.int64)
        """How many fields each has."""
        self._lists = {
            name: values
            for name, values in zip(names, zip(*tuples, strict=True), strict=True)
            if values.count(None) < len(values)
        }
        self._nothing = (None,) * self.rows
        self._arrays: dict[tuple[str, pa.DataType], pa.Array] = {}

    def only(self, kept: Mask) -> EvePart:
        """Some of the structs."""
        fewer = copy(self)
        fewer.rows, fewer.keys = int(kept.sum()), self.keys[kept]
        fewer._lists = {name: tuple(compress(values, kept)) for name, values in self._lists.items()}
        fewer._nothing = (None,) * fewer.rows
        mask = pa.array(kept)
        fewer._arrays = {key: values.filter(mask) for key, values in self._arrays.items()}
        return fewer

    def __contains__(self, name: str) -> bool:
        return name in self._lists

    def values(self, name: str) -> Sequence[Any]:
        """A field's values as Python has them."""
        return self._lists.get(name, self._nothing)

    def array(self, name: str, kind: pa.DataType | None = None) -> pa.Array:
        """A field's values, as text if `kind` is not given."""
        kind = kind or pa.string()
        if (name, kind) not in self._arrays:
            self._arrays[name, kind] = pa.array(self.values(name), kind)
        return self._arrays[name, kind]

    def named(self, *names: str) -> Mask:
        """Where none of the texts says that there is no value."""
        good = np.ones(self.rows, np.bool_)
        for name in names:
            if name in self:
                good &= ~np.asarray(pc.is_in(self.array(name), _NOTHING))
        return good


class EveObjects:
    """JSON values that few lines write differently: each is read once."""

    def __init__(self, values: Sequence[Raw | None], kind: type = dict) -> None:
        codes: dict[bytes | None, int] = {None: 0}
        self._codes = [
            codes.setdefault(None if value is None else bytes(value), len(codes))
            for value in values
        ]
        self.distinct: list[Any] = [None]
        bad, keys = np.zeros(len(codes), np.bool_), np.zeros(len(codes), np.int64)
        for raw, code in codes.items():
            if raw is None:
                continue
            # As a field, as an array alone is no object.
            whole = plain_object(b'{"v":' + raw + b"}")
            bad[code] = whole is None or type(whole["v"]) is not kind
            keys[code] = raw.count(b'":')
            self.distinct.append(None if bad[code] or whole is None else whole["v"])
        indices = np.array(self._codes, np.int64)
        self.good: Mask = ~bad[indices]
        self.keys: npt.NDArray[np.int64] = keys[indices]
        """How often `":` stands in each."""

    def only(self, kept: Mask) -> EveObjects:
        """Those of some of the lines."""
        fewer = copy(self)
        fewer._codes = list(compress(self._codes, kept))
        fewer.good, fewer.keys = self.good[kept], self.keys[kept]
        return fewer

    def take(self, column: pa.Array) -> pa.Array:
        """For each line the value that belongs to its object; one a `distinct` in `column`."""
        return taken(column, pa.array(self._codes, pa.int32()))


class EveLines:
    """Lines of one type of event, and which of them can be read here."""

    def __init__(self, kind: str, structs: Sequence[Any], raws: Sequence[bytes]) -> None:
        own = _OWN[kind]
        names = [*_MUST, next(iter(own))]
        names += [name for name in (TOP_FIELDS | own) if name not in names]
        self.kind, self.rows = kind, len(structs)
        self.top = EvePart(structs, names)
        self.inner = {
            name: EvePart(self.top.values(name), list(INNER_FIELDS[name]))
            for name in own
            if name in INNER_FIELDS
        }
        self.objects = {
            f"{where}{name}": EveObjects(part.values(name), _LISTS.get(name, dict))
            for where, part, fields in (
                ("", self.top, TOP_FIELDS | own),
                *((f"{name}.", part, INNER_FIELDS[name]) for name, part in self.inner.items()),
            )
            for name, kind in fields.items()
            if kind is Raw and name in part
        }
        keys = self.top.keys + 1  # `event_type` is no field of the struct
        for more in (
            *(part.keys for part in self.inner.values()),
            *(values.keys for values in self.objects.values()),
        ):
            keys = keys + more
        self.time = exact_times(self.top.array("timestamp"))
        self.ips = [addresses(self.top.array(f"{end}_ip")) for end in _ENDS]
        self.answers: list[list[dict[str, Any]] | None] = []
        good = self.top.named("proto", "host", "community_id", "app_proto")
        for each in (self.time, *self.ips):
            good &= np.asarray(each.is_valid())
        for each in self.objects.values():
            good &= each.good
        if "flow" in self.inner:
            good &= _sound_flow(self.inner["flow"])
        if "http" in self.inner:
            good &= _sound_http(self.inner["http"], self.top.values("http"))
        if "dns" in self.inner:
            good &= _sound_dns(self.inner["dns"])
            self.answers, inside = _answers(self.inner["dns"])
            good &= inside >= 0
            keys = keys + inside
        self.good = good & single_keys(raws, keys)

    def only(self, kept: Mask) -> EveLines:
        """Some of the lines."""
        fewer = copy(self)
        fewer.rows, fewer.good = int(kept.sum()), self.good[kept]
        fewer.top = self.top.only(kept)
        fewer.inner = {name: part.only(kept) for name, part in self.inner.items()}
        fewer.objects = {name: objects.only(kept) for name, objects in self.objects.items()}
        mask = pa.array(kept)
        fewer.time, fewer.ips = self.time.filter(mask), [ip.filter(mask) for ip in self.ips]
        fewer.answers = list(compress(self.answers, kept))
        return fewer


_ENDS = ("src", "dest")
_LISTS = {"vlan": list, "authorities": list}


def known_lines(
    kind: str, structs: list[Any], places: list[int], raws: Sequence[Any]
) -> tuple[EveLines | None, list[int]]:
    """Of decoded lines those that hold what the row reader takes without a second look."""
    if not structs:
        return None, []
    lines = EveLines(kind, structs, [raws[place] for place in places])
    if lines.good.all():
        return lines, places
    places = list(compress(places, lines.good))
    return (lines.only(lines.good), places) if places else (None, [])


def _sound_flow(flow: EvePart) -> Mask:
    good = flow.named("state", "reason", "action")
    for name in ("start", "end"):
        if name in flow:
            times = exact_times(flow.array(name))
            good &= np.asarray(pc.equal(times.is_valid(), flow.array(name).is_valid()))
    for name in ("src_ip", "dest_ip"):
        if name in flow:
            ips = addresses(flow.array(name))
            good &= np.asarray(pc.equal(ips.is_valid(), flow.array(name).is_valid()))
    return good


def _sound_http(http: EvePart, objects: Sequence[Any]) -> Mask:
    good = http.named(
        *("hostname", "url", "http_user_agent", "http_content_type", "http_refer"),
        *("http_method", "protocol"),
    )
    # Of all else, such as a proxy's whole URL, the row reader finds the parts.
    whole = pc.and_(
        http.array("hostname").is_valid(),
        pc.fill_null(pc.starts_with(http.array("url"), "/"), False),
    )
    absent = np.fromiter((each is None for each in objects), np.bool_, http.rows)
    good &= absent | np.asarray(whole)
    return good


def _sound_dns(dns: EvePart) -> Mask:
    return dns.named("type", "rcode", "rrname", "rrtype", "rdata")


def _answers(
    dns: EvePart,
) -> tuple[list[list[dict[str, Any]] | None], npt.NDArray[np.int64]]:
    """The answers of each line, and how many keys queries and answers have; -1: cannot say."""
    names = ("rrname", "rrtype", "queries", "answers", "grouped", "rdata", "ttl")
    answers, keys = [], []
    for values in zip(*map(dns.values, names), strict=True):
        result, count = _answers_of(*values)
        answers.append(result)
        keys.append(count)
    return answers, np.array(keys, np.int64)


def _answers_of(
    name: str | None,
    kind: str | None,
    queries: list[Any] | None,
    answers: list[Any] | None,
    grouped: dict[str, list[str]] | None,
    rdata: str | None,
    ttl: int | None,
) -> tuple[list[dict[str, Any]] | None, int]:
    keys = 0
    if queries is not None:
        if len(queries) != 1 or name is not None or kind is not None:
            return None, -1
        question = queries[0]
        if (
            not question.rrname
            or not question.rrtype
            or _NONE.issuperset((question.rrname, question.rrtype))
        ):
            return None, -1
        keys += 2
    elif name is None and kind is not None:
        return None, -1
    results: list[dict[str, Any]] | None = None
    if grouped is not None:
        keys += len(grouped)
        results = [
            {"rdata": value, "type": name} for name, values in grouped.items() for value in values
        ] or None
    if answers is not None:
        results = []
        for answer in answers:
            if answer.rdata in _NONE or answer.rrtype in _NONE:
                return None, -1
            results.append({"rdata": answer.rdata, "type": answer.rrtype, "ttl": answer.ttl})
            keys += 4 - astuple(answer).count(None)
        if not results:
            return None, -1
    if rdata is not None:
        if queries is not None or results is not None or grouped is not None:
            return None, -1
        return [{"rdata": rdata, "type": kind, "ttl": ttl}], keys
    return (None, -1) if ttl is not None else (results, keys)


_NONE = frozenset({None, "", "-", "N/A", "n/a"})
