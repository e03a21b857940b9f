"""Lines of Zeek's JSON decoded at once: which can be, and what they hold by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import compress
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Meta
from msgspec.structs import astuple

from ingest.parsing.strict_json import LINE_BYTES
from ingest.parsing.vectorized import addresses, single_keys

Port = Annotated[int, Meta(ge=0, le=65535)]
# Two of these are added up, and the sum must fit 64 bits with a sign.
Count = Annotated[int, Meta(ge=0, le=2**61)]
Any64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e9)]
Ttl = Annotated[float, Meta(ge=0, lt=2**32 - 1)]
Epoch = Annotated[float, Meta(ge=0, lt=32503680000)]
"""Seconds from 1970 to the year 3000; others are read line by line."""

PlainName = Annotated[str, Meta(pattern=r"^[^\\]*$")]
"""A user without a domain; `DOMAIN\\user` is split line by line."""

_ENDS = {"orig_h": str, "orig_p": Port, "resp_h": str, "resp_p": Port}
COMMON = {
    "ts": Epoch,
    "uid": str,
    "_path": str,
    "@stream": str,
    "@system": str,
    "_system_name": str,
    "@proc": str,
}
MUST = ("ts", "orig_h", "resp_h")
Arrays = Mapping[str, pa.Array]
LOGS: Mapping[str, Mapping[str, Any]] = {
    "conn": {
        "proto": str,
        "service": str,
        "duration": _Seconds,
        "orig_bytes": Count,
        "resp_bytes": Count,
        "conn_state": str,
        "local_orig": bool,
        "local_resp": bool,
        "missed_bytes": Any64,
        "history": str,
        "orig_pkts": Count,
        "orig_ip_bytes": Any64,
        "resp_pkts": Count,
        "resp_ip_bytes": Any64,
        "orig_l2_addr": str,
        "resp_l2_addr": str,
        "community_id": str,
    },
    "dns": {
        "proto": str,
        "trans_id": Any64,
        "rtt": _Seconds,
        "query": str,
        "qclass": Any64,
        "qclass_name": str,
        "qtype": Any64,
        "qtype_name": str,
        "rcode": Port,
        "rcode_name": str,
        "AA": bool,
        "TC": bool,
        "RD": bool,
        "RA": bool,
        "Z": Any64,
        "answers": list[str],
        "TTLs": list[Ttl],
        "rejected": bool,
    },
    "http": {
        "trans_depth": Any64,
        "method": str,
        "host": str,
        "uri": str,
        "referrer": str,
        "version": str,
        "user_agent": str,
        "request_body_len": Count,
        "response_body_len": Count,
        "status_code": Port,
        "status_msg": str,
        "username": PlainName,
        "tags": list[str],
        "orig_fuids": list[str],
        "orig_mime_types": list[str],
        "resp_fuids": list[str],
        "resp_mime_types": list[str],
        "client_header_names": list[str],
    },
}
"""Fields of each log; one with another field is read line by line."""


def _arrow_kind(kind: Any) -> pa.DataType:
    kinds = {
        str: pa.string(),
        PlainName: pa.string(),
        bool: pa.bool_(),
        list[str]: pa.list_(pa.string()),
    }
    if kind in kinds:
        return kinds[kind]
    if kind == list[Ttl]:
        return pa.list_(pa.float64())
    return pa.float64() if kind in (_Seconds, Epoch) else pa.int64()


@cache
def shape_of(log: str, prefix: str) -> tuple[msgspec.json.Decoder[Any], dict[str, pa.DataType]]:
    """The decoder of a log's lines in one spelling, and its fields in the struct's order."""
    spelled = {name: prefix + name for name in _ENDS}
    kinds: dict[str, Any] = _ENDS | COMMON | dict(LOGS[log])
    # msgspec wants fields without a default before those that have one.
    ordered = [*MUST, *(name for name in kinds if name not in MUST)]
    fields: list[Any] = [
        # Names of their own, as `id.orig_h` and `@stream` are no names to Python.
        (f"f{index}", kinds[name]) if name in MUST else (f"f{index}", kinds[name], None)
        for index, name in enumerate(ordered)
    ]
    rename = {f"f{index}": spelled.get(name, name) for index, name in enumerate(ordered)}
    # An unknown field must leave the line to the slow path, which keeps it in `unmapped`.
    shape = msgspec.defstruct(
        f"Zeek_{log}", fields, rename=rename, forbid_unknown_fields=True, gc=False
    )
    return msgspec.json.Decoder(shape), {name: _arrow_kind(kinds[name]) for name in ordered}


class Lines:
    """Lines of one log that have been decoded, by column."""

    def __init__(self, rows: int, lists: Mapping[str, Sequence[Any]], arrays: Arrays) -> None:
        self.rows = rows
        self.arrays = arrays
        """Each field's values."""
        self._lists = lists
        self._kept: npt.NDArray[np.bool_] | None = None
        self._addresses: dict[str, pa.Array] = {}

    @classmethod
    def of(cls, rows: Sequence[Any], kinds: Mapping[str, pa.DataType]) -> Lines:
        """Rows as they were decoded; `kinds`: their fields, in order."""
        lists = dict(zip(kinds, zip(*map(astuple, rows), strict=True), strict=True))
        arrays = {name: pa.array(lists[name], kind) for name, kind in kinds.items()}
        return cls(len(rows), lists, arrays)

    def only(self, chosen: npt.NDArray[np.bool_]) -> Lines:
        """Some of the lines."""
        mask = pa.array(chosen)
        arrays = {name: array.filter(mask) for name, array in self.arrays.items()}
        fewer = Lines(int(chosen.sum()), self._lists, arrays)
        fewer._kept = chosen
        fewer._addresses = {name: values.filter(mask) for name, values in self._addresses.items()}
        return fewer

    def values(self, name: str) -> Sequence[Any]:
        """A field's values as Python has them."""
        values = self._lists[name]
        return values if self._kept is None else list(compress(values, self._kept))

    def addresses(self, name: str) -> pa.Array:
        """A field's addresses in their one spelling; null for what is none."""
        if name not in self._addresses:
            self._addresses[name] = addresses(self.arrays[name])
        return self._addresses[name]

    def fields(self) -> npt.NDArray[np.int64]:
        """How many fields each line has."""
        zeros = np.zeros(self.rows, np.int64)
        for array in self.arrays.values():
            zeros += 1 if array.null_count == 0 else np.asarray(array.is_valid()).astype(np.int64)
        return zeros


