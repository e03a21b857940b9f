"""Writes the demo's story: the log lines a small site would write in 90 seconds.

    python samples/demo/make_story.py

Offsets are seconds on the demo's timeline (docs/tutorials/demo.md draws it); a line's own time is
`ZERO` plus its offset. The same run always writes the same bytes.
"""

from __future__ import annotations

import base64
import json
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ZERO = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
END = 88.0

DNS_SERVER, BASTION, INTRANET = "10.20.30.2", "10.20.30.10", "10.20.30.20"
UNLEASED, OUTSIDER = "10.20.30.250", "203.0.113.45"
MAC = "02:42:ac:77:0e:{:02x}"

VILLAIN = ("lt-2291", MAC.format(0x21))
PHONE = ("phone-58", MAC.format(0x58))
TABLET = ("tab-0417", MAC.format(0x17))
TAKER = ("ws-3310", MAC.format(0x10))
OFFICE = (
    # name, MAC, address, when the lease is granted
    ("ws-3301", MAC.format(0x01), "10.20.30.101", 0.0),
    ("ws-3302", MAC.format(0x02), "10.20.30.103", 0.6),
    ("lt-2204", MAC.format(0x04), "10.20.30.104", 1.1),
    ("printer-11", MAC.format(0x0B), "10.20.30.105", 1.7),
    ("cam-07", MAC.format(0xC7), "10.20.30.106", 3.4),
    ("lt-2218", MAC.format(0x18), "10.20.30.107", 4.0),
)
PEER_CLIENT = ("ws-3305", MAC.format(0x05), "10.20.30.108", 0.3)
BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

Lines = dict[str, list[tuple[float, str]]]


