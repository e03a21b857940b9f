"""Inventories of assets and users: read strictly, kept with their spans, asked at an instant."""

from __future__ import annotations

import json
import os
import tempfile
from argparse import Namespace
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrich.assets.index import AssetIndex, build, index_of
from enrich.assets.index_store import index_file, latest_index, newest_index
from enrich.assets.inventory_file import files_of, read_inventory
from enrich.assets.join import with_assets
from enrich.assets.loader import Loaded, load_inventory
from enrich.assets.registers import ASSETS, REGISTERS, USERS, RegisterEntry
from enrich.assets.scd_diff import VersionHistory, changes, in_force
from enrich.cli import run_load
from enrich.tables_assets import ASSET_VERSION, USER_VERSION
from headgate.cli import main
from infra.config.settings import Settings
from infra.config.settings import load as load_settings
from infra.delta.duckdb_views import connect
from infra.delta.parquet_writer import arrow_schema
from infra.delta.schema import Table
from infra.errors import Fatal, Usage
from infra.runtime.driver import Driver
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.enrich.rows import A, B, at, rows
from tests.enrich.views import ask
from tests.lines_run import lines_run

HEADER = "Asset Tag,Name,Owner,Criticality,Location,Tags,MAC Address,Hostname,IP,Vendor\n"


def us(second: float) -> int:
    return round(at(second).timestamp() * 1_000_000)


def listing(tmp_path: Path, text: str, name: str = "assets.csv") -> str:
    file = tmp_path / name
    file.write_text(text, "utf-8")
    return str(file)


# -- a line --------------------------------------------------------------------------------------


def test_a_line_is_brought_into_one_form() -> None:
    entry = ASSETS.entry(
        {
            "Asset Tag": "A-1",
            "mac address": "02-00-00-00-00-0A; 0200.0000.000b",
            "FQDN": "LT-Ann.corp.example.",
            "Criticality": "HIGH",
            "tags": "vip, finance|vip",
            "subnet": "::ffff:10.0.0.5;2001:DB8::/32;10.0.0.7/32",
            "Vendor": "Lenovo",
        }
    )
    assert entry.id == "A-1"
    assert entry.values["macs"] == [A, B]
    assert entry.values["hostnames"] == ["lt-ann.corp.example"]
    assert entry.values["criticality"] == "high"
    assert entry.values["tags"] == ["vip", "finance"]
    assert entry.values["ips"] == ["10.0.0.5", "2001:db8::/32", "10.0.0.7"]
    assert json.loads(entry.values["more"]) == {"Vendor": "Lenovo"}


def test_without_an_identity_the_first_key_is_it() -> None:
    assert ASSETS.entry({"hostname": "db1", "serial": "S-9"}).id == "S-9"
    assert USERS.entry({"mail": "ann@corp.example"}).id == "ann@corp.example"


