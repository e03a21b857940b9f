"""Who used a device then, by VPN, Kerberos, logons, SSH and Zeek's DHCP: ranked, with evidence."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from enrich.assets.user_evidence import (
    KINDS,
    LEASE,
    MOST_WITNESSES,
    WITNESSES_SQL,
    Witness,
    devices,
    strength,
    users,
    window,
)
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import load
from infra.delta.duckdb_views import connect
from infra.streaming.lake import Lake
from ingest.parsing.event_rows import event_rows
from ingest.parsing.source import ParseSettings, Record
from ingest.tables import EVENT
from tests.enrich.rows import IP, A, B, at, put, segment
from tests.enrich.views import ask, columns_of
from tests.ingest.windows_forms import Sample, xml
from tests.ingest.windows_logon_samples import LOGON
from tests.ingest.windows_security_samples import SECURITY_SAMPLES

SAMPLES = Path(__file__).parents[3] / "samples"
HOURS = 3600.0


def seen(kind: str, second: float, user: str | None = "ann", **more: Any) -> Witness:
    told = {"until": None, "event_uid": f"{kind}@{second:g}", "source": "s", "user_name": user}
    return Witness(kind=kind, time=at(second), **(told | more))


# -- the rules -----------------------------------------------------------------------------------


def test_a_witness_tells_less_the_older_it_is() -> None:
    """
    15 min before    Kerberos ticket                          10 h later
    |--- half -------|=== 60 ======= falling to 30 =======|   nothing
    """
    one = seen("kerberos", 0)
    told = {hours: strength(one, at(hours * HOURS)) for hours in (-1, -0.2, 0, 5, 10, 10.1)}
    assert told == {-1: 0, -0.2: 30, 0: 60, 5: 45, 10: 30, 10.1: 0}


def test_a_span_tells_all_of_it_until_its_end() -> None:
    one = seen("vpn", 0, until=at(20 * 86400))
    told = [strength(one, at(day * 86400)) for day in (0, 19.9, 20, 21)]
    assert told == [80, 80, 0, 0]
    assert strength(seen("gossip", 0), at(0)) == 0


def test_witnesses_that_agree_tell_more_than_one() -> None:
    found = users(
        [
            seen("kerberos", 0, "ann", user_domain="CORP.EXAMPLE"),
            seen("ssh", 60, "Ann"),
            seen("network_logon", 30, "CORP\\ann", user_uid="S-1-5-21-7"),
            seen("network_logon", 31, "bob"),
            seen("dhcp", 0, None, mac=A),
        ],
        at(60),
    )
    assert [(one.name, one.strength) for one in found] == [("ann", 80), ("bob", 50)]
    ann = found[0]
    assert ann.kinds == ("kerberos", "network_logon", "ssh")
    assert ann.evidence == ("kerberos@0", "network_logon@30", "ssh@60")
    assert (ann.domain, ann.uid) == ("CORP.EXAMPLE", "S-1-5-21-7")
    assert (ann.first, ann.last) == (at(0), at(60))


def test_zeek_names_the_device_where_the_server_is_silent() -> None:
    lines = [
        seen("dhcp", 0, None, mac=A, until=at(60)),
        seen("dhcp", 60, None, mac=B, until=at(90)),
    ]
    assert [one.name for one in devices(lines, at(59))] == [A]
    assert [one.name for one in devices(lines, at(61))] == [B]
    assert devices(lines, at(90)) == []
    assert users(lines, at(61)) == []


SOME = st.builds(
    seen,
    st.sampled_from(sorted(KINDS)),
    st.integers(-100_000, 100_000),
    st.sampled_from(["ann", "bob", "CORP\\ann", "eve@corp.example"]),
    until=st.none() | st.integers(-100_000, 100_000).map(at),
)


@given(st.lists(SOME, max_size=12), st.randoms())
def test_no_number_of_witnesses_outweighs_a_lease(lines: list[Witness], random: Any) -> None:
    found = users(lines, at(0))
    assert all(0 < one.strength <= MOST_WITNESSES < LEASE for one in found)
    assert [one.strength for one in found] == sorted((o.strength for o in found), reverse=True)
    shuffled = random.sample(lines, len(lines))
    assert users(shuffled, at(0)) == found
    more = users([*lines, seen("vpn", 0, "ann")], at(0))
    before = next((one.strength for one in found if one.name == "ann"), 0)
    assert next(one.strength for one in more if one.name == "ann") >= max(before, 80)


@given(SOME, st.integers(0, 200_000), st.integers(0, 200_000))
def test_what_is_nearer_tells_no_less(one: Witness, near: int, far: int) -> None:
    low, high = sorted((near, far))
    assert strength(one, one.time + timedelta(seconds=low)) >= strength(
        one, one.time + timedelta(seconds=high)
    )
    kind = KINDS[one.kind]
    early = strength(one, one.time - timedelta(seconds=low + 1))
    assert early == (kind.strength // 2 if low + 1 <= kind.early.total_seconds() else 0)


# -- in the lake ---------------------------------------------------------------------------------


def parsed(source: str, *lines: str | bytes) -> list[dict[str, Any]]:
    """Lines as their parser makes events of them."""
    records = [
        Record(
            f"{source}-{number}", source, "live", at(0), line if isinstance(line, bytes) else
            line.encode(), {}
        )
        for number, line in enumerate(lines)
    ]  # fmt: skip
    return list(event_rows(records, ParseSettings()))


def syslog(second: float, words: str) -> str:
    return f"{at(second):%b %d %H:%M:%S} gate {words}"


def told(second: float, user: str = "ann") -> str:
    return (
        f'{{"ts": {at(second).timestamp()}, "uid": "C{second:g}", "id.orig_h": "{IP}", '
        '"id.orig_p": 50000, "id.resp_h": "10.0.0.2", "id.resp_p": 88, "request_type": "AS", '
        f'"client": "{user}/CORP.EXAMPLE", "service": "krbtgt/CORP.EXAMPLE", "success": true}}'
    )


GOODBYE = "SIGTERM[soft,remote-exit] received, client-instance exiting"
ANN, BOB = "ann/198.51.100.7:1194", "bob/198.51.100.8:1194"
LINES = {
    "openvpn": (
        syslog(0, f"openvpn[7]: {ANN} MULTI: Learn: 10.8.0.6 -> {ANN}"),
        syslog(600, f"openvpn[7]: {ANN} {GOODBYE}"),
        syslog(900, f"openvpn[7]: {BOB} MULTI: Learn: 10.8.0.6 -> {BOB}"),
    ),
    "zeek:kerberos": (told(10), told(200, "bob"), told(20, "HOST7$")),
    "sshd": (syslog(15, f"sshd[7]: Accepted publickey for root from {IP} port 50022 ssh2"),
             syslog(16, f"sshd[7]: Failed password for eve from {IP} port 50022 ssh2")),
    # The same words by other ways: a topic of all syslog, a topic of all Zeek logs.
    "syslog": (
        syslog(17, f"sshd[7]: Accepted password for kim from {IP} port 50023 ssh2"),
        syslog(18, f"dropbear[7]: Password auth succeeded for 'lee' from {IP}:50024"),
    ),
    "zeek": (
        f'{{"ts": {at(0).timestamp()}, "uids": ["C2"], "client_addr": "10.0.0.77", "mac": "{B}", '
        '"assigned_addr": "10.0.0.77", "lease_time": 60.0, "msg_types": ["REQUEST", "ACK"], '
        '"_path": "dhcp"}',
    ),
    "zeek:dhcp": (
        f'{{"ts": {at(0).timestamp()}, "uids": ["C1"], "client_addr": "{IP}", "mac": "{A}", '
        f'"assigned_addr": "{IP}", "lease_time": 120.0, "msg_types": ["REQUEST", "ACK"]}}',
    ),
    "windows_xml": (
        xml(Sample(4624, {**LOGON, "TargetUserName": "ann", "LogonType": "2", "IpAddress": "-"},
                   time=f"{at(30):%Y-%m-%dT%H:%M:%S}.000000", computer="LT-ANN.corp.example")),
        xml(Sample(4624, {**LOGON, "TargetUserName": "zoe", "IpAddress": IP},
                   time=f"{at(31):%Y-%m-%dT%H:%M:%S}.000000")),
        xml(Sample(4624, {**LOGON, "TargetUserName": "SYSTEM", "TargetUserSid": "S-1-5-18"},
                   time=f"{at(31):%Y-%m-%dT%H:%M:%S}.000000")),
        *(
            xml(Sample(code, {**SECURITY_SAMPLES[str(code)].data, "TargetUserName": name,
                              "IpAddress": f"::ffff:{IP}"},
                       time=f"{at(40):%Y-%m-%dT%H:%M:%S}.000000"))
            for code, name in ((4768, "pat"), (4769, "pat@CORP.EXAMPLE"))
        ),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def house(
    spark: SparkSession, empty_tables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    """10.0.0.1 is laptop A's until second 100 and B's from then on. Its tests only read."""
    home = tmp_path_factory.mktemp("house")
    shutil.copytree(empty_tables, home / "lake")
    lake = Lake(spark, load(home=home))
    found = [
        row | {"scope": "default"} for name, lines in LINES.items() for row in parsed(name, *lines)
    ]
    assert not [row["dead_letter_reason"] for row in found if row.get("dead_letter_reason")]
    put(lake, EVENT, found)
    put(
        lake,
        DHCP_SEGMENT,
        [
            segment(0, 3600, A, 0, 1, hostname="LT-Ann"),
            segment(100, 3600, B, 100, 2, hostname="lt-bob"),
        ],
    )
    return lake


def asked(lake: Lake, second: float, **keys: Any) -> list[Witness]:
    params = {"mac": None, "ip": None, "host": None, "scope": None, **keys, **window(at(second))}
    with connect(lake.settings.lake_root, needs=("silver.witness", "silver.dhcp_segment")) as duck:
        result = duck.execute(WITNESSES_SQL, params)
        names = [column[0] for column in result.description or ()]
        return [Witness.of(dict(zip(names, row, strict=True))) for row in result.fetchall()]


@pytest.mark.full
def test_a_device_is_told_of_by_what_it_did_while_it_had_the_address(house: Lake) -> None:
    first = users(asked(house, 60, mac=A), at(60))
    assert {one.name: one.kinds for one in first} == {
        "ann": ("logon", "kerberos"),
        "zoe": ("network_logon",),
        "root": ("ssh",),
        "kim": ("ssh",),
        "lee": ("ssh",),
        "pat": ("kerberos",),  # its TGT and its ticket for a service
    }
    assert first[0].name == "ann"
    second = users(asked(house, 300, mac=B), at(300))
    assert [one.name for one in second] == ["bob"]
    nobody = users(asked(house, 60, ip=IP), at(60))
    assert {one.name for one in nobody} == {"ann", "bob", "zoe", "root", "kim", "lee", "pat"}


@pytest.mark.full
def test_a_vpn_address_is_its_users_until_the_session_ends(house: Lake) -> None:
    names = {
        second: [one.name for one in users(asked(house, second, ip="10.8.0.6"), at(second))]
        for second in (300, 700, 1000)
    }
    assert names == {300: ["ann"], 700: [], 1000: ["bob"]}
    came_from = users(asked(house, 300, ip="198.51.100.7"), at(300))
    assert [(one.name, one.kinds) for one in came_from] == [("ann", ("vpn_client",))]


@pytest.mark.full
def test_zeeks_lease_is_a_witness_below_the_servers(house: Lake) -> None:
    found = devices(asked(house, 60, ip=IP), at(60))
    assert [(one.name, one.strength) for one in found] == [(A, 80)]
    assert found[0].evidence[0].startswith("zeek:dhcp-0")
    assert devices(asked(house, 130, ip=IP), at(130)) == []
    (other,) = devices(asked(house, 30, ip="10.0.0.77"), at(30))
    assert (other.name, other.evidence[0]) == (B, "zeek-0#0")


@pytest.mark.full
def test_both_engines_see_the_same_witnesses(house: Lake) -> None:
    columns = "kind, event_uid, ip, host, user_name, mac"
    witnesses = f"SELECT {columns}, until IS NULL FROM silver.witness"
    held = "SELECT user_name, device_mac FROM gold.device_user WHERE ip = '10.0.0.1'"
    with connect(house.settings.lake_root, needs=("gold.device_user",)) as duck:
        theirs = duck.execute(witnesses).fetchall()
        devices_then = duck.execute(held).fetchall()
    assert len(theirs) == 15
    assert sorted(map(repr, ask(house, witnesses))) == sorted(map(repr, theirs))
    first = ("ann", "root", "zoe", "kim", "lee", "pat")
    assert set(devices_then) == {(name, A) for name in first} | {("bob", B)}
    assert columns_of(house, held) == ["user_name", "device_mac"]


def test_real_kerberos_lines_name_their_user(lake: Lake) -> None:
    """The sample is a recording of a lab; its notice lies beside it."""
    file = SAMPLES / "zeek" / "json_corelight" / "SCRANTON_kerberos.log"
    put(lake, EVENT, parsed("zeek:kerberos", *file.read_bytes().splitlines()))
    with connect(lake.settings.lake_root, needs=("silver.witness",)) as duck:
        found = duck.execute("SELECT DISTINCT kind, user_name FROM silver.witness").fetchall()
    assert ("kerberos", "pbeesly") in found
    assert all(kind == "kerberos" and not name.endswith("$") for kind, name in found)
