"""How sure an attribution is: docs/explanation/attribution.md, and what holds for any facts."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from enrich.attribution.competing_leases import LeaseStatement, rivals_of, true_at
from enrich.attribution.confidence import (
    AFTER,
    BEFORE,
    ELSEWHERE,
    LEASED,
    MOST_RIVALS,
    NONE,
    OUTSIDE,
    STATIC,
    SUPERSEDED,
    UNKNOWN,
    WORDS,
    Claim,
    LeaseFacts,
    Server,
    assessed,
    judge,
    standing,
)
from infra.config.settings import ScopeSettings
from tests.lines_run import lines_run

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
IP, A, B, C = "10.0.0.1", "02:00:00:00:00:0a", "02:00:00:00:00:0b", "02:00:00:00:00:0c"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def facts(**other: Any) -> LeaseFacts:
    """A held from an hour before to an hour after; all is known."""
    given: dict[str, Any] = {
        "status": LEASED,
        "event_time": NOON,
        "arrived": at(1),
        "ip": IP,
        "mac": A,
        "lease_start": at(-3600),
        "lease_end": at(3600),
        "ended": "expired",
        "complete_up_to": at(1),
        "servers": (Server("dhcp-1", at(-60)),),
    }
    return LeaseFacts(**given | other)


def none(**other: Any) -> LeaseFacts:
    return facts(status=NONE, mac=None, lease_start=None, lease_end=None, ended=None, **other)


TABLE = [
    # The lease and nothing against it.
    (facts(), 98, "certain", "the DHCP log gives 10.0.0.1 to 02:00:00:00:00:0a"),
    # AAAA|x..... the lease began 2 s before, nobody held the address before it
    (facts(lease_start=at(-2)), 83, "likely", "began only 2 s before"),
    # BBBB|x..... the same, B held it before
    (
        facts(lease_start=at(-2), rivals=(Claim(BEFORE, mac=B, lease_start=at(-99)),)),
        53,
        "doubtful",
        f"began only 2 s before, after {B}",
    ),
    # ....x|BBB  B took over 2 s later
    (
        facts(lease_end=at(2), ended="taken over"),
        53,
        "doubtful",
        "ended only 2 s later, then another client had it",
    ),
    (facts(lease_end=at(2), ended="released"), 83, "likely", "ended only 2 s later"),
    (facts(ended="unanswered"), 58, "doubtful", "only the client's own request speaks for it"),
    (facts(rivals=(Claim(SUPERSEDED, mac=B),)), 93, "certain", f"had given it to {B}"),
    (
        facts(rivals=(Claim(ELSEWHERE, scope="branch", mac=B),)),
        73,
        "likely",
        f"{B} held the same address in branch",
    ),
    (facts(shared_with=("branch",)), 95, "certain", "branch uses the same addresses"),
    (facts(complete_up_to=at(-60)), 98, "certain", "gives"),
    (facts(complete_up_to=at(-600)), 88, "likely", "was known only up to 2026-11-21 11:50:00"),
    (facts(complete_up_to=at(-3600)), 73, "likely", "was known only up to"),
    (facts(complete_up_to=at(-99999)), 53, "doubtful", "was known only up to"),
    (facts(complete_up_to=None), 53, "doubtful", "how complete the DHCP log is was not known"),
    (
        facts(servers=(Server("dhcp-1", at(-7 * 3600)),)),
        83,
        "likely",
        "DHCP server dhcp-1 had said nothing since 2026-11-21 05:00:00 UTC",
    ),
    (facts(servers=(Server("b", at(-9)), Server("a", at(-90000)))), 98, "certain", "gives"),
    (none(), 95, "certain", f"no lease covered {IP}, log complete up to 2026-11-21 12:00:01 UTC"),
    (none(complete_up_to=None), 35, "doubtful", "how far the log goes is unknown"),
    (none(rivals=(Claim(BEFORE, mac=A),)), 50, "doubtful", f"{A} held it within seconds"),
    (none(servers=(Server(None, at(-90000)),)), 35, "doubtful", "the DHCP server had said nothing"),
    (none(servers=()), 35, "doubtful", "no DHCP server of its scope was heard"),
    (none(servers=None), 95, "certain", "no lease covered"),
    (facts(status=OUTSIDE), 100, "certain", f"{IP} lies outside every DHCP scope"),
    (facts(status=STATIC), 80, "likely", f"{IP} is configured as static"),
    (
        facts(status=STATIC, rivals=(Claim(SUPERSEDED, mac=B),)),
        35,
        "doubtful",
        f"yet the DHCP log gave it to {B}",
    ),
    (facts(status=UNKNOWN, ip=None), 0, "unknown", "the event names no address"),
]


@pytest.mark.parametrize(("known", "confidence", "word", "said"), TABLE)
def test_confidence_and_reason_are_those_of_the_table(
    known: LeaseFacts, confidence: int, word: str, said: str
) -> None:
    verdict = judge(known)
    assert (verdict.confidence, verdict.certainty) == (confidence, word)
    assert said in verdict.reason


seconds = st.integers(-100_000, 100_000)
times = seconds.map(at)
claims = st.builds(
    Claim,
    kind=st.sampled_from([SUPERSEDED, BEFORE, AFTER, ELSEWHERE]),
    scope=st.sampled_from(["default", "branch"]),
    mac=st.sampled_from([B, C]),
    lease_start=st.none() | times,
)
anything = st.builds(
    LeaseFacts,
    status=st.sampled_from([LEASED, NONE, OUTSIDE, STATIC, UNKNOWN]),
    event_time=times,
    arrived=st.none() | times,
    ip=st.just(IP),
    mac=st.just(A),
    lease_start=st.none() | times,
    lease_end=st.none() | times,
    ended=st.sampled_from([None, "expired", "released", "taken over", "unanswered"]),
    complete_up_to=st.none() | times,
    servers=st.none() | st.lists(st.builds(Server, st.just("s"), times), max_size=3).map(tuple),
    rivals=st.lists(claims, max_size=4).map(tuple),
    shared_with=st.sampled_from([(), ("branch",)]),
)


@given(anything)
def test_a_verdict_is_a_number_its_word_and_one_sentence(known: LeaseFacts) -> None:
    verdict = judge(known)
    assert 0 <= verdict.confidence <= 100
    assert (verdict.confidence == 0) == (known.status == UNKNOWN)
    assert verdict.certainty == next(word for least, word in WORDS if verdict.confidence >= least)
    assert verdict.reason.endswith(".")
    assert "None" not in verdict.reason


@given(anything, claims)
def test_one_more_rival_makes_nothing_surer(known: LeaseFacts, rival: Claim) -> None:
    more = replace(known, rivals=(*known.rivals, rival))
    assert judge(more).confidence <= judge(known).confidence


@given(anything, st.integers(0, 100_000))
def test_a_log_that_is_less_complete_makes_nothing_surer(known: LeaseFacts, less: int) -> None:
    if known.complete_up_to is not None:
        earlier = known.complete_up_to - timedelta(seconds=less)
        assert judge(replace(known, complete_up_to=earlier)).confidence <= judge(known).confidence
    assert judge(replace(known, complete_up_to=None)).confidence <= judge(known).confidence


@given(anything, st.permutations(range(4)))
def test_the_order_of_rivals_and_servers_is_no_matter(known: LeaseFacts, order: list[int]) -> None:
    rivals = tuple(known.rivals[n] for n in order if n < len(known.rivals))
    other = replace(known, rivals=rivals, servers=known.servers and known.servers[::-1])
    assert judge(other) == judge(known)


def said(
    mac: str | None, start: float, end: float, rev: int, scope: str = "default"
) -> LeaseStatement:
    return LeaseStatement(
        scope=scope,
        mac=mac,
        session_id=mac and f"lease of {mac}",
        seg_start=at(start),
        seg_end=at(end),
        lease_start=at(start),
        lease_end=at(end),
        known_at=at(start),
        rev=rev,
    )


@pytest.mark.parametrize(
    ("second", "holder", "rivals"),
    [
        # said       AAAAAAAAAA......
        # then       AAAABBBBBBBBBB..     B took over at 40
        # elsewhere  ......CCCC......     C in another scope from 60 to 90
        (20, A, []),
        (38, A, [(AFTER, B)]),
        (41, B, [(BEFORE, A)]),
        (50, B, [(SUPERSEDED, A)]),
        (70, B, [(ELSEWHERE, C), (SUPERSEDED, A)]),
        (100, B, []),  # A never held it up to 100, so it is no neighbour
        (120, B, []),
        (142, None, [(BEFORE, B)]),
        (200, None, []),
    ],
)
def test_rivals_are_who_else_could_have_held_it(
    second: float, holder: str | None, rivals: list[tuple[str, str]]
) -> None:
    statements = [said(A, 0, 100, 1), said(B, 40, 140, 2), said(C, 60, 90, 1, scope="branch")]
    newest = true_at(statements, "default", at(second))
    assert (newest.mac if newest else None) == holder
    for order in (statements, statements[::-1]):
        found = rivals_of(order, "default", holder, at(second))
        assert [(claim.kind, claim.mac) for claim in found] == rivals


def test_an_address_that_changes_hands_all_the_time_costs_no_square_of_it() -> None:
    # Each was to have it for an hour and lost it within a second to the next.
    hands = [said(f"m{n:04}", n, 3600 + n, n) for n in range(800)]
    cost = lines_run(lambda: rivals_of(hands, "default", "m0799", at(799.5)))
    assert cost < 8 * lines_run(lambda: rivals_of(hands[:200], "default", "m0199", at(199.5)))
    kinds = Counter(claim.kind for claim in rivals_of(hands, "default", "m0799", at(799.5)))
    assert kinds == {BEFORE: 5, SUPERSEDED: 794}


def test_a_lease_on_an_address_that_is_set_by_hand_is_a_rival() -> None:
    # A was given the address from 0 to 100, B took over at 40; configuration says nobody was.
    statements = [said(A, 0, 100, 1), said(B, 40, 140, 2)]
    found = {s: rivals_of(statements, "default", None, at(s)) for s in (20, 42, 120, 143)}
    assert {s: [(one.kind, one.mac) for one in claims] for s, claims in found.items()} == {
        20: [(LEASED, A)],
        42: [(BEFORE, A), (LEASED, B)],
        120: [(LEASED, B)],
        143: [(BEFORE, B)],
    }
    told = judge(facts(status=STATIC, mac=None, rivals=found[20]))
    assert told[:2] == (35, "doubtful")
    assert told.reason.endswith(f"yet the DHCP log gave it to {A}.")


def test_configuration_says_which_addresses_have_no_lease() -> None:
    sites = (
        ScopeSettings(name="default", networks=("10.0.0.0/24",), static=("10.0.0.0/29", "fd00::1")),
        ScopeSettings(name="branch", networks=("10.0.0.0/16",)),
    )
    asked = {
        ("10.0.0.1", "default"): STATIC,
        ("10.0.0.9", "default"): None,
        ("10.0.0.1", "branch"): None,
        ("10.0.9.1", "default"): OUTSIDE,
        ("10.0.9.1", None): None,
        ("fd00::1", "default"): STATIC,
        ("fd00::2", "default"): OUTSIDE,
        ("ec2.amazonaws.com", "default"): OUTSIDE,
        (None, "default"): UNKNOWN,
    }
    assert {key: standing(*key, sites) for key in asked} == asked


def test_a_holder_that_was_judged_is_left_as_it_is() -> None:
    holder = {"ip": IP, "scope": "default", "status": NONE}
    first = assessed(holder, NOON, complete_up_to=at(5))
    assert (first["confidence"], first["complete_up_to"]) == (95, at(5))
    assert assessed(first, NOON, rivals=[Claim(BEFORE, mac=B)]) == first


@pytest.mark.parametrize("count", [MOST_RIVALS - 1, MOST_RIVALS, 800])
def test_a_holder_lists_so_many_rivals_and_says_of_how_many(count: int) -> None:
    hands = [said(f"m{n:04}", n, 3600 + n, n) for n in range(count + 1)]
    mac, at_last = f"m{count:04}", at(count + 0.5)
    holder = {"ip": IP, "scope": "default", "status": LEASED, "mac": mac,
              "lease_start": at(count), "lease_end": at(count + 3600)}  # fmt: skip
    rivals = rivals_of(hands, "default", mac, at_last)
    assert len(rivals) == count
    told = assessed(holder, at_last, complete_up_to=at_last, rivals=rivals)
    all_of_them = judge(
        facts(mac=mac, event_time=at_last, lease_start=at(count), lease_end=at(count + 3600),
              complete_up_to=at_last, arrived=None, servers=None, rivals=rivals)
    )  # fmt: skip
    assert (told["confidence"], told["certainty"]) == all_of_them[:2]
    listed = {rival["mac"] for rival in told["rivals"]}
    newest = {f"m{n:04}" for n in range(max(0, count - MOST_RIVALS), count)}
    assert listed == newest, "who held it just before, and of the others those last"
    assert (f"{MOST_RIVALS} of {count:,} others" in told["reason"]) == (count > MOST_RIVALS)
    assert "m0000, m0001 and" in told["reason"], "of those that are not named the number is said"
    assert told["reason"].endswith(".")
    assert told == assessed(holder, at_last, complete_up_to=at_last, rivals=rivals)