@pytest.mark.parametrize(
    ("register", "fields", "said"),
    [
        ("assets", {"name": "x"}, "no macs, serial, hostnames or ips to know it by"),
        ("assets", {"id": "7", "mac": ""}, "to know it by"),
        ("assets", {"mac": "02:00"}, "macs: '02:00' is no hardware address"),
        ("assets", {"ip": "10.0.0.300"}, "ips: '10.0.0.300' is neither"),
        ("assets", {"ip": "10.0.0.1/8"}, "ips: '10.0.0.1/8' is neither"),
        ("assets", {"host": "a", "criticality": "huge"}, "'huge' is none of low"),
        ("assets", {"host": "a", "hostname": "b"}, "hostnames: given twice"),
        ("assets", {"host": "a\x1b[2J"}, "control characters"),
        ("assets", {"host": {"a": 1}}, "expected a text"),
        ("assets", {"host": "a", "owner": "x" * 1001}, "at most 1000"),
        ("assets", {"host": [f"h{n}" for n in range(201)]}, "at most 200"),
        ("assets", {"host": "a", "valid_from": "2026-11-20T00:00"}, "names no zone"),
        ("users", {"department": "it"}, "no name, mail or aliases"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_column(
    register: str, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        REGISTERS[register].entry(fields)
    assert said in str(refused.value)


# -- a file --------------------------------------------------------------------------------------


def test_malformed_lines_are_named_and_the_others_count(tmp_path: Path) -> None:
    where = listing(
        tmp_path,
        "\ufeff" + HEADER + "A-1,a,,,,,,h1,,\nA-2,b,,huge,,,,h2,,\n\nA-3,short\n"
        'A-4,"unclosed,,,,,,,,\nA-1,again,,,,,,h1,,\nA-6,"quoted, well",,,,,,h6,,\n',
    )
    found = read_inventory(where, ASSETS)
    assert [entry.id for _, entry in found.entries] == ["A-1", "A-6"]
    assert found.entries[1][1].values["name"] == "quoted, well"
    assert [(one.line, one.reason) for one in found.refused] == [
        (3, "criticality: 'huge' is none of low, medium, high, critical"),
        (5, "2 cells where the header has 10"),
        (6, "a quote that is not closed on this line"),
        (7, "asset 'A-1' is on assets.csv:2 already"),
    ]


def test_json_lines_are_read_strictly(tmp_path: Path) -> None:
    where = listing(
        tmp_path,
        '{"name": "ann", "aliases": ["CORP\\\\Ann", "S-1-5-21-7"], "vip": true}\n'
        '{"name": "bob", "name": "eve"}\n{"name": "cut\n[1]\n',
        "users.jsonl",
    )
    found = read_inventory(where, USERS)
    assert [entry.values["aliases"] for _, entry in found.entries] == [["corp\\ann", "s-1-5-21-7"]]
    assert json.loads(found.entries[0][1].values["more"]) == {"vip": True}
    assert [one.line for one in found.refused] == [2, 3, 4]
    assert "stands twice" in found.refused[0].reason


def test_a_folder_is_one_list_and_a_file_url_a_path(tmp_path: Path) -> None:
    listing(tmp_path, "hostname;owner\nh2;x\n", "b.csv")
    listing(tmp_path, '{"host": "h1"}\n', "a.jsonl")
    listing(tmp_path, "not read", "notes.txt")
    found = read_inventory(tmp_path.as_uri(), ASSETS)
    assert [(file, entry.id) for file, entry in found.entries] == [
        ("a.jsonl", "h1"),
        ("b.csv", "h2"),
    ]
    assert files_of(tmp_path.as_uri())[0] == tmp_path / "a.jsonl"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"colour,size\nred,1\n", "names none of macs"),
        (b"host,host\na,b\n", "stands twice in the header"),
        ("host\nä\n".encode("utf-16"), "is UTF-16"),
        (b'[{"host": "a"}]', "one object a line"),
    ],
)
def test_what_is_no_inventory_is_refused_whole(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "x.csv").write_bytes(content)
    with pytest.raises(Usage, match=said):
        read_inventory(str(tmp_path / "x.csv"), ASSETS)
    with pytest.raises(Usage, match="cannot be read"):
        read_inventory(str(tmp_path / "none.csv"), ASSETS)
    with pytest.raises(Usage, match="nothing is fetched"):
        read_inventory("https://cmdb.example/assets.csv", ASSETS)


# -- what changed --------------------------------------------------------------------------------

NAMES = st.dictionaries(st.sampled_from("abcde"), st.sampled_from(["x", "y"]), max_size=5)


def merged(known: VersionHistory, rows: list[Any]) -> VersionHistory:
    """What the tables would give after these rows: an independent reading of the rule."""
    by_instant: dict[str, dict[datetime, Any]] = {
        name: {one.valid_from: one for one in versions} for name, versions in known.items()
    }
    for row in rows:
        by_instant.setdefault(row.id, {})[row.version.valid_from] = row.version
    return {name: sorted(found.values()) for name, found in by_instant.items()}


@given(st.lists(st.tuples(st.integers(0, 20), NAMES), max_size=6))
def test_after_a_load_exactly_its_list_is_true_then(
    loads: list[tuple[int, dict[str, str]]],
) -> None:
    """In any order of instants: a list of the past, loaded later, is true of the past."""
    known: VersionHistory = {}
    for second, wanted in loads:
        entries = [
            ("f", RegisterEntry(name, None, {"owner": owner})) for name, owner in wanted.items()
        ]
        found = changes(known, entries, at(second), whole=True)
        known = merged(known, found.rows)
        told = {name: in_force(versions, at(second)) for name, versions in known.items()}
        assert {name: one["owner"] for name, one in told.items() if one} == wanted
        again = changes(known, entries, at(second), whole=True)
        assert not again.rows
        assert again.unchanged == len(wanted)
        assert found.new + found.changed + found.gone == len(found.rows)


def test_a_list_with_refused_lines_takes_nothing_away() -> None:
    known = merged({}, changes({}, [("f", RegisterEntry("a", None, {}))], at(0), whole=True).rows)
    assert changes(known, [], at(1), whole=False).rows == []
    assert [row.id for row in changes(known, [], at(1), whole=True).rows] == ["a"]


def test_a_list_of_very_many_instants_of_one_entry_costs_no_square_of_them() -> None:
    entries = [("f", RegisterEntry("a", at(n), {"owner": str(n)}, n)) for n in range(800)]
    cost = lines_run(lambda: changes({}, entries, at(0), whole=False))
    assert cost < 8 * lines_run(lambda: changes({}, entries[:200], at(0), whole=False))
    found = changes({}, entries, at(0), whole=False)
    assert (found.new, found.changed, len(found.rows)) == (1, 799, 800)


# -- at an instant -------------------------------------------------------------------------------


def version(table: Table, identity: str, value: str, second: float, **more: Any) -> dict[str, Any]:
    row = dict.fromkeys(table.schema.fieldNames())
    return row | {
        "inventory": "default",
        identity: value,
        "valid_from": at(second),
        "gone": False,
        "loaded_at": at(second),
        **more,
    }


def asset(identity: str, second: float = 0, **more: Any) -> dict[str, Any]:
    return version(ASSET_VERSION, "asset_id", identity, second, **more)


def user(identity: str, second: float = 0, **more: Any) -> dict[str, Any]:
    return version(USER_VERSION, "user_id", identity, second, **more)


def index(
    tmp_path: Path, assets: list[dict[str, Any]], users: list[dict[str, Any]] | None = None
) -> AssetIndex:
    file = tmp_path / "index.sqlite"
    build(
        file,
        pa.Table.from_pylist(assets, arrow_schema(ASSET_VERSION)),
        pa.Table.from_pylist(users or [], arrow_schema(USER_VERSION)),
    )
    return AssetIndex(file)


def test_an_asset_is_what_it_was_then(tmp_path: Path) -> None:
    """
    ann ──────────> bob ────────> gone          back
    0               10            20            30
    """
    known = index(
        tmp_path,
        [
            asset("a", 0, macs=[A], owner="ann"),
            asset("a", 10, macs=[A], owner="wrong", loaded_at=at(11)),
            asset("a", 10, macs=[A], owner="bob", loaded_at=at(12)),
            asset("a", 20, gone=True),
            asset("a", 30, macs=[A], owner="eve"),
        ],
    )
    owners = {
        second: (known.asset(us(second), mac=A) or {}).get("owner")
        for second in (-1, 0, 9.999999, 10, 19.999999, 20, 30, 1e6)
    }
    assert owners == {
        -1: None, 0: "ann", 9.999999: "ann", 10: "bob", 19.999999: "bob", 20: None, 30: "eve",
        1e6: "eve",
    }  # fmt: skip


def test_the_surest_key_decides(tmp_path: Path) -> None:
    known = index(
        tmp_path,
        [
            asset("laptop", macs=[A]),
            asset("server", hostnames=["db1.corp.example"], ips=["10.0.0.5"]),
            asset("floor", ips=["10.0.0.0/24"]),
            asset("company", ips=["10.0.0.0/8", "2001:db8::/32"]),
            asset("here", ips=["10.7.0.1"], scope="berlin"),
            asset("there", ips=["10.7.0.1"], scope="paris"),
        ],
    )

    def of(**keys: Any) -> tuple[str, str] | None:
        found = known.asset(us(1), **keys)
        return (found["asset_id"], found["matched_by"]) if found else None

    assert of(mac=A, hostname="db1", ip="10.0.0.5") == ("laptop", "mac")
    assert of(mac=B, hostname="DB1.corp.example.", ip="10.9.9.9") == ("server", "hostname")
    assert of(hostname="db1") == ("server", "hostname")
    assert of(hostname="db1.evil.example") is None
    assert of(ip="10.0.0.5") == ("server", "ip")
    assert of(mac=B, ip="10.0.0.5", leased=True) == ("floor", "network")
    assert of(ip="10.200.0.1") == ("company", "network")
    assert of(ip="2001:db8::7") == ("company", "network")
    assert of(ip="192.0.2.1") is None
    assert of(ip="10.7.0.1", scope="berlin") == ("here", "ip")
    assert of(ip="10.7.0.1", scope="paris") == ("there", "ip")
    assert of(ip="10.7.0.1") == ("company", "network")
    assert of(ip="no address", hostname="") is None


@given(st.lists(st.tuples(st.integers(0, 32), st.integers(0, 7)), max_size=12), st.integers(0, 7))
def test_the_smallest_network_is_the_one(nets: list[tuple[int, int]], host: int) -> None:
    networks = {str(ip_network((0x0A000000 | low, bits), strict=False)) for bits, low in nets}
    ip = ip_address(0x0A000000 | host)
    with tempfile.TemporaryDirectory() as folder:
        plain = [asset(net, ips=[net.removesuffix("/32")]) for net in networks]
        found = index(Path(folder), plain).asset(us(1), ip=str(ip))
    holding = [ip_network(net) for net in networks if ip in ip_network(net)]
    best = max(holding, key=lambda net: net.prefixlen, default=None)
    assert (found and found["asset_id"]) == (best and str(best))


def test_a_user_is_known_by_any_account_that_is_one_persons(tmp_path: Path) -> None:
    known = index(
        tmp_path,
        [],
        [
            user("1", name="ann", mail="Ann@corp.example", aliases=["corp\\ann", "s-1-5-7"]),
            user("2", name="CORP\\bob"),
            user("3", name="LAB\\eve", aliases=["eve@corp.example"]),
            user("4", mail="eve@lab.example"),
        ],
    )

    def of(name: str | None, **more: Any) -> tuple[str, str] | None:
        found = known.user(us(1), name, **more)
        return (found["user_id"], found["matched_by"]) if found else None

    assert of("Ann") == of("CORP\\ANN") == of("ann@corp.example") == ("1", "account")
    assert of("ann", domain="CORP") == ("1", "account")
    assert of("nobody", uid="S-1-5-7") == ("1", "account")
    assert of("bob") == ("2", "name")
    assert of("bob", domain="LAPTOP-7") == ("2", "name")
    assert of("eve") is None
    assert of("eve", domain="lab.example") == ("4", "account")
    assert of(None) is None


# -- in the lake ---------------------------------------------------------------------------------


def loaded(lake: Lake, register: str, where: str, **more: Any) -> Loaded:
    def write(table: Table, found: Any, note: str) -> None:
        lake.add(table, found, note)

    return load_inventory(lake.settings, REGISTERS[register], where, write, **more)


@pytest.mark.full
def test_only_changes_are_written_and_both_engines_see_them(lake: Lake, tmp_path: Path) -> None:
    first = listing(tmp_path, "hostname,owner\nh1,ann\nh2,bob\nh3,eve\n")
    done = loaded(lake, "assets", first, valid_from=at(0))
    assert (done.new, done.changed, done.gone, done.unchanged) == (3, 0, 0, 0)
    versions = lake.version(ASSET_VERSION)
    assert loaded(lake, "assets", first, valid_from=at(5)).unchanged == 3
    assert lake.version(ASSET_VERSION) == versions
    second = listing(tmp_path, "hostname,owner\nh1,ann\nh2,zoe\n")
    done = loaded(lake, "assets", second, valid_from=at(10))
    assert (done.new, done.changed, done.gone, done.unchanged) == (0, 1, 1, 1)

    question = "SELECT asset_id, owner, valid_from, valid_to FROM silver.{} ORDER BY 1, 3"
    with connect(lake.settings.lake_root, needs=("silver.asset", "silver.user")) as duck:
        history = duck.execute(question.format("asset_history")).fetchall()
        now = duck.execute(question.format("asset")).fetchall()
        assert duck.execute("SELECT count(*) FROM silver.user").fetchall() == [(0,)]
    utc = [(*row[:2], *(time and time.astimezone(UTC) for time in row[2:])) for row in history]
    assert utc == [
        ("h1", "ann", at(0), None),
        ("h2", "bob", at(0), at(10)),
        ("h2", "zoe", at(10), None),
        ("h3", "eve", at(0), at(10)),
    ]
    assert [row[:2] for row in now] == [("h1", "ann"), ("h2", "zoe")]
    for view, wanted in (("asset_history", history), ("asset", now)):
        spark = [row[:2] for row in ask(lake, question.format(view))]
        assert spark == [row[:2] for row in wanted]
    assert ask(lake, "SELECT * FROM silver.user") == []


@pytest.mark.full
def test_events_get_what_was_true_at_their_time(lake: Lake, tmp_path: Path) -> None:
    assert latest_index(lake) is None
    bare = rows(lake.spark, EVENT, [event(5, src_ip="10.0.0.5")]).select("time", "src_ip")
    assert with_assets(lake, bare).collect()[0]["src_asset"] is None
    loaded(lake, "assets", listing(tmp_path, "id,ip,owner\ndb,10.0.0.5,ann\n"), valid_from=at(0))
    before = latest_index(lake)
    loaded(lake, "assets", listing(tmp_path, "id,ip,owner\ndb,10.0.0.5,bob\n"), valid_from=at(10))
    loaded(lake, "users", listing(tmp_path, "name,dept\nann,IT\n", "u.csv"), valid_from=at(0))
    events = rows(
        lake.spark,
        EVENT,
        [
            event(5, src_ip="10.0.0.5", user_name="CORP\\ann"),
            event(15, dst_ip="10.0.0.5", host_name="elsewhere"),
            event(-5, src_ip="10.0.0.5", user_name="ann"),
        ],
    )
    now = with_assets(lake, events).collect()
    assert [row["src_asset"] and row["src_asset"]["owner"] for row in now] == ["ann", None, None]
    assert [row["dst_asset"] and row["dst_asset"]["owner"] for row in now] == [None, "bob", None]
    assert [row["person"] and row["person"]["department"] for row in now] == ["IT", None, None]
    assert [row["host_asset"] for row in now] == [None, None, None]
    assert [row["event_uid"] for row in now] == [row["event_uid"] for row in events.collect()]
    # A retry names the versions it had: what was loaded since does not count.
    few = events.select("time", "dst_ip")
    again = with_assets(lake, few, before).collect()
    assert [row["dst_asset"] and row["dst_asset"]["owner"] for row in again] == [None, "ann", None]
    made = index_file(lake, before)
    assert made is not None
    Path(made).unlink()
    assert Path(index_file(lake, before) or "").exists()


@pytest.mark.full
def test_a_list_cut_short_does_not_empty_an_inventory(lake: Lake, tmp_path: Path) -> None:
    full = "hostname\n" + "".join(f"h{n}\n" for n in range(30))
    loaded(lake, "assets", listing(tmp_path, full), valid_from=at(0))
    cut = listing(tmp_path, "hostname\nh1\n", "cut.csv")
    with pytest.raises(Fatal, match="29 would go"):
        loaded(lake, "assets", cut)
    broken = listing(tmp_path, "hostname,mac\nh1,\nh2,zz\n")
    done = loaded(lake, "assets", broken)
    assert (done.gone, done.held, len(done.refused)) == (0, 29, 1)
    with pytest.raises(Fatal, match="none of 1 lines can be read"):
        loaded(lake, "assets", listing(tmp_path, "hostname,mac\nh2,zz\n"))
    assert loaded(lake, "assets", cut, accept_removals=True).gone == 29
    other = loaded(lake, "assets", listing(tmp_path, "hostname\nx\n"), inventory="lab")
    assert (other.new, other.gone) == (1, 0)
    spooled = [json.loads(file.read_text()) for file in (lake.spool / "audit").glob("load-*.json")]
    assert {row["act"] for row in spooled} == {"load.assets"}
    assert any(json.loads(row["detail"])["gone"] == 29 for row in spooled)


def test_the_command_says_what_changed_and_starts_no_jvm_when_nothing_did(
    lake: Lake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = ["--home", str(lake.settings.home), "users", "import"]
    where = listing(tmp_path, "login;dept\nann;IT\n", "users.csv")
    loaded(lake, "users", where)
    # A session of its own would be the shared one of the tests, and the command would stop it.
    assert main([*home, where]) == 0
    assert "0 new, 0 changed, 0 gone, 1 unchanged" in capsys.readouterr().out
    broken = listing(tmp_path, "login;dept;site\nann;IT;\nbob;IT\n", "broken.csv")
    assert main([*home, broken, "--output", "json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["unchanged"], told["held"]) == (1, 0)
    assert told["refused"][0]["line"] == 3
    assert main([*home, broken, "--output", "csv"]) == 1
    assert capsys.readouterr().out.splitlines()[1] == "users,default,2,0,0,0,1,0,1"
    assert main([*home, broken, "--valid-from", "someday"]) == 2
    assert main([*home, str(tmp_path / "none.csv")]) == 2


def test_up_loads_what_the_settings_name(tmp_path: Path) -> None:
    named = load_settings(home=tmp_path, assets={"file": "a.csv"}, users={"refresh_minutes": 5})
    scheduled = [one._command for one in Driver(named, ("ingest",))._scheduled()]
    assert ("assets", "import") in scheduled
    assert ("users", "import") not in scheduled
    assert ("assets", "import") not in [
        one._command for one in Driver(named, ("alert",))._scheduled()
    ]


@pytest.mark.full
def test_an_index_is_made_once_and_old_ones_go(lake: Lake, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "n.csv").write_text(f"host,owner\nh,{number}\n", "utf-8")
        loaded(lake, "assets", str(tmp_path / "n.csv"), valid_from=at(number))
    file = newest_index(lake.settings)
    assert file == index_file(lake, latest_index(lake))
    folder = Path(file or "").parent
    assert len(list(folder.iterdir())) == 3
    for number in range(100, 130):
        old = folder / f"{number}-0.sqlite"
        old.touch()
        os.utime(old, (0, 0))
    Path(file or "").unlink()
    again = index_of(newest_index(lake.settings) or "")
    assert (again.asset(us(2), hostname="h") or {})["owner"] == "2"
    assert len(list(folder.iterdir())) == 20


def test_load_without_a_file_asks_for_one(settings: Settings) -> None:
    asked = Namespace(register="users", file=None, valid_from=None)
    with pytest.raises(Usage, match=r"set users\.file"):
        run_load(asked, settings)


def event(second: float, **more: Any) -> dict[str, Any]:
    return {"event_uid": f"e{second}", "time": at(second), "scope": "default"} | more
