"""The status file of an OpenVPN server, in the three versions of `--status-version`.

https://openvpn.net/community-resources/reference-manual-for-openvpn-2-6/. Each client that it
lists is an event: that its tunnel is open, since when, and what passed through it.
"""

from __future__ import annotations

import re
from typing import Any

from ingest.parsing.ocsf import BASE, OTHER, SUCCESS, TUNNEL, address, kept
from ingest.parsing.source import Context, Event, Unreadable
from ingest.parsing.syslog import Line, one_line
from ingest.parsing.timestamps import Stamp, stamp_epoch
from ingest.sources.shared.daemon_source import daemon_event
from ingest.sources.shared.daemon_timestamps import read_clock
from ingest.sources.shared.vpn import PRODUCT, Peer

STATUS = re.compile(
    rb"\s*(?:OpenVPN CLIENT LIST|OpenVPN STATISTICS|(?:TITLE|TIME)[,\t]|CLIENT_LIST[,\t]|"
    rb"ROUTING_TABLE[,\t]|HEADER[,\t]|GLOBAL_STATS[,\t])"
)
V1 = ("Common Name", "Real Address", "Bytes Received", "Bytes Sent", "Connected Since")
V2 = (
    *("Common Name", "Real Address", "Virtual Address", "Virtual IPv6 Address"),
    *("Bytes Received", "Bytes Sent", "Connected Since", "Connected Since (time_t)"),
    *("Username", "Client ID", "Peer ID", "Data Channel Cipher"),
)
OLD_V2 = tuple(name for name in V2 if name != "Virtual IPv6 Address")
_REAL = re.compile(
    r"(?:(?:udp|tcp)[46]?(?:-server|-client)?:)?(?:\[AF_\w+\])?"
    r"\[?(?P<ip>[0-9A-Fa-f.:]{2,45}?)\]?(?::(?P<port>\d{1,5}))?"
)


def is_status(first: bytes) -> bool:
    """Whether a file that begins with this line is a status file."""
    return STATUS.match(first) is not None


def status_events(raw: bytes, context: Context) -> list[Event]:
    """The events of a status file, or of a line of one."""
    lines = [one_line(line) for line in raw.split(b"\n") if line.strip()]
    received_at, zone = context.record.received_at, context.zone(context.host)
    written = Stamp.missing(received_at, None)
    names: dict[str, tuple[str, ...]] = {}
    events: list[Event] = []
    facts: dict[str, Any] = {}
    section = ""
    for text in lines:
        # Version 3 has tabs, the others commas.
        cells = text.split("\t" if "\t" in text else ",")
        kind = cells[0]
        if kind in ("Updated", "TIME") and len(cells) > 1:
            written = read_clock(cells[-1] if kind == "TIME" else cells[1], zone, received_at)
        elif kind == "HEADER" and len(cells) > 2:
            names[cells[1]] = tuple(cells[2:])
        elif text.startswith("OpenVPN ") or kind in ("ROUTING TABLE", "GLOBAL STATS"):
            section = text
        elif kind == "CLIENT_LIST":
            # The file's own header names the columns; without it the known sets are tried.
            columns = names.get("CLIENT_LIST") or (V2 if len(cells) - 1 >= len(V2) else OLD_V2)
            named = dict(zip(columns, cells[1:], strict=False))
            beyond = cells[1 + len(columns) :]
            named |= {"further": ",".join(beyond)} if beyond else {}
            events.append(_client(named, written, context))
        # Version 1 has no word before a client: only the section and the number of cells tell.
        elif section == "OpenVPN CLIENT LIST" and len(cells) == len(V1) and cells != list(V1):
            events.append(_client(dict(zip(V1, cells, strict=True)), written, context))
        elif kind not in ("END", *V1[:1], "Virtual Address"):
            facts.setdefault(section or kind, []).append(text)
    if not events and not facts and not section:
        raise Unreadable("no line of an OpenVPN status file at byte 0")
    line = Line(written, context.host, None, None, f"OpenVPN status, {len(events)} clients", {})
    if facts or not events:
        events.append(
            daemon_event(line, PRODUCT, BASE, 0, rest=facts, fields={"log_name": "status"})
        )
    return events


def _client(cells: dict[str, str], written: Stamp, context: Context) -> Event:
    take = cells.pop
    name, real = take("Common Name", ""), take("Real Address", "")
    since, epoch = take("Connected Since", ""), take("Connected Since (time_t)", "")
    match = _REAL.fullmatch(real)
    rest: dict[str, Any] = kept(real_address=None if match else real)
    peer = Peer(name or None, match["ip"] if match else None, match["port"] if match else None)
    virtual = cells.get("Virtual Address", "")
    got, sent = take("Bytes Received", ""), take("Bytes Sent", "")
    user = cells.get("Username", "")
    began = stamp_epoch(epoch, written.time)
    # Version 1 writes the time only in the server's zone.
    if began.quality == "received":
        began = read_clock(since, context.zone(context.host), context.record.received_at)
    counted = got.isdecimal() and sent.isdecimal() and max(len(got), len(sent)) < 19
    traffic = None
    if counted:
        # The server received what the client, the source, sent out.
        traffic = {"bytes_out": int(got), "bytes_in": int(sent), "bytes": int(got) + int(sent)}
    else:
        rest |= {"Bytes Received": got, "Bytes Sent": sent}
    start_known = began.quality != "received"
    rest |= {key: value for key, value in cells.items() if value and value != "UNDEF"}
    if not start_known and since:
        rest["Connected Since"] = since
    more: dict[str, Any] = {"session": {"is_vpn": True}}
    if address(virtual):
        more["tunnel_interface"] = {"ip": address(virtual), "type_id": 4, "name": "tun"}
    line = Line(written, context.host, None, None, f"{name or 'a client'} is connected", {})
    return daemon_event(
        line,
        PRODUCT,
        TUNNEL,
        OTHER,
        activity_name="Status",
        status_id=SUCCESS,
        src_endpoint=peer.source(rest),
        dst_endpoint={"hostname": context.host} if context.host else None,
        user={"name": user if user and user != "UNDEF" else name} if name else None,
        traffic=traffic,
        start_time=began.time if start_known else None,
        duration=_since(began, written) if start_known else None,
        app_name="openvpn",
        rest=rest | kept(common_name=name or None),
        more=more,
        fields={"log_name": "status"},
    )


def _since(began: Stamp, written: Stamp) -> int | None:
    span = written.time - began.time
    return int(span.total_seconds() * 1000) if span.total_seconds() >= 0 else None