class Story:
    """Lines by file, each with its offset."""

    def __init__(self) -> None:
        self.lines: Lines = defaultdict(list)
        self.chance = random.Random(2291)
        self.counter = 4100

    def next(self) -> int:
        """A number used once: process ids and such."""
        self.counter += 7
        return self.counter

    def uid(self) -> str:
        """A connection id in Zeek's manner."""
        letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
        return "C" + "".join(self.chance.choices(letters, k=17))

    def syslog3164(self, file: str, at: float, host: str, tag: str, text: str) -> None:
        when = ZERO + timedelta(seconds=at)
        stamp = f"{when:%b} {when.day:2d} {when:%H:%M:%S}"
        self.lines[file].append((at, f"<30>{stamp} {host} {tag}: {text}"))

    def syslog5424(self, file: str, at: float, host: str, app: str, pid: str, text: str) -> None:
        when = (ZERO + timedelta(seconds=at)).isoformat(timespec="microseconds")
        priority = 86 if app == "sshd" else 85
        self.lines[file].append((at, f"<{priority}>1 {when} {host} {app} {pid} - - {text}"))

    def zeek(self, path: str, at: float, **fields: Any) -> None:
        when = (ZERO + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        row = {"_path": path, "_system_name": "sensor1", "ts": when, "uid": self.uid(), **fields}
        self.lines[f"zeek_{path}.jsonl"].append((at, json.dumps(row, separators=(",", ":"))))


def ends(src: str, sport: int, dst: str, dport: int) -> dict[str, Any]:
    """The four fields that name a connection in a Zeek line."""
    return {"id.orig_h": src, "id.orig_p": sport, "id.resp_h": dst, "id.resp_p": dport}


# -- DHCP -------------------------------------------------------------------------------------


def lease(story: Story, at: float, device: tuple[str, str], ip: str, server: str = "dhcp1") -> None:
    """DISCOVER, OFFER, REQUEST and ACK; the ACK at `at` + 0.4."""
    name, mac = device
    file, address = (
        ("dhcp_late.log", "10.20.30.4") if server == "dhcp2 stalled" else ("dhcp.log", "10.20.30.3")
    )
    host = server.split()[0]
    if host == "dhcp2":
        address = "10.20.30.4"
    tag = f"dhcpd[{811 if host == 'dhcp1' else 796}]"
    for step, text in enumerate(
        (
            f"DHCPDISCOVER from {mac} ({name}) via eth0",
            f"DHCPOFFER on {ip} to {mac} ({name}) via eth0",
            f"DHCPREQUEST for {ip} ({address}) from {mac} ({name}) via eth0",
            f"DHCPACK on {ip} to {mac} ({name}) via eth0",
        )
    ):
        story.syslog3164(file, at + (0, 0.2, 0.3, 0.4)[step], host, tag, text)


def renew(story: Story, at: float, device: tuple[str, str], ip: str) -> None:
    """REQUEST and ACK of a client that keeps its address."""
    name, mac = device
    for delay, text in (
        (0.0, f"DHCPREQUEST for {ip} from {mac} ({name}) via eth0"),
        (0.1, f"DHCPACK on {ip} to {mac} ({name}) via eth0"),
    ):
        story.syslog3164("dhcp.log", at + delay, "dhcp1", "dhcpd[811]", text)


def release(story: Story, at: float, device: tuple[str, str], ip: str, file: str) -> None:
    """A client gives its address back."""
    name, mac = device
    host, pid = ("dhcp2", 796) if file == "dhcp_late.log" else ("dhcp1", 811)
    text = f"DHCPRELEASE of {ip} from {mac} ({name}) via eth0 (found)"
    story.syslog3164(file, at, host, f"dhcpd[{pid}]", text)


def addresses(story: Story) -> None:
    """Who holds which address when."""
    for name, mac, ip, at in OFFICE:
        lease(story, at, (name, mac), ip)
        renew(story, 62.0 + at * 2, (name, mac), ip)
    name, mac, ip, at = PEER_CLIENT
    lease(story, at, (name, mac), ip, "dhcp2")
    lease(story, 2.0, TABLET, "10.20.30.120")
    lease(story, 2.6, VILLAIN, "10.20.30.102")
    release(story, 24.0, VILLAIN, "10.20.30.102", "dhcp.log")
    lease(story, 30.0, PHONE, "10.20.30.102")
    lease(story, 34.0, VILLAIN, "10.20.30.117")
    # dhcp2's log forwarder stalls: these lines arrive half a minute after they were written.
    release(story, 38.0, TABLET, "10.20.30.120", "dhcp_late.log")
    lease(story, 40.0, TAKER, "10.20.30.120", "dhcp2 stalled")


# -- what the intruder does --------------------------------------------------------------------


def guess(story: Story, ip: str) -> None:
    """Eight wrong passwords and a right one."""
    users = ("root", "admin", "oracle", "postgres", "root", "test", "deploy", "backup")
    for nth, user in enumerate(users):
        at, port, pid = 10.0 + nth * 0.9, 50122 + nth * 2, str(story.next())
        known = user in ("root", "deploy", "backup")
        who = user if known else f"invalid user {user}"
        if not known:
            ssh(story, at, pid, f"Invalid user {user} from {ip} port {port}")
        ssh(story, at + 0.3, pid, f"Failed password for {who} from {ip} port {port} ssh2")
        closing = f"Connection closed by {'authenticating' if known else 'invalid'} user {user}"
        ssh(story, at + 0.4, pid, f"{closing} {ip} port {port} [preauth]")
    enter(story, 18.0, "backup", ip, 50140)


def ssh(story: Story, at: float, pid: str, text: str) -> None:
    """A line of the bastion's sshd."""
    story.syslog5424("sshd.log", at, "bastion1", "sshd", pid, text)


def enter(story: Story, at: float, user: str, ip: str, port: int) -> None:
    """A login by password."""
    pid = str(story.next())
    opened = f"pam_unix(sshd:session): session opened for user {user}(uid=1004) by (uid=0)"
    ssh(story, at - 0.2, pid, f'Connection from {ip} port {port} on {BASTION} port 22 rdomain ""')
    ssh(story, at, pid, f"Accepted password for {user} from {ip} port {port} ssh2")
    ssh(story, at + 0.1, pid, opened)


def root_shell(story: Story) -> None:
    """sudo to a shell, as the account it got into."""
    for at, text in (
        (42.0, "  backup : TTY=pts/0 ; PWD=/home/backup ; USER=root ; COMMAND=/bin/bash"),
        (42.1, "pam_unix(sudo:session): session opened for user root(uid=0) by backup(uid=1004)"),
    ):
        story.syslog5424("sudo.log", at, "bastion1", "sudo", "-", text)


def scan(story: Story, ip: str) -> None:
    """Twenty-four hosts asked for SMB: some refuse, some are silent."""
    for nth in range(24):
        target = f"10.20.{30 if nth < 12 else 40}.{130 + nth}"
        refused = nth % 3 != 0
        story.zeek(
            "conn",
            38.0 + nth * 0.15,
            **ends(ip, 41000 + nth, target, 445),
            proto="tcp",
            duration=0.0004 if refused else 3.0,
            orig_bytes=0,
            resp_bytes=0,
            conn_state="REJ" if refused else "S0",
            history="Sr" if refused else "S",
            orig_pkts=1,
            orig_ip_bytes=60,
            resp_pkts=1 if refused else 0,
            resp_ip_bytes=40 if refused else 0,
        )


def tunnel(story: Story, ip: str) -> None:
    """Data carried out in DNS names."""
    for nth in range(24):
        label = base64.b32encode(story.chance.randbytes(35)).decode().lower().rstrip("=")
        txt = nth % 3 != 2
        dns(story, 46.0 + nth * 0.2, ip, f"{label}.t1.cdn-sync.example", "TXT" if txt else "A")


def cloud(story: Story, ip: str) -> None:
    """Calls to AWS through the site's VPC endpoint, as the account found on the bastion."""
    calls = (
        (52.0, "iam.amazonaws.com", "CreateAccessKey", {"userName": "backup-svc"}),
        (54.0, "cloudtrail.amazonaws.com", "StopLogging", {"name": "site-trail"}),
        (56.0, "secretsmanager.amazonaws.com", "GetSecretValue", {"secretId": "prod/db/backup"}),
    )
    for nth, (at, service, name, asked) in enumerate(calls):
        story.lines["cloudtrail.jsonl"].append(
            (at, json.dumps(call(at, service, name, asked, ip, nth), separators=(",", ":")))
        )


def call(
    at: float, service: str, name: str, asked: dict[str, str], ip: str, nth: int
) -> dict[str, Any]:
    """One CloudTrail record."""
    account, user = "111122223333", "backup-svc"
    return {
        "eventVersion": "1.11",
        "userIdentity": {
            "type": "IAMUser",
            "principalId": "AIDAEXAMPLEBACKUPSVC",
            "arn": f"arn:aws:iam::{account}:user/{user}",
            "accountId": account,
            "accessKeyId": "AKIAEXAMPLEBACKUPSVC",
            "userName": user,
        },
        "eventTime": (ZERO + timedelta(seconds=at)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "eventSource": service,
        "eventName": name,
        "awsRegion": "eu-central-1",
        "sourceIPAddress": ip,
        "userAgent": "aws-cli/1.22.71 Python/3.10.5 Linux/5.18.0-kali2-amd64 botocore/1.24.16",
        "requestParameters": asked,
        "responseElements": None,
        "requestID": f"0b9f31c2-77aa-4e21-9d0e-0000000010{nth:02d}",
        "eventID": f"5d1c7a90-2291-4c1e-8a55-0000000020{nth:02d}",
        "readOnly": name.startswith("Get"),
        "eventType": "AwsApiCall",
        "managementEvent": True,
        "recipientAccountId": account,
        "vpcEndpointId": "vpce-0e21ac77000000001",
        "eventCategory": "Management",
    }


# -- others ------------------------------------------------------------------------------------


def dns(story: Story, at: float, src: str, name: str, kind: str = "A") -> None:
    """A question the resolver answered (a TXT name: not answered)."""
    number = {"A": 1, "TXT": 16, "AAAA": 28}[kind]
    story.zeek(
        "dns",
        at,
        **ends(src, story.chance.randrange(32768, 60999), DNS_SERVER, 53),
        proto="udp",
        trans_id=story.chance.randrange(65536),
        query=name,
        qclass=1,
        qclass_name="C_INTERNET",
        qtype=number,
        qtype_name=kind,
        rcode=0,
        rcode_name="NOERROR",
        AA=False,
        TC=False,
        RD=True,
        RA=True,
        Z=0,
        rejected=False,
        **({"answers": ["198.51.100.20"], "TTLs": [300.0]} if kind == "A" else {}),
    )


def http(
    story: Story, at: float, src: str, uri: str, agent: str = BROWSER, code: int = 200
) -> None:
    """A request to the intranet server."""
    story.zeek(
        "http",
        at,
        **ends(src, story.chance.randrange(32768, 60999), INTRANET, 80),
        trans_depth=1,
        method="GET",
        host="intranet.site.example",
        uri=uri,
        version="1.1",
        user_agent=agent,
        request_body_len=0,
        response_body_len=story.chance.randrange(400, 9000),
        status_code=code,
        status_msg={200: "OK", 404: "Not Found", 400: "Bad Request"}[code],
        tags=[],
    )


def conn(story: Story, at: float, src: str) -> None:
    """An ordinary connection to the outside."""
    sent, got = story.chance.randrange(300, 4000), story.chance.randrange(1000, 90000)
    story.zeek(
        "conn",
        at,
        **ends(src, story.chance.randrange(32768, 60999), "198.51.100.20", 443),
        proto="tcp",
        service="ssl",
        duration=round(story.chance.uniform(0.1, 6.0), 6),
        orig_bytes=sent,
        resp_bytes=got,
        conn_state="SF",
        history="ShADadFf",
        orig_pkts=12,
        orig_ip_bytes=sent + 480,
        resp_pkts=20,
        resp_ip_bytes=got + 800,
    )


def strangers(story: Story) -> None:
    """Three requests from addresses that are not the intruder's, each an alert of its own."""
    http(story, 14.0, OUTSIDER, "/static/../../../../etc/passwd", "curl/8.5.0", 400)
    http(story, 26.0, UNLEASED, "/items?id=7%20OR%201=1", "sqlmap/1.9.4#stable", 200)
    http(story, 45.0, "10.20.30.120", "/files/..%2f..%2f..%2fetc%2fshadow", "curl/8.5.0", 404)


def ordinary(story: Story) -> None:
    """What everybody does all day: names, pages, connections."""
    names = ("intranet.site.example", "mail.site.example", "time.site.example", "www.example.org")
    holders = [(ip, at + 2.0, END) for _, _, ip, at in (*OFFICE, PEER_CLIENT)]
    holders += [
        ("10.20.30.102", 5.0, 9.0),
        ("10.20.30.102", 32.0, END),
        ("10.20.30.120", 5.0, 37.0),
        ("10.20.30.120", 42.0, END),
    ]
    for ip, first, last in holders:
        at = first + story.chance.random() * 2
        while at < last:
            dns(story, at, ip, story.chance.choice(names), story.chance.choice(("A", "A", "AAAA")))
            if story.chance.random() < 0.6:
                conn(story, at + 0.05, ip)
            if story.chance.random() < 0.4:
                http(story, at + 0.1, ip, story.chance.choice(("/", "/news", "/menu?day=mon")))
            at += story.chance.uniform(2.0, 6.0)
    for nth, (user, ip) in enumerate((("carol", "10.20.30.101"), ("dave", "10.20.30.104"))):
        enter(story, 7.0 + nth * 50, user, ip, 52010 + nth)


def broken() -> dict[str, list[bytes]]:
    """Lines that no parser may accept, each for another reason."""
    good = b'{"_path":"conn","ts":"2026-03-02T09:00:00.000000Z","uid":"CBroken","id.orig_h":'
    rest = b'"10.20.30.101","id.orig_p":1,"id.resp_h":"10.20.30.2","id.resp_p":2,"proto":"udp"'
    whole = good + rest + b"}"
    return {
        "broken_conn.jsonl": [
            good + b'"10.20.30.1',  # cut off
            whole + b" trailing",
            whole + whole,  # two objects on one line
            good + rest + b',"service":"\xff\xfe"}',  # not UTF-8
            whole.replace(b'"id.orig_p":1', b'"id.orig_p":1e300'),
            whole.replace(b'"udp"', b'"u\x00p"'),  # NUL, which JSON forbids in a string
            b"null",
        ],
        "broken_cloudtrail.jsonl": [
            b'{"eventVersion":"1.11","eventTime":"2026-03-02T09:00:00Z","eventName":',
            b"<html>503 Service Unavailable</html>",
        ],
    }


def tell() -> Story:
    """The whole story."""
    story = Story()
    addresses(story)
    guess(story, "10.20.30.102")
    enter(story, 36.0, "backup", "10.20.30.117", 50160)
    scan(story, "10.20.30.117")
    root_shell(story)
    tunnel(story, "10.20.30.117")
    cloud(story, "10.20.30.117")
    strangers(story)
    ordinary(story)
    return story


def main() -> None:
    """Write every file beside this script."""
    for file, lines in tell().lines.items():
        text = "".join(line + "\n" for _, line in sorted(lines, key=lambda pair: pair[0]))
        (HERE / file).write_bytes(text.encode())
    for file, raws in broken().items():
        (HERE / file).write_bytes(b"".join(raw + b"\n" for raw in raws))


if __name__ == "__main__":
    main()
