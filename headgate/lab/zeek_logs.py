"""What a Zeek sensor at the gateway writes: conn, dns, http and ssl as JSON, one a line.

Forms: Zeek 6's JSON writer with `_path`, as samples/zeek/wrccdc_json has it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from headgate.lab.day import Day
from headgate.lab.site import DC, SENSOR

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_KINDS = {"A": 1, "PTR": 12, "TXT": 16, "AAAA": 28, "HTTPS": 65}


def outside(name: str) -> str:
    """An address of a host outside, the same for the same name, of the benchmark networks."""
    digest = hashlib.blake2b(name.encode(), digest_size=2).digest()
    # RFC 2544's networks: they belong to nobody, and no list of bad addresses has them.
    return f"198.18.{digest[0]}.{digest[1]}"


def connection(
    day: Day, now: float, ip: str, to: tuple[str, int], service: str = "", **more: Any
) -> dict[str, Any]:
    """A conn line, `SF` unless `more` says else; gives the fields that name the connection."""
    dice = day.dice
    named = {
        "uid": "C" + "".join(dice.choices(_LETTERS, k=17)),
        "id.orig_h": ip,
        "id.orig_p": dice.randrange(32768, 60999),
        "id.resp_h": to[0],
        "id.resp_p": to[1],
    }
    sent, got = dice.randrange(200, 6_000), dice.randrange(400, 400_000)
    fields = {
        "proto": "tcp",
        **({"service": service} if service else {}),
        "duration": round(dice.expovariate(1 / 8), 6),
        "orig_bytes": sent,
        "resp_bytes": got,
        "conn_state": "SF",
        "local_orig": True,
        "local_resp": to[0].startswith("10."),
        "missed_bytes": 0,
        "history": "ShADadFf",
        "orig_pkts": sent // 500 + 4,
        "orig_ip_bytes": sent + 240,
        "resp_pkts": got // 1200 + 4,
        "resp_ip_bytes": got + 240,
    }
    _write(day, "conn", now, named | fields | more)
    return named


def lookup(
    day: Day, now: float, ip: str, name: str, kind: str = "A", rcode: tuple[int, str] | None = None
) -> None:
    """A question to the site's resolver with its answer, and the connection that carried it."""
    server = (DC.ip, 53)
    dice = day.dice
    sizes = {"orig_bytes": len(name) + 20, "resp_bytes": len(name) + 60}
    packets = {"orig_pkts": 1, "orig_ip_bytes": len(name) + 48, "resp_pkts": 1}
    named = connection(
        day, now, ip, server, "dns", proto="udp", history="Dd", duration=0.002, **sizes, **packets
    )
    number, word = rcode or (0, "NOERROR")
    answers = {"answers": [outside(name)], "TTLs": [300.0]} if kind == "A" and not number else {}
    fields = {
        "proto": "udp",
        "trans_id": dice.randrange(65_536),
        "rtt": 0.002,
        "query": name,
        "qclass": 1,
        "qclass_name": "C_INTERNET",
        "qtype": _KINDS[kind],
        "qtype_name": kind,
        "rcode": number,
        "rcode_name": word,
        "AA": False,
        "TC": False,
        "RD": True,
        "RA": True,
        "Z": 0,
        "rejected": False,
    }
    _write(day, "dns", now, named | fields | answers)


def secure(day: Day, now: float, ip: str, name: str, **more: Any) -> None:
    """Look a name up and talk TLS with it; `more` goes into the conn line."""
    lookup(day, now, ip, name)
    named = connection(day, now + 0.03, ip, (outside(name), 443), "ssl", **more)
    fields = {
        "version": "TLSv13",
        "cipher": "TLS_AES_128_GCM_SHA256",
        "curve": "x25519",
        "server_name": name,
        "resumed": day.dice.random() < 0.4,
        "established": True,
        "next_protocol": "h2",
    }
    _write(day, "ssl", now + 0.05, named | fields)


def plain(
    day: Day,
    now: float,
    ip: str,
    host: str,
    uri: str,
    *,
    to: str = "",
    method: str = "GET",
    agent: str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0",
    code: int = 200,
    kind: str = "text/html",
) -> None:
    """A request without TLS; `to` is the server's address where no name leads to it."""
    if not to:
        lookup(day, now, ip, host)
    named = connection(day, now + 0.02, ip, (to or outside(host), 80), "http")
    fields = {
        "trans_depth": 1,
        "method": method,
        "host": host,
        "uri": uri,
        "version": "1.1",
        "user_agent": agent,
        "request_body_len": 0,
        "response_body_len": day.dice.randrange(200, 90_000),
        "status_code": code,
        "status_msg": {200: "OK", 304: "Not Modified", 404: "Not Found"}.get(code, "OK"),
        "tags": [],
        "resp_mime_types": [kind],
    }
    _write(day, "http", now + 0.03, named | fields)


def unanswered(day: Day, now: float, ip: str, to: tuple[str, int], state: str = "S0") -> None:
    """A connection that nobody took: `S0` silence, `REJ` refused."""
    refused = state == "REJ"
    fields: dict[str, Any] = {
        "conn_state": state,
        "history": "Sr" if refused else "S",
        "duration": 0.001,
        "orig_bytes": 0,
        "resp_bytes": 0,
        "orig_pkts": 1,
        "orig_ip_bytes": 60,
        "resp_pkts": int(refused),
        "resp_ip_bytes": 40 * refused,
    }
    connection(day, now, ip, to, **fields)


def _write(day: Day, path: str, now: float, fields: dict[str, Any]) -> None:
    row = {"_path": path, "_system_name": SENSOR, "ts": round(now, 6), **fields}
    day.log(f"zeek:{path}", now, json.dumps(row, separators=(",", ":")))
