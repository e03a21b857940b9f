"""Servers, clocks and pools that were never recorded: real words, real parsers, known truth.

`made_lab` plays networks at random. Of each, what every device did must go to that device, and
what nobody held must stay nobody's; also when lines come late, in any order, or not at all.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache

import msgspec
import pytest

from enrich.dhcp.lease_rules import (
    ACK,
    DECLINE,
    LEASE_ACTIVITIES,
    NAK,
    SECOND_US,
    TALK,
    LeaseEvent,
    Timeline,
    replay,
)
from enrich.dhcp.sessions_job import ANSWERING, DHCP_FAILURE
from ingest.cli import parser_of
from tests.enrich.dhcp.test_lab import stream
from tests.enrich.made_lab import PRODUCTS, SOURCES, Lab, lab, log_of

SEEDS = range(12)
EDGE = 1.01
"""Seconds: syslog and Windows write whole ones, so an end may lie up to one too early."""


@cache
def played(seed: int) -> Lab:
    return lab(seed)


@cache
def lines(seed: int, product: str) -> tuple[LeaseEvent, ...]:
    """The log of a network as its parser reads it: the lines that `enrich.dhcp.sessions_job` lets
    pass."""
    made, source = played(seed), SOURCES[product][0]
    read = parser_of(source, made.zone, None)
    found = []
    for number, (time, raw) in enumerate(log_of(made, product)):
        (event,) = read(raw, datetime.fromtimestamp(time + 0.2, UTC))
        assert "dead_letter_reason" not in event, raw
        activity, client = event.get("activity_id"), event.get("src_endpoint") or {}
        turned_down = event.get("status_id") == DHCP_FAILURE and activity not in (NAK, DECLINE)
        idle_talk = activity in TALK and event["metadata"]["product"]["name"] not in ANSWERING
        usable = event["class_uid"] == 4004 and activity in LEASE_ACTIVITIES and "ip" in client
        if usable and not turned_down and not idle_talk:
            told = event.get("lease_dur", 0) if source == "kea_dhcp4" else made.lease
            found.append(
                LeaseEvent(
                    event_uid=f"{number:07}",
                    scope="lab",
                    ip=client["ip"],
                    mac=client.get("mac"),
                    hostname=client.get("hostname"),
                    activity=activity,
                    time_us=event["time"] * 1000,
                    received_us=event["time"] * 1000,
                    lease_seconds=told,
                    server="gw",
                )
            )
    return tuple(found)


def timelines(found: Iterable[LeaseEvent]) -> dict[str, Timeline]:
    by_ip: dict[str, list[LeaseEvent]] = {}
    for line in found:
        by_ip.setdefault(line.ip, []).append(line)
    return {ip: replay(mine) for ip, mine in by_ip.items()}


def holder(told: dict[str, Timeline], ip: str, time: float) -> str | None:
    session = told[ip].at(round(time * SECOND_US)) if ip in told else None
    return session.mac if session else None


def asked(made: Lab, margin: float = EDGE) -> list[tuple[float, str, str]]:
    """What devices did while the server had given them the address, but for the last second; with
    a greater margin, not at once after it had either."""
    early = margin - EDGE
    return [
        (time, ip, mac)
        for time, ip, mac in made.used
        if any(
            h.ip == ip and h.mac == mac and h.start + early <= time < h.end - margin
            for h in made.held
        )
    ]


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_device_did_is_its_own(seed: int, product: str) -> None:
    made = played(seed)
    told = timelines(lines(seed, product))
    questions = asked(made)
    assert len(questions) > 20
    wrong = [(t, ip, mac) for t, ip, mac in questions if holder(told, ip, t) != mac]
    assert not wrong
    dice = random.Random(seed)
    addresses = [ip for pool in made.pools for ip in pool]
    instants = [
        (ip, made.start + dice.uniform(0, made.seconds)) for ip in dice.choices(addresses, k=100)
    ]
    free = [(ip, time) for ip, time in instants if made.free_at(ip, time, 1.5)]
    assert [(ip, time) for ip, time in free if holder(told, ip, time)] == []


@pytest.mark.parametrize("product", ["dhcpd-5424", "kea", "windows"])
@pytest.mark.parametrize("seed", range(4))
def test_a_stream_says_the_same_however_late_and_shuffled(seed: int, product: str) -> None:
    made, dice = played(seed), random.Random(seed)
    late = [
        LeaseEvent(
            *(getattr(line, name) for name in LeaseEvent.__struct_fields__[:7]),
            line.received_us + round(dice.choice((0, dice.uniform(0, 5), 90)) * SECOND_US),
            line.lease_seconds,
            line.server,
        )
        for line in lines(seed, product)[:400]
    ]
    said = sorted(stream(late), key=lambda row: row.rev)
    told = timelines(late)
    assert not [row for row in said if row.kind == "too_late"]
    until = max(line.time_us for line in late) / SECOND_US
    for time, ip, _ in asked(made):
        if time < until:
            at = round(time * SECOND_US)
            over = [row for row in said if row.ip == ip and row.seg_start <= at < row.seg_end]
            assert (over[-1].mac if over else None) == holder(told, ip, time)


@pytest.mark.parametrize("product", ["dhcpd-5424", "kea"])
@pytest.mark.parametrize("apart", [-4.0, 1.5])
def test_a_pair_that_both_log_by_clocks_of_their_own(product: str, apart: float) -> None:
    """Each exchange is with one server of the pair, whose clock is `apart` from the other's, and
    of some grants the partner writes a line as well."""
    total = 0
    for seed in SEEDS:
        made, dice = played(seed), random.Random(seed)
        asked_of: dict[str | None, tuple[int, int]] = {}
        both = []
        for line in lines(seed, product):
            at, server = asked_of.get(line.mac, (0, 0))
            if line.time_us - at > 5 * SECOND_US:
                server = dice.randrange(2)
            asked_of[line.mac] = (line.time_us, server)
            logged = [server]
            if line.activity == ACK and dice.random() < 0.4:
                logged.append(1 - server)
            both += [
                msgspec.structs.replace(
                    line,
                    event_uid=f"{line.event_uid}-{one}",
                    server=f"dhcp{one}",
                    time_us=line.time_us + round(one * apart * SECOND_US),
                )
                for one in logged
            ]
        told = timelines(both)
        for time, ip, mac in asked(made, abs(apart) + EDGE):
            total += 1
            assert holder(told, ip, time) == mac
    assert total > 100


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_lost_line_makes_nobody_else_the_holder(product: str) -> None:
    """One line in ten goes missing, each so far from the last that one exchange loses no two."""
    right = total = 0
    for seed in SEEDS:
        made, dice = played(seed), random.Random(seed)
        lost_at: dict[str, int] = {}
        kept = []
        for line in lines(seed, product):
            apart = line.time_us - lost_at.get(line.ip, 0) > 3 * made.lease * SECOND_US
            if apart and dice.random() < 0.1:
                lost_at[line.ip] = line.time_us
            else:
                kept.append(line)
        told = timelines(kept)
        answers = [(mac, holder(told, ip, time)) for time, ip, mac in asked(made)]
        assert lost_at
        assert [(mac, said) for mac, said in answers if said not in (mac, None)] == []
        total += len(answers)
        right += sum(mac == said for mac, said in answers)
    # Where requests are logged as well, a lost grant still shows; a lost renewal does not.
    assert right / total > (0.98 if product.startswith(("dhcpd", "dnsmasq")) else 0.95)


@pytest.mark.soak
@pytest.mark.parametrize("nth", range(int(os.environ.get("SOAK_ROUNDS", "5"))))
def test_any_network_at_all(nth: int) -> None:
    seed = int(os.environ.get("SOAK_SEED") or random.SystemRandom().randrange(2**32)) + nth
    print(f"SOAK_SEED={seed}")
    for product in PRODUCTS:
        test_what_a_device_did_is_its_own(seed, product)
