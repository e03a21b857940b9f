"""The two servers' logs: the office has ISC dhcpd, the Wi-Fi has Kea.

Worded as the recorded lab of samples/lab has it (dhcpd 4.4.3-P1, Kea 2.2.0).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from zoneinfo import ZoneInfo

from headgate.lab.day import Day, lab_instant
from headgate.lab.leases import Message, Network
from headgate.lab.site import GATEWAY, OFFICE, ZONES

_REMARKS = {"busy": ": lease {ip} unavailable.", "elsewhere": ": wrong network."}


def write_dhcp(day: Day, network: Network) -> None:
    """The log of a network's server, as far as it arrives."""
    # Dice of their own: with lines lost, the rest of the day is the same as without.
    dice = random.Random(f"{day.seed} {network.name}")
    for message in network.messages:
        if dice.random() < day.lost:
            continue
        if network.name == OFFICE:
            when = lab_instant(message.time)
            head = f"<30>{when:%b} {when.day:2d} {when:%H:%M:%S} {GATEWAY} dhcpd[811]: "
            day.log("isc_dhcpd", message.time, head + _dhcpd(message))
        else:
            for text in _kea(message, network.lease):
                zone = ZoneInfo(ZONES["kea_dhcp4"])
                local = lab_instant(message.time).astimezone(zone).replace(tzinfo=None)
                written = local.isoformat(" ", "milliseconds")
                day.log("kea_dhcp4", message.time, f"{written} INFO  {text}")


def _dhcpd(message: Message) -> str:
    ip, named = message.ip, f"{message.mac} ({message.name})"
    if message.kind == "discover":
        full = ": network 10.41.0.0/24: no free leases" if message.remark else ""
        return f"DHCPDISCOVER from {named} via eth1{full}"
    if message.kind == "offer":
        return f"DHCPOFFER on {ip} to {named} via eth1"
    if message.kind == "request":
        server = " (10.41.0.1)" if message.remark == "selecting" else ""
        remark = _REMARKS.get(message.remark, "").format(ip=ip)
        return f"DHCPREQUEST for {ip}{server} from {named} via eth1{remark}"
    if message.kind == "nak":
        return f"DHCPNAK on {ip} to {message.mac} via eth1"
    if message.kind == "release":
        return f"DHCPRELEASE of {ip} from {named} via eth1 (found)"
    return f"DHCPACK on {ip} to {named} via eth1"


def _kea(message: Message, lease: int) -> Iterator[str]:
    """Nothing of requests and refusals: at its usual level Kea tells of leases alone."""
    transaction = f"tid=0x{int(message.time * 1000) & 0xFFFFFFFF:x}"
    who = f"[hwtype=1 {message.mac}], cid=[01:{message.mac}], {transaction}"
    head = "[kea-dhcp4.leases/733.140162821063168] DHCP4_"
    if message.kind == "offer":
        yield f"{head}LEASE_ADVERT {who}: lease {message.ip} will be advertised"
    elif message.kind == "ack":
        yield (
            f"{head}LEASE_ALLOC {who}: lease {message.ip} has been allocated for {lease} seconds"
        )
    elif message.kind == "release":
        yield f"{head}RELEASE {who}: address {message.ip} was released properly."
