"""Lists of indicators: what they mean, and that the search by key finds what comparing finds."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.cli import indicators
from alerts.cli.rulebook import verbs
from alerts.compiler.compiler import Compiled, compile_rules
from alerts.compiler.indicator_lists import KEPT_DAYS, ListStore
from alerts.indicators.import_formats import Bad, read_indicators
from alerts.matching.event_rows import brute_force, event_batch
from alerts.matching.match_reasons import reasons
from alerts.matching.matcher import Matcher
from alerts.rulebook.rule_store import recompile
from alerts.rulebook.rule_tests import BASE_TIME, complete
from alerts.rulepack.indicator_file_format import IndicatorEntry, IndicatorList, write_indicators
from alerts.rulepack.indicator_match import Listed
from alerts.rulepack.indicator_normalisation import OBSERVABLES, SOUGHT, entry, sought
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore
from infra.config.settings import Settings, load
from infra.errors import Fatal, Usage
from tests.examples import examples

HOST, IP, MAIL, URL, HASH, USER = 1, 2, 5, 6, 8, 4
MD5 = "9e107d9d372bb6826bd81d3542a419d6"
RULE = """
title: A listed indicator was seen
name: listed
id: 5f2bd6f0-3c86-4b0e-9a64-0a5a7f3dfc11
level: high
tags: [attack.command-and-control]
falsepositives: [Shared hosting]
"""
OWN = "headgate:\n  type: indicator\n  list: bad\n"


def observable(type_id: int, value: str) -> dict[str, Any]:
    return {"name": "x", "type": "x", "type_id": type_id, "value": value}


def event(*found: tuple[int, str], uid: str = "e1", **more: Any) -> dict[str, Any]:
    return complete({"event_uid": uid, "observables": [observable(*one) for one in found], **more})


def store_of(tmp_path: Path, text: str, name: str = "bad") -> Path:
    store = tmp_path / "_rules"
    file = tmp_path / f"{name}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    ListStore(store).load(name, file)
    return store


def compiled(tmp_path: Path, store: Path, rule: str = RULE + OWN) -> Compiled:
    folder = tmp_path / "rules"
    folder.mkdir(exist_ok=True)
    (folder / "rule.yml").write_text(rule)
    PackStore(store)
    return compile_rules([folder], store=store)


def fields(made: Compiled, *events: dict[str, Any]) -> list[dict[str, str]]:
    """The fields of what is found, which brute force must find too."""
    assert not made.refused
    rows = Matcher(made.pack).match(event_batch(events)).to_pylist()
    assert {(row["rule_id"], row["event_uid"]) for row in rows} == brute_force(made.pack, events)
    return [dict(row["fields"]) for row in rows]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("192.0.2.1", ("ip", "192.0.2.1")),
        ("::ffff:192.0.2.1", ("ip", "192.0.2.1")),
        ("2001:DB8:0::1", ("ip", "2001:db8::1")),
        ("192.0.2.77/24", ("network", "192.0.2.0/24")),
        ("192.0.2.1/32", ("ip", "192.0.2.1")),
        ("2001:db8::/32", ("network", "2001:db8::/32")),
        ("::ffff:192.0.2.0/120", ("network", "192.0.2.0/24")),
        ("*.Evil[.]Example.", ("domain", "evil.example")),
        ("bücher.example", ("domain", "xn--bcher-kva.example")),
        ("hxxps://Evil[.]example:443/A?b#c", ("url", "evil.example/A?b")),
        ("http://u:p@[2001:DB8::1]:8080", ("url", "[2001:db8::1]:8080/")),
        ("evil.example/a", ("url", "evil.example/a")),
        (MD5.upper(), ("hash", MD5)),
        ("A@Evil.Example", ("email", "a@evil.example")),
    ],
)
def test_an_entry_has_one_spelling(text: str, found: tuple[str, str]) -> None:
    assert entry(text) == found


@pytest.mark.parametrize(
    "text", ["", "com", "evil..example", "1.2.3.4.5", "0.0.0.0/0", "x@", "a b"]
)
def test_what_is_no_indicator_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w{3}"):
        entry(text)


@pytest.mark.parametrize(
    ("listed", "seen", "matches"),
    [
        ("192.0.2.0/24", (IP, "192.0.2.200"), True),
        ("192.0.2.0/24", (IP, "::ffff:192.0.2.200"), True),
        ("192.0.2.0/24", (IP, "192.0.3.0"), False),
        ("2001:db8::/48", (IP, "2001:DB8:0:1::9"), True),
        ("192.0.2.9", (HOST, "192.0.2.9"), True),
        ("192.0.2.9", (URL, "http://192.0.2.9/x"), True),
        ("evil.example", (HOST, "a.b.EVIL.example."), True),
        ("evil.example", (HOST, "notevil.example"), False),
        ("a.evil.example", (HOST, "evil.example"), False),
        ("evil.example", (URL, "https://cdn.evil.example:8443/x"), True),
        ("evil.example", (MAIL, "Ann <ann@mail.evil.example>"), True),
        ("evil.example", (USER, "evil.example"), False),
        ("http://evil.example/x", (URL, "https://evil.example/x#top"), True),
        ("http://evil.example/x", (URL, "https://evil.example/X"), False),
        (MD5, (HASH, MD5.upper()), True),
        ("a@evil.example", (MAIL, "b@evil.example"), False),
    ],
)
def test_an_observable_is_sought_as_what_its_type_says(
    tmp_path: Path, listed: str, seen: tuple[int, str], matches: bool
) -> None:
    made = compiled(tmp_path, store_of(tmp_path, listed))
    assert bool(fields(made, event(seen))) is matches


def test_a_finding_names_value_entry_label_and_list(tmp_path: Path) -> None:
    made = compiled(tmp_path, store_of(tmp_path, "evil.example # Botnet\nb.evil.example ; deeper"))
    (told,) = fields(made, event((USER, "ann"), (HOST, "a.b.evil.example")))
    assert told == {
        "indicator.observable": "a.b.evil.example",
        "indicator.kind": "domain",
        "indicator.value": "b.evil.example",
        "indicator.label": "deeper",
        "indicator.list": "bad",
    }
    because = reasons(made.pack.rules[0].predicate, event((HOST, "evil.example")))
    assert [one["values"] for one in because if one["field"] == "observables"] == [["evil.example"]]


def test_an_entry_ends_in_event_time(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(
        f"indicator,expires\nevil.example,{BASE_TIME.isoformat()}\nother.example,\n"
    )
    store = tmp_path / "_rules"
    ListStore(store).load("bad", tmp_path / "l.csv")
    made = compiled(tmp_path, store)
    before = BASE_TIME - timedelta(microseconds=1)
    assert fields(made, event((HOST, "evil.example"), time=before))
    assert not fields(made, event((HOST, "evil.example"), time=BASE_TIME))
    assert fields(made, event((HOST, "evil.example"), (HOST, "other.example"), time=BASE_TIME))


def test_a_rule_may_choose_kinds_and_demand_more(tmp_path: Path) -> None:
    store = store_of(tmp_path, "evil.example\n192.0.2.0/24")
    rule = (
        RULE
        + OWN
        + "  observables: [ip]\nlogsource: {product: ocsf, category: dns_activity}\n"
        + "detection: {known: {src_endpoint.ip: 10.0.0.9}, condition: not known}\n"
    )
    made = compiled(tmp_path, store, rule)
    assert not fields(made, event((HOST, "evil.example"), class_uid=4003))
    assert not fields(made, event((IP, "192.0.2.1"), class_uid=4001))
    assert fields(made, event((IP, "192.0.2.1"), class_uid=4003))
    known = {"src_endpoint.ip": "10.0.0.9"}
    assert not fields(made, event((IP, "192.0.2.1"), class_uid=4003, **known))


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ("  list: nowhere\n", "there is no list 'nowhere'"),
        ("", "without a list"),
        ("  list: bad\n  observables: [mac]\n", "mac"),
    ],
)
def test_a_rule_that_cannot_ask_is_refused_alone(tmp_path: Path, own: str, reason: str) -> None:
    other = (RULE + OWN).replace("5f2bd6f0", "6f2bd6f0")
    broken = RULE + "headgate:\n  type: indicator\n" + own
    made = compiled(tmp_path, store_of(tmp_path, "evil.example"), f"{broken}\n---\n{other}")
    assert len(made.pack.rules) == 1
    (refused,) = made.refused
    assert reason in refused.reason
    assert refused.remedy


def test_a_list_that_vanished_stops_its_rule_alone_and_says_so(tmp_path: Path) -> None:
    store = store_of(tmp_path, "vanishing.example")
    made = compiled(tmp_path, store)
    for file in (store / "indicators").glob("*.arrow"):
        file.unlink()
    (row,) = Matcher(made.pack).match(event_batch([event((HOST, "a.example"))])).to_pylist()
    assert row["rule_id"] == "headgate-rule-failed"
    assert "load it again" in row["rule_title"]


LABELS = st.sampled_from(["a", "b", "evil", "xn--a", "a-1"])
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join).map(lambda n: f"{n}.example")
ADDRESSES = st.one_of(
    st.integers(0xC0000200, 0xC00003FF).map(lambda n: str(ip_address(n))),
    st.integers(0, 255).map(lambda n: f"2001:db8::{n:x}"),
)
NETWORKS = st.tuples(ADDRESSES, st.integers(0, 8)).map(
    lambda t: str(ip_network(f"{t[0]}/{(128 if ':' in t[0] else 32) - t[1]}", strict=False))
)
PATHS = st.sampled_from(["", "/", "/a", "/a?b=1", ":8080/a"])
URLS = st.tuples(st.one_of(NAMES, ADDRESSES.filter(lambda a: ":" not in a)), PATHS).map(
    lambda t: f"http://{t[0]}{t[1]}"
)
MAILS = NAMES.map(lambda name: f"ann@{name}")
HASHES = st.integers(0, 30).map(lambda n: f"{n:032x}")
NOISE = st.text(max_size=12)
GIVEN = st.one_of(NAMES, ADDRESSES, NETWORKS, URLS, MAILS, HASHES)
SEEN = st.one_of(GIVEN, NOISE, GIVEN.map(str.upper), NAMES.map(lambda n: n + "."))


def compared(
    entries: list[IndicatorEntry],
    kinds: tuple[str, ...],
    found: list[tuple[int, str]],
    at: datetime,
) -> bool:
    """What the list means, one comparison after the other."""
    for type_id, value in found:
        for kind, text in sought(type_id, value):
            for one in entries:
                same = one.kind == kind and one.value == text
                if kind == "domain":
                    same = one.kind == kind and f".{text}".endswith(f".{one.value}")
                if kind == "ip" and one.kind in ("ip", "network"):
                    network = ip_network(one.value)
                    address = ip_address(text)
                    same = address.version == network.version and address in network
                if kind in kinds and same and (one.valid_until is None or at < one.valid_until):
                    return True
    return False


@examples(150)
@given(
    given_entries=st.lists(st.tuples(GIVEN, st.sampled_from([None, -1, 0, 1])), max_size=25),
    kinds=st.sets(st.sampled_from(SOUGHT), min_size=1),
    rows=st.lists(
        st.lists(st.tuples(st.sampled_from([*OBSERVABLES, USER]), SEEN), max_size=4), max_size=20
    ),
    skipped=st.sets(st.integers(0, 19)),
)
def test_the_search_finds_what_comparing_finds(
    tmp_path_factory: pytest.TempPathFactory,
    given_entries: list[tuple[str, int | None]],
    kinds: set[str],
    rows: list[list[tuple[int, str]]],
    skipped: set[int],
) -> None:
    ends: dict[int | None, datetime | None] = {None: None}
    ends |= {n: BASE_TIME + timedelta(seconds=n) for n in (-1, 0, 1)}
    entries = [IndicatorEntry(*entry(text), None, ends[end]) for text, end in given_entries]
    folder = tmp_path_factory.mktemp("lists")
    asked = tuple(kind for kind in SOUGHT if kind in kinds)
    test = Listed(folder / f"{write_indicators(folder, entries)}.arrow", asked)
    wanted = [compared(entries, asked, row, BASE_TIME) for row in rows]
    told = [[observable(*one) for one in row] for row in rows]
    assert [test(row, BASE_TIME) for row in told] == wanted

    batch = event_batch([event(*row) for row in rows])
    chosen = [n for n in range(len(rows)) if n not in skipped]
    candidates = set(test.rows(batch, pa.array(chosen, pa.int64()).to_numpy()).tolist())
    never = datetime.min.replace(tzinfo=UTC)
    assert candidates == {n for n in chosen if compared(entries, asked, rows[n], never)}


@given(st.lists(st.tuples(GIVEN, st.sampled_from([None, 0, 1])), min_size=1, max_size=20))
def test_the_same_entries_give_the_same_file(
    tmp_path_factory: pytest.TempPathFactory, given_entries: list[tuple[str, int | None]]
) -> None:
    ends = {None: None, 0: BASE_TIME, 1: BASE_TIME + timedelta(days=1)}
    entries = [IndicatorEntry(*entry(text), "x", ends[end]) for text, end in given_entries]
    folder = tmp_path_factory.mktemp("lists")
    name = write_indicators(folder, entries)
    assert write_indicators(folder, list(reversed(entries))) == name
    table = IndicatorList.open(folder / f"{name}.arrow").table
    assert table.num_rows == len({(one.kind, one.value) for one in entries})
    keys = table.column("hash").to_pylist()
    assert keys == sorted(keys)


def test_a_reader_outside_reads_a_list(tmp_path: Path) -> None:
    store = store_of(tmp_path, "evil.example # Botnet\n192.0.2.0/24")
    (file,) = (store / "indicators").glob("*.arrow")
    with duckdb.connect() as engine:
        engine.register("listing", pa.ipc.open_file(file).read_all())
        rows = engine.execute("SELECT kind, value, label FROM listing ORDER BY kind").fetchall()
    assert rows == [("domain", "evil.example", "Botnet"), ("network", "192.0.2.0/24", None)]


def read_all(path: Path, form: str | None = None) -> tuple[list[tuple[str, str]], list[Bad]]:
    bad: list[Bad] = []
    return [(one.kind, one.value) for one in read_indicators(path, form, "auto", bad)], bad


def test_text_csv_json_and_stix_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "l.txt").write_text("# list\n\n192.0.2.1\nno name\n0.0.0.0 evil.example\n")
    (tmp_path / "l.csv").write_text(
        "type,Value,label\nip,192.0.2.1,a\nhash,no name,\nmalware,evil.example,b\n"
    )
    (tmp_path / "l.json").write_text('["192.0.2.1", 7, {"value": "evil.example", "label": "b"}]')
    (tmp_path / "l.ndjson").write_text('"192.0.2.1"\n{"value": ""}\n{"ioc": "evil.example"}\n')
    stix = [
        {"type": "indicator", "pattern": "[ipv4-addr:value = '192.0.2.1']"},
        {"type": "indicator", "pattern": "[url:value = 'x' AND file:size = 3]"},
        {"type": "indicator", "pattern": "[domain-name:value = 'evil.example']"},
        {"type": "indicator", "pattern": "[domain-name:value = 'a.example']", "revoked": True},
        {"type": "malware", "name": "m"},
    ]
    (tmp_path / "l.stix").write_text(json.dumps({"type": "bundle", "objects": stix}))
    numbers = {"txt": 4, "csv": 3, "json": 2, "ndjson": 2, "stix": 2}
    for ending, number in numbers.items():
        found, bad = read_all(tmp_path / f"l.{ending}")
        assert found == [("ip", "192.0.2.1"), ("domain", "evil.example")], ending
        assert [one.number for one in bad] == [number], ending
        assert bad[0].reason


def test_stix_patterns_may_name_any_of_several_values(tmp_path: Path) -> None:
    pattern = (
        "[file:hashes.'SHA-256' = '" + "a" * 64 + "' OR file:hashes.MD5 = '" + MD5 + "'] "
        "OR [ipv4-addr:value ISSUBSET '198.51.100.0/24']"
    )
    bundle = {"objects": [{"type": "indicator", "pattern": pattern, "name": "m"}]}
    (tmp_path / "l.json").write_text(json.dumps(bundle))
    found, bad = read_all(tmp_path / "l.json", "stix")
    assert found == [("hash", "a" * 64), ("hash", MD5), ("network", "198.51.100.0/24")]
    assert not bad


@pytest.mark.parametrize("text", ["", "# nothing\n", "no name\nnor this\nevil.example\n"])
def test_a_broken_list_leaves_the_old_one_in_force(tmp_path: Path, text: str) -> None:
    store = store_of(tmp_path, "evil.example")
    made = compiled(tmp_path, store)
    with pytest.raises(Fatal, match="stays as it is"):
        store_of(tmp_path, text)
    assert compiled(tmp_path, store).pack.hash == made.pack.hash


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "rule.yml").write_text(RULE + OWN)
    return load(home=tmp_path, alerts={"rules": [str(folder)]})


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers()
    indicators.build(commands)
    verbs.build(commands)
    args = parser.parse_args(words)
    code: int = args.run(args, settings)
    return code


def test_a_load_is_live_with_the_next_pack_and_older_packs_keep_theirs(
    home: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "feed.txt"
    file.write_text("old.example\nbad entry\nother.example\n")
    assert run(home, "indicators", "load", "bad", str(file), "--output", "json") == 0
    told = capsys.readouterr()
    (row,) = json.loads(told.out)
    assert (row["entries"], row["refused"], row["rules"], row["before"]) == (2, 1, "listed", 0)
    assert "feed.txt:2: bad entry" in told.err
    store = PackStore(store_folder(home))
    first = store.current()
    assert run(home, "rules", "list", "--output", "json") == 0
    kinds = {one["name"]: one["kind"] for one in json.loads(capsys.readouterr().out)}
    assert (kinds["listed"], kinds["port_scan"]) == ("indicator", "value_count")

    file.write_text("new.example\n")
    assert run(home, "indicators", "load", "bad", str(file)) == 0
    second = store.current()
    assert second != first
    seen = [event((HOST, name), uid=name) for name in ("old.example", "new.example")]
    for pack, found in ((first, "old.example"), (second, "new.example")):
        rows = Matcher(store.get(pack)).match(event_batch(seen)).to_pylist()
        assert [row["event_uid"] for row in rows] == [found]

    assert run(home, "indicators", "remove", "bad") == 0
    assert run(home, "rules", "list") == 1
    with pytest.raises(Usage, match="no list 'bad'"):
        run(home, "indicators", "remove", "bad")


@pytest.mark.full
def test_a_worker_finds_the_list_by_the_pack_alone(tmp_path: Path) -> None:
    store = store_of(tmp_path, "evil.example")
    pack = PackStore(store).put(compiled(tmp_path, store).pack)
    code = (
        "import sys; from alerts.matching.event_rows import event_batch; "
        "from alerts.matching.matcher import matcher_of; "
        "from alerts.rulebook.rule_tests import complete; "
        "seen = {'type_id': 1, 'value': 'a.evil.example'}; "
        "batch = event_batch([complete({'observables': [seen]})]); "
        "print(matcher_of(*sys.argv[1:]).match(batch).num_rows)"
    )
    worker = [sys.executable, "-c", code, str(store), pack]
    done = subprocess.run(worker, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


def test_rules_test_runs_the_events_of_a_rule_over_a_list(
    home: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = "{observables: [{type_id: 1, value: a.evil.example}]}"
    other = "{observables: [{type_id: 4, value: a.evil.example}]}"
    tests = f"  tests:\n    match: [{seen}]\n    no_match: [{other}]\n"
    (tmp_path / "rules" / "rule.yml").write_text(RULE + OWN + tests)
    store_of(store_folder(home).parent, "evil.example")
    assert run(home, "rules", "test", "listed", "--output", "json") == 0
    assert [row["passed"] for row in json.loads(capsys.readouterr().out)] == [True, True]


def test_a_file_that_nothing_names_goes_after_its_days(home: Settings, tmp_path: Path) -> None:
    file, lists = tmp_path / "feed.txt", ListStore(store_folder(home))
    file.write_text("old.example\n")
    old = lists.folder / f"{lists.load('bad', file).listing.hash}.arrow"
    file.write_text("new.example\n")
    lists.load("bad", file)
    assert old.exists()
    aged = time.time() - (KEPT_DAYS + 1) * 86_400
    os.utime(old, (aged, aged))
    file.write_text("newest.example\n")
    new = lists.load("bad", file)
    assert not old.exists()
    assert (lists.folder / f"{new.listing.hash}.arrow").exists()
    recompile(home)


def test_a_list_has_a_plain_name_and_a_file_that_can_be_read(tmp_path: Path) -> None:
    lists = ListStore(tmp_path)
    with pytest.raises(Usage, match="letters, digits"):
        lists.load("../x", tmp_path / "f.txt")
    with pytest.raises(Usage, match="cannot be read"):
        lists.load("x", tmp_path / "missing.txt")
    (tmp_path / "f.csv").write_text("a,b\n1,2\n")
    with pytest.raises(Usage, match="no column value"):
        lists.load("x", tmp_path / "f.csv")


def test_a_time_without_a_zone_is_utc(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("value,valid_until\na.example,2026-01-31\nb.example,soon\n")
    bad: list[Bad] = []
    (one,) = read_indicators(tmp_path / "l.csv", None, "auto", bad)
    assert one.valid_until == datetime(2026, 1, 31, tzinfo=UTC)
    assert "no instant" in bad[0].reason
