"""Zeek's logs of what it noticed: notice, weird, analyzer, intel, signatures, software.

https://docs.zeek.org/en/master/frameworks/notice.html . A notice, a match of an intelligence
item and a signature are Detection Findings. A weird or a protocol that was not what it
seemed is about traffic and stays Network Activity.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ingest.parsing.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_MAIL,
    A_URL,
    A_USER,
    ALLOWED,
    AN_IP,
    DENIED,
    FINDING,
    HIGH,
    INFORMATIONAL,
    LOW,
    MEDIUM,
    NETWORK,
    SOFTWARE,
    SUCCESS,
    address,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.zeek.row import Row
from ingest.sources.zeek.traffic import other

_CREATE, _TRAFFIC, _COLLECT = 1, 6, 2
_RULE = 1
LOUD = frozenset({"Notice::ACTION_ALARM", "Notice::ACTION_PAGE", "Notice::ACTION_DROP"})
"""Actions of a notice that whoever runs Zeek keeps for what needs somebody at once."""
_NOTIFY_ACTIONS = frozenset({"Notice::ACTION_EMAIL", "Notice::ACTION_EMAIL_ADMIN"})
# Beginnings: `bruteforc` stands in bruteforce and in bruteforcing.
ATTACKS = ("attack", "exploit", "scan", "guess", "bruteforc", "inject", "cve", "malware", "trojan")


def _finding(
    row: Row,
    name: str,
    title: str,
    desc: str | None,
    severity: int,
    seen: tuple[tuple[str, int, Any], ...] = (),
    about: Mapping[str, Any] = MappingProxyType({}),
    decided: tuple[int, int] | None = None,
    message: str | None = None,
    **columns: Any,
) -> Event:
    """A Detection Finding; Zeek has no number for one, so it is made of what tells it apart."""
    what = row.uid or row.src.get("ip") or ""
    time = f"{row.stamp.time:%Y-%m-%dT%H:%M:%S.%fZ}"
    info = {
        "uid": f"{name}/{what}/{time}",
        "title": title,
        "desc": desc,
        "created_time": row.stamp.time,
        "analytic": {"uid": name, "name": name, "type_id": _RULE},
    }
    return row.event(
        FINDING,
        _CREATE,
        severity_id=severity,
        message=message or desc or title,
        finding_info=info | dict(about),
        action_id=decided[0] if decided else None,
        disposition_id=decided[1] if decided else None,
        seen=seen,
        **columns,
    )


def notice(row: Row) -> Event:
    """A notice: `note` is its kind, `msg` its words."""
    note = row.text("note") or "Notice"
    message, sub = row.text("msg"), row.fields.get("sub")
    # A notice that is about no connection has only `src`, `dst` and `p`.
    if not row.src:
        row.src = row.end("src", "id.orig_p")
    else:
        _drop_same(row, "src", row.src.get("ip"))
    if not row.dst:
        row.dst = row.end("dst", "p")
    else:
        _drop_same(row, "dst", row.dst.get("ip"))
        _drop_same(row, "p", row.dst.get("port"))
    severity = _notice_severity(note, row.fields.get("actions"))
    dropped = row.fields.get("dropped") is True
    kept_words = f"{message}: {sub}" if message and type(sub) is str and sub else message
    return _finding(
        row,
        note,
        note,
        kept_words,
        severity,
        # Zeek's own words alone, as rules ask for them.
        message=message,
        code=note,
        protocol=row.text("proto"),
        about={"types": [note.partition("::")[0]]} if "::" in note else {},
        decided=(DENIED, 6) if dropped else None,
    )


def _drop_same(row: Row, key: str, value: object) -> None:
    """A field that repeats what an end of the connection says is not said again."""
    fields = row.fields.get(key)
    if type(fields) is str and address(fields) is not None:
        fields = address(fields)
    if fields is not None and fields == value:
        del row.fields[key]


def _notice_severity(note: str, actions: object) -> int:
    taken = (
        {action for action in actions if type(action) is str} if type(actions) is list else set()
    )
    if taken & LOUD:
        return HIGH
    # A notice has no level of its own: its name and Zeek's action are all there is.
    attack = any(word in note.lower() for word in ATTACKS)
    return MEDIUM if attack or taken & _NOTIFY_ACTIONS else LOW


def weird(row: Row) -> Event:
    """Traffic that breaks the rules of its protocol, more often by mistake than by malice."""
    name, addl = row.text("name"), row.fields.get("addl")
    message = f"{name}: {addl}" if name and type(addl) is str and addl else name
    return row.event(
        NETWORK,
        _TRAFFIC,
        severity_id=LOW if row.fields.get("notice") is True else INFORMATIONAL,
        code=name,
        message=message,
    )


def analyzer(row: Row) -> Event:
    """A protocol that was not what it seemed: `dpd`, since Zeek 5.1 `analyzer`."""
    reason = row.text("failure_reason")
    name = row.text("analyzer") or row.text("analyzer_name")
    return row.event(
        NETWORK,
        _TRAFFIC,
        code=row.text("cause"),
        message=f"{name}: {reason}" if name and reason else reason,
        status_detail=reason,
        app_name=name,
        protocol=row.text("proto"),
    )


INDICATORS: Mapping[str, int] = MappingProxyType(
    {
        "Intel::ADDR": AN_IP,
        "Intel::DOMAIN": A_HOST,
        "Intel::URL": A_URL,
        "Intel::EMAIL": A_MAIL,
        "Intel::USER_NAME": A_USER,
        "Intel::FILE_HASH": A_HASH,
        "Intel::CERT_HASH": A_HASH,
        "Intel::PUBKEY_HASH": A_HASH,
        "Intel::FILE_NAME": A_FILE,
    }
)


def intel(row: Row) -> Event:
    """Something seen that is on a list of what is known to be bad."""
    indicator = row.text("seen.indicator") or "indicator"
    kind, where = row.text("seen.indicator_type"), row.text("seen.where")
    lists = row.texts("sources")
    of = INDICATORS.get(kind or "")
    return _finding(
        row,
        f"Intel/{indicator}",
        f"Intelligence match: {indicator}",
        f"{indicator} ({kind}) seen in {where}" if kind and where else None,
        MEDIUM,
        () if of is None else (("finding_info", of, indicator),),
        {
            "types": kept_list(kind, where),
            "analytic": {"uid": indicator, "name": ", ".join(lists) or indicator, "type_id": 9},
        },
        code=kind,
    )


def kept_list(*values: str | None) -> list[str] | None:
    """The values there are."""
    return [value for value in values if value] or None


def signatures(row: Row) -> Event:
    """A signature that matched bytes of a connection."""
    row.src = row.src or row.end("src_addr", "src_port")
    row.dst = row.dst or row.end("dst_addr", "dst_port")
    name = row.text("sig_id") or "signature"
    return _finding(
        row,
        name,
        name,
        row.text("event_msg"),
        MEDIUM,
        code=row.text("note"),
    )


# Suricata counts the other way round: 1 is the gravest.
SURICATA = MappingProxyType({1: HIGH, 2: MEDIUM, 3: LOW})


def suricata(row: Row) -> Event:
    """An alert of Suricata as Corelight's sensors join it to Zeek's logs."""
    title = row.text("alert.signature") or "Suricata alert"
    number, category = row.count("alert.signature_id"), row.text("alert.category")
    level, action = row.count("alert.severity", 255), row.text("alert.action")
    decided = {"allowed": (ALLOWED, 1), "blocked": (DENIED, 2)}.get(action or "")
    rule = {"uid": None if number is None else str(number), "name": title, "type_id": _RULE}
    return _finding(
        row,
        f"suricata/{number}",
        title,
        None,
        SURICATA.get(level or 0, INFORMATIONAL),
        about={"types": kept_list(category), "analytic": rule},
        code=rule["uid"],
        protocol=(row.text("proto") or "").lower() or None,
        decided=decided,
    )


# -- software ----------------------------------------------------------------------------------

_VERSION = ("major", "minor", "minor2", "minor3")


def software(row: Row) -> Event:
    """A program seen at work on a host."""
    host = row.ip("host")
    if host is None:
        return other(row)
    name = row.text("name")
    whole = row.fields.get("unparsed_version")
    numbers = [row.count(f"version.{part}") for part in _VERSION]
    version = ".".join(str(number) for number in numbers if number is not None)
    addl = row.text("version.addl")
    if addl:
        version = f"{version}-{addl}" if version else addl
    url, kind = row.text("url"), row.fields.get("software_type")
    if row.sensor is not None:
        # The device of this class is the host that runs the program, not the sensor that saw it.
        row.fields["_system_name"], row.sensor = row.sensor, None
    product = kept(name=name, version=version or None, url_string=url) if name else None
    return row.event(
        SOFTWARE,
        _COLLECT,
        status_id=SUCCESS,
        device={"ip": host, "type_id": 0},
        message=f"{name or kind} on {host}" + (f": {whole}" if whole else ""),
        more=kept(product=product),
        seen=(("device.ip", AN_IP, host),),
    )
