"""A client that asks for a lease under ever new MAC addresses fills no state and hides nobody."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from enrich.dhcp.lease_rules import LeaseEvent, Segment
from enrich.dhcp.state_encoding import decode_bucket, encode_bucket
from enrich.dhcp.tracker_state import TrackerBucket
from tests.enrich.dhcp.test_tracker_state import LIMITS, START, line, us

SPOOFED = 10_000
SOAK_SPOOFED = int(os.environ.get("HEADGATE_SOAK_MACS", "10000000"))
A_SECOND = 25
LEASE_SECONDS = 30
KEPT_SECONDS = 60 + LEASE_SECONDS + 90
"""Lateness, the lease, and what `KEPT_LONGER_US` and the sweeps leave beyond: no longer is an
address of the flood remembered."""
HONEST = ("02:00:00:00:00:0a", "10.255.0.1")


def flood(spoofed: int, pool: int) -> Iterator[list[LeaseEvent]]:
    """Seconds of lines: so many new MAC addresses each, over a pool of addresses, and one client
    that renews its lease in time."""
    for second in range(spoofed // A_SECOND):
        lines = []
        for number in range(second * A_SECOND, (second + 1) * A_SECOND):
            at = second + (number % A_SECOND) / A_SECOND
            place = number % pool
            ip = f"10.{place >> 16 & 127}.{place >> 8 & 255}.{place & 255}"
            mac = "02:ff:" + number.to_bytes(4, "big").hex(":")
            lines.append(line(at, mac, ip=ip, lease=LEASE_SECONDS, uid=str(number)))
        if second % 10 == 0:
            lines.append(line(second, HONEST[0], ip=HONEST[1], lease=LEASE_SECONDS))
        yield lines


@pytest.mark.full
@pytest.mark.parametrize("pool", [250, 2**23])
def test_spoofed_clients_are_forgotten_with_their_leases(pool: int) -> None:
    spoof(SPOOFED, pool)


@pytest.mark.soak
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("pool", [250, 2**23])
def test_ten_million_spoofed_clients(pool: int) -> None:
    spoof(SOAK_SPOOFED, pool)


def spoof(spoofed: int, pool: int) -> None:
    state, sizes = TrackerBucket(LIMITS), []
    honest: list[Segment] = []
    for second, lines in enumerate(flood(spoofed, pool)):
        said = state.advance(lines, [us(second + 1)])
        honest += [one for one in said if one.ip == HONEST[1]]
        assert len(state.addresses) <= min(pool, A_SECOND * KEPT_SECONDS) + 1
        if second % 20 == 19:
            blob = encode_bucket(state)
            sizes.append(len(blob))
            state = decode_bucket(blob, LIMITS)
    half = len(sizes) // 2
    assert max(sizes[half:]) <= 1.1 * max(sizes[:half])
    assert {one.mac for one in honest} == {HONEST[0]}
    assert max(one.seg_end or 0 for one in honest) >= us(spoofed // A_SECOND - 1)

    end = spoofed // A_SECOND
    for second in range(end, end + 2 * KEPT_SECONDS, 5):
        state.advance([], [us(second)])
    assert state.addresses == {}
    assert us(0) == START * 1_000_000
