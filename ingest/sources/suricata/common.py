"""What Suricata's EVE events of several types have in common.

https://docs.suricata.io/en/latest/output/eve/eve-json-format.html
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import A_HOST, A_URL, AN_AGENT, OTHER, device, kept, metadata, unmapped
from ingest.parsing.source import Context
from ingest.parsing.strict_json import encode
from ingest.parsing.timestamps import EPOCH, Stamp, stamp_iso
from ingest.sources.shared.firewall import Fields, code, connection, ends_seen, forwarded

PRODUCT: Mapping[str, str] = {"name": "Suricata", "vendor_name": "OISF"}
_QUERY, _RESPONSE, _TRAFFIC = 1, 2, 6
_UTC = ZoneInfo("UTC")
_RCODES = """
    NOERROR FORMERR SERVFAIL NXDOMAIN NOTIMP REFUSED YXDOMAIN YXRRSET NXRRSET NOTAUTH NOTZONE
"""
_RCODE_NUMBERS: Mapping[str, int] = MappingProxyType(
    {name: number for number, name in enumerate(_RCODES.split())}
)


@dataclass(slots=True)
class Entry:
    """What every EVE event has; `fields` is what has not been used yet, `detail` its own object."""

    kind: str
    fields: Fields
    detail: Fields
    stamp: Stamp
    context: Context
    source: dict[str, Any] | None
    target: dict[str, Any] | None
    protocol: str | None
    sensor: str | None
    flow_id: str | None
    links: dict[str, Any] = field(default_factory=dict)

    def common(self, **about: str | None) -> dict[str, Any]:
        """The columns that all types fill alike."""
        return {
            "metadata": metadata(
                PRODUCT, self.stamp, log_name=self.kind, correlation_uid=self.flow_id, **about
            ),
            "src_endpoint": self.source,
            "dst_endpoint": self.target,
            "device": device(self.sensor),
        }

    def connection(self) -> dict[str, Any] | None:
        """The connection."""
        ip = (self.source or {}).get("ip")
        return connection(self.protocol, ip, uid=self.flow_id, **self.links)

    def rest(self) -> str | None:
        """What found no column, what is left of the type's own object under its name."""
        self.fields.keep(self.kind, self.detail.left())
        return unmapped(self.fields.left())

    def seen(self, *more: tuple[str, int, Any]) -> list[dict[str, Any]] | None:
        """The observables: both ends and `more`."""
        return ends_seen(self.source, self.target, None, *more)

    def ends(self) -> str:
        """Both ends, for a message."""
        source, target = self.source or {}, self.target or {}
        return f"{source.get('ip', '?')} to {target.get('ip', '?')}"


def strings(value: object) -> list[str] | None:
    """A list of nothing but text, or text as a list of one; None for all else."""
    if type(value) is str and value:
        return [value]
    if type(value) is list and value and all(type(element) is str for element in value):
        return value
    return None


def taken(fields: Fields, name: str) -> list[str] | None:
    """Take the strings `name`, where they are nothing else."""
    result = strings(fields.get(name))
    if result is not None:
        del fields[name]
    return result


# -- parts that alerts carry too ---------------------------------------------------------------


def read_http(fields: Fields) -> dict[str, Any]:
    """The columns of an `http` object."""
    method, host = fields.text("http_method"), fields.text("hostname")
    uri, status = fields.text("url"), fields.number("status", most=999)
    request = kept(
        http_method=method,
        version=fields.text("protocol"),
        user_agent=fields.text("http_user_agent"),
        referrer=fields.text("http_refer"),
        url=_url(host, uri, fields.port("http_port")),
        x_forwarded_for=forwarded(fields, "xff"),
    )
    response = None
    if status is not None:
        response = kept(
            code=status,
            content_type=fields.text("http_content_type"),
            length=fields.number("length"),
        )
    return kept(http_request=request or None, http_response=response)


def _url(host: str | None, uri: str | None, port: int | None) -> dict[str, Any] | None:
    if host is None and uri is None:
        return None
    scheme, between, _ = (uri or "").partition("://")
    whole = bool(between) and scheme.isalpha()
    path, _, query = ("" if whole else uri or "").partition("?")
    return kept(
        url_string=uri if whole or not host else f"http://{host}{uri or '/'}",
        hostname=host,
        path=path or None,
        query_string=query or None,
        port=port,
        # Suricata sees the request inside: what it can read is not encrypted.
        scheme=scheme.lower() if whole else "http",
    )


def http_seen(columns: Mapping[str, Any]) -> tuple[tuple[str, int, Any], ...]:
    """The observables of a request."""
    request = columns.get("http_request") or {}
    url = request.get("url") or {}
    return (
        ("http_request.url.hostname", A_HOST, url.get("hostname")),
        ("http_request.url.url_string", A_URL, url.get("url_string")),
        ("http_request.user_agent", AN_AGENT, request.get("user_agent")),
    )


