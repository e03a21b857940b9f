"""What the Linux kernel logs of packets: LOG rules of iptables and nftables, ufw, firewalld.

The kernel's words are `KEY=value` (net/netfilter/nf_log_syslog.c); the text before
`IN=` is the rule's own prefix, and by its words it tells what the rule did
(https://help.ubuntu.com/community/UFW#Logging for ufw's). An ICMP error quotes the
packet it is about in brackets: those addresses are not the ends of this one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingest.parsing.ocsf import NETWORK, OBSERVED, device, kept, mac_address, metadata, unmapped
from ingest.parsing.source import Context, Event, Record, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.parsing.syslog import Line, SyslogSource, one_line, read_syslog
from ingest.parsing.timestamps import Stamp, stamp_epoch
from ingest.sources.shared.device_header import read_header
from ingest.sources.shared.firewall import (
    INBOUND,
    OPEN,
    OUTBOUND,
    REFUSE,
    TRAFFIC,
    Fields,
    connection,
    endpoint,
    ends_seen,
    firewall_disposition,
    located,
    traffic,
)

_PRODUCT: Mapping[str, str] = {"name": "netfilter", "vendor_name": "Linux"}
_PROGRAMS = frozenset({"kernel", "ulogd", "nfnetlink", "firewall"})
_LOGGED = 17
UPTIME = re.compile(r"\[ *(\d+\.\d+)\] ?", re.ASCII)
# A rule's prefix has at most 128 characters; the kernel bounds it.
_BODY = re.compile(r"(?P<prefix>.{0,128}?)(?P<body>IN=\S* OUT=\S*(?: .*)?)", re.DOTALL)
# Whoever plugs a device in chooses its name, which may read like a packet.
_DEVICE = re.compile(
    r"(?:usb|scsi|sd|hid-[\w-]+) [\w.:-]+: |input: .* as /devices/|Bluetooth: ",
    re.ASCII | re.DOTALL,
)
DENIES = re.compile(
    r"(?<![a-z])(?:block|drop|den(?:y|ied)|reject|discard|banned|blacklist)(?:p?ed|s)?(?![a-z])",
    re.IGNORECASE,
)
ALLOWS = re.compile(r"(?<![a-z])(?:allow|accept|pass|permit)(?:t?ed|s)?(?![a-z])", re.IGNORECASE)
# UniFi and VyOS: a rule set, a number and A(ccept), D(rop) or R(eject).
VYATTA = re.compile(r"\S+-(?:default|\d+)-([ADR])", re.ASCII)
_FLAGS = frozenset({"SYN", "ACK", "FIN", "RST", "PSH", "URG", "ECE", "CWR"})
OCTETS = re.compile(r"[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2})*", re.ASCII)


def allowed_by(prefix: str) -> bool | None:
    """Whether the rule with this prefix let the packet pass; None where the prefix tells nothing.

    Deny wins where a prefix has words of both kinds, such as `ACCEPT limit, else DROP`.
    """
    vyatta = VYATTA.fullmatch(prefix)
    if vyatta:
        return vyatta[1] == "A"
    if DENIES.search(prefix):
        return False
    return True if ALLOWS.search(prefix) else None


def _fields(body: str) -> tuple[Fields, list[str], str | None]:
    """The values, the TCP flags, and the packet that an ICMP error quotes.

    A key that stands twice (`LEN` and `ID` of IP, then of UDP or ICMP) has its
    second value under `<PROTO>_<key>`; the first is never replaced.
    """
    start = body.find(" [")
    quoted = body[start + 1 :].strip() if start >= 0 else None
    fields, flags, bare = Fields(), [], []
    for word in (body[:start] if start >= 0 else body).split():
        key, equals, value = word.partition("=")
        if equals:
            if key in fields:
                key = f"{fields.get('PROTO', '')}_{key}".lower()
            fields.setdefault(key, value)
        elif word in _FLAGS:
            flags.append(word)
        else:
            bare.append(word)
    if bare:
        fields["flags"] = " ".join(bare)
    return fields, flags, quoted


def _macs(fields: Fields) -> tuple[str | None, str | None]:
    """The hardware addresses of source and destination: `MAC` is destination, source, type."""
    text = fields.get("MAC", "")
    octets = text.split(":") if OCTETS.fullmatch(text) else []
    # Other links than Ethernet have other lengths, and no addresses at these places.
    if len(octets) >= 12:
        fields.pop("MAC")
        fields.keep("ether_type", ":".join(octets[12:]))
        target, source = mac_address(":".join(octets[:6])), mac_address(":".join(octets[6:12]))
    else:
        source, target = None, None
    return fields.mac("MACSRC") or source, fields.mac("MACDST") or target


def _packet(text: str) -> Mapping[str, Any] | None:
    """The columns of a packet that was logged; None where `text` speaks of none."""
    uptime = UPTIME.match(text)
    start = uptime.end() if uptime else 0
    match = _BODY.fullmatch(text, start)
    if match is None or _DEVICE.match(text, start):
        return None
    fields, flags, quoted = _fields(match["body"])
    prefix = match["prefix"].strip()
    rule = prefix.strip("[]: -") or None
    allowed = allowed_by(prefix.strip("[]: "))
    source_mac, target_mac = _macs(fields)
    arrived_by, left_by = fields.text("IN"), fields.text("OUT")
    source = endpoint(
        ip=fields.ip("SRC"), port=fields.port("SPT"), mac=source_mac, interface_name=arrived_by
    )
    target = endpoint(
        ip=fields.ip("DST"), port=fields.port("DPT"), mac=target_mac, interface_name=left_by
    )
    spoken, size = fields.text("PROTO"), fields.number("LEN")
    # With both interfaces the packet was forwarded: it neither came to this machine nor left it.
    way = {} if arrived_by and left_by else INBOUND if arrived_by else OUTBOUND if left_by else {}
    # The second packet of a handshake has both flags and opens nothing.
    new = "SYN" in flags and "ACK" not in flags
    uid, group = fields.text("UID"), fields.text("GID")
    verdict = firewall_disposition(allowed) or {"action_id": OBSERVED, "disposition_id": _LOGGED}
    word = {True: "allowed", False: "denied", None: "logged"}[allowed]
    ends = f"{(source or {}).get('ip', '?')} to {(target or {}).get('ip', '?')}"
    return {
        "activity_id": REFUSE if allowed is False else OPEN if allowed and new else TRAFFIC,
        **verdict,
        "message": f"{spoken or 'IP'} packet from {ends} {word}" + (f" ({rule})" if rule else ""),
        "src_endpoint": source,
        "dst_endpoint": target,
        "connection_info": connection(
            spoken,
            (source or {}).get("ip"),
            flag_history=" ".join(flags) or None,
            **way,
        ),
        # One line is one packet, as long as its IP header says.
        "traffic": traffic(size, total=size, packets=1, packets_out=1),
        "firewall_rule": {"name": rule} if rule else None,
        "actor": {"user": kept(uid=uid, groups=[group] if group else None)} if uid else None,
        "observables": ends_seen(source, target),
        "rest": fields.left() | kept(quoted_packet=quoted, uptime=uptime[1] if uptime else None),
    }


def _to_event(line: Line, context: Context) -> Event | None:
    """A packet; None for what else the kernel says."""
    packet_fields = _packet(line.text)
    if packet_fields is None:
        return None
    columns = dict(packet_fields)
    rest, activity = columns.pop("rest"), columns.pop("activity_id")
    return located(
        NETWORK,
        activity,
        line.stamp,
        metadata=metadata(_PRODUCT, line.stamp, log_provider=line.program),
        device=device(line.host),
        **columns,
        unmapped=unmapped(line.rest | rest | kept(pid=line.pid)),
    )


def _framed(raw: bytes, context: Context) -> Line:
    """The line, in any framing that a kernel's messages come in."""
    if raw[:1] == b"{":
        return _of_journal(raw, context)
    text = one_line(raw)
    try:
        line = read_syslog(raw, context)
    except Unreadable:
        start = re.search(r"(?:kernel: ?)|\[ *\d+\.\d+\]|(?<!\S)IN=", text, re.ASCII)
        if start is None:
            raise
        header = read_header(text[: start.start()], context)
        stamp = header.stamp or Stamp.missing(context.record.received_at, None)
        body = text[start.end() if start[0][:1] == "k" else start.start() :]
        return Line(stamp, header.host, "kernel", None, body.strip(), header.rest)
    if line.program not in _PROGRAMS and line.pid is None and _unnamed(line):
        # No program is named: what stood in its place is the rule's prefix.
        words = f"{line.program}: {line.text}" if line.program else line.text
        return line._replace(program="kernel", text=words)
    return line


def _unnamed(line: Line) -> bool:
    """Whether the words are the kernel's own, with no program or a prefix in its place."""
    return line.text.startswith("IN=") or (line.program is None and " IN=" in f" {line.text}"[:130])


def _of_journal(raw: bytes, context: Context) -> Line:
    """A message as `journalctl -o json` gives it."""
    fields = Fields(decode_object(raw))
    words = fields.text("MESSAGE")
    if words is None:
        raise Unreadable("no 'MESSAGE' in the object")
    times = [fields.pop(name, None) for name in ("__REALTIME_TIMESTAMP", "_SOURCE_TIMESTAMP")]
    spelled = next((time for time in times if time is not None), None)
    stamp = stamp_epoch(spelled, context.record.received_at)
    host = fields.text("_HOSTNAME") or context.host
    return Line(stamp, host, fields.text("SYSLOG_IDENTIFIER"), None, words, fields.left())


@dataclass(frozen=True)
class Netfilter(SyslogSource):
    """Packets that the Linux kernel logged."""

    def parse(self, record: Record, context: Context) -> list[Event]:
        return [self.read(_framed(record.raw, context), context)]


SOURCES = (Netfilter(name="netfilter", programs=_PROGRAMS, product=_PRODUCT, reader=_to_event),)