def decoded(
    raws: list[bytes | None], plain: npt.NDArray[np.bool_], decoder: msgspec.json.Decoder[Any]
) -> tuple[list[Any], list[int]]:
    """The lines that decode, and which records they are; `plain`: those without headers."""
    rows, places = [], []
    decode = decoder.decode
    for index, raw in enumerate(raws):
        if raw is None or not plain[index] or len(raw) > LINE_BYTES:
            continue
        try:
            rows.append(decode(raw))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            continue
        places.append(index)
    return rows, places


def sound(lines: Lines, raws: Sequence[bytes], log: str) -> npt.NDArray[np.bool_]:
    """Which lines hold what the line-by-line path would take without a second look."""
    good = single_keys(raws, lines.fields())
    for name in ("orig_h", "resp_h"):
        good &= np.asarray(lines.addresses(name).is_valid())
    for name in ("_path", "@stream"):
        stream = lines.arrays[name]
        good &= np.asarray(pc.fill_null(pc.equal(stream, log), True))
    if log == "dns":
        alone = pc.and_(lines.arrays["answers"].is_null(), lines.arrays["TTLs"].is_valid())
        good &= ~np.asarray(alone)
    if log == "http":
        types = lines.arrays["resp_mime_types"]
        good &= np.asarray(pc.fill_null(pc.equal(pc.list_value_length(types), 1), True))
        # The line-by-line path splits `DOMAIN\\user`.
        named = pc.match_substring(lines.arrays["username"], "\\")
        good &= ~np.asarray(pc.fill_null(named, False))
    return good


def moments(seconds: pa.Array) -> npt.NDArray[np.int64]:
    """Microseconds of seconds, rounded as `datetime` rounds them."""
    fraction, whole = np.modf(np.asarray(seconds))
    moments: npt.NDArray[np.int64] = whole.astype(np.int64) * 1_000_000
    moments += np.rint(fraction * 1e6).astype(np.int64)
    return moments