def read_tls(fields: Fields, context: Context) -> dict[str, Any]:
    """The columns of a `tls` object."""
    prints = fields.text("fingerprint")
    received_at = context.record.received_at
    subject = fields.text("subject")
    times = {}
    for name, key in (("created_time", "notbefore"), ("expiration_time", "notafter")):
        # Times in a certificate are UTC, also where the text does not say so.
        stamp = stamp_iso(str(fields.get(key)), _UTC, received_at)
        if stamp.quality != "received":
            fields.pop(key)
            times[name] = stamp.time
    certificate = kept(
        subject=subject,
        issuer=fields.text("issuerdn"),
        serial_number=fields.text("serial"),
        fingerprints=[{"algorithm": "SHA-1", "value": prints}] if prints else None,
        **times,
    )
    hashes = {}
    for name in ("ja3", "ja3s"):
        inner = fields.child(name)
        hashes[f"{name}_hash"] = inner.text("hash")
        fields.keep(name, inner.left())
    return kept(
        version=fields.text("version"),
        sni=fields.text("sni"),
        certificate=certificate or None,
        **hashes,
    )


def read_file(fields: Fields) -> dict[str, Any]:
    """The file of a `fileinfo` object."""
    hashes = [
        {"algorithm": name, "value": value}
        for name, key in (("MD5", "md5"), ("SHA-1", "sha1"), ("SHA-256", "sha256"))
        if (value := fields.text(key))
    ]
    path = fields.text("filename")
    return kept(
        path=path,
        name=path and (path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or path),
        size=fields.number("size"),
        hashes=hashes or None,
    )


def read_dns(fields: Fields) -> dict[str, Any]:
    """The columns of a `dns` object, in any of its three versions."""
    queries = fields.get("queries", fields.get("query"))
    question = Fields()
    if type(queries) is list and len(queries) == 1 and type(queries[0]) is dict:
        question = Fields(queries[0])
        name = "queries" if "queries" in fields else "query"
        del fields[name]
    hostname = question.text("rrname") or fields.text("rrname")
    kind = question.text("rrtype") or fields.text("rrtype")
    fields.keep("query", question.left())
    if hostname is None:
        # OCSF requires a question's name, and that of the root is empty: its type stays in
        # `unmapped`.
        fields.keep("rrtype", kind)
    rcode = fields.text("rcode")
    return kept(
        query=None if hostname is None else {"hostname": hostname, "type": kind},
        answers=_answers(fields, kind),
        rcode=rcode,
        rcode_id=code_of(rcode),
    )


def code_of(rcode: str | None) -> int | None:
    """The number of a response code's name."""
    number = _RCODE_NUMBERS.get(rcode or "")
    # A code that Suricata has no name for stands there as its number.
    if rcode and number is None:
        return code(int(rcode)) if rcode.isdecimal() and len(rcode) < 6 else OTHER
    return number


def _answers(fields: Fields, kind: str | None) -> list[dict[str, Any]] | None:
    answers = fields.get("answers")
    if type(answers) is list and answers and all(type(answer) is dict for answer in answers):
        del fields["answers"]
        fields.pop("grouped", None)  # the same values once more, by type
        return [_answer(Fields(answer)) for answer in answers]
    grouped = fields.get("grouped")
    if type(grouped) is dict and all(type(values) is list for values in grouped.values()):
        del fields["grouped"]
        return [
            {"rdata": answer if type(answer) is str else encode(answer), "type": name}
            for name, values in grouped.items()
            for answer in values
        ] or None
    rdata = fields.text("rdata")  # version 1: one event an answer
    if rdata is None:
        return None
    return [kept(rdata=rdata, type=kind, ttl=fields.number("ttl", most=2**32))]


def _answer(one: Fields) -> dict[str, Any]:
    """An answer; its name, and data that are no text, stand in `rdata` as JSON."""
    kind, ttl = one.text("rrtype"), one.number("ttl", most=2**32)
    rdata = one.text("rdata")
    if rdata is None:
        data = {key: value for key, value in one.items() if key != "rrname"}
        rdata = encode(data) if data else one.text("rrname") or ""
    return kept(rdata=rdata, type=kind, ttl=ttl)


def seconds_between(start: Stamp, end: Stamp) -> int | None:
    """Milliseconds from one time to a later one."""
    # Each rounded by itself, so that the span is that between the two times as they are shown.
    milliseconds = round((end.time - EPOCH).total_seconds() * 1000) - round(
        (start.time - EPOCH).total_seconds() * 1000
    )
    # Where the clock stepped back in between, the span says nothing.
    return milliseconds if milliseconds >= 0 else None
