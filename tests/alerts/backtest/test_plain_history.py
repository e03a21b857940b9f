"""A backtest of a small lake without Spark comes to what it comes to with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from alerts.backtest.plain_history import SMALL_ROWS, PlainHistory
from alerts.backtest.result import kept_alerts, summarise
from alerts.backtest.rule_selection import select_rules
from alerts.backtest.run import Backtest, BacktestRequest, backtest_folder, begin_backtest
from alerts.rulepack.locations import store_folder
from alerts.rulepack.rule_pack import PackStore, Query, RulePack
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import Settings, load
from infra.streaming.lake import Lake
from ingest.tables import EVENT
from tests.alerts.backtest.test_history_match import HISTORY, SEGMENTS, wish
from tests.alerts.history import A, at, leased, login, with_rules
from tests.api.story import insert
from tests.headgate.as_code.delta_by_hand import append_rows

SITES = (
    {"name": "default", "networks": ["10.0.0.0/24", "fd00::/8"], "static": ["10.0.0.9"]},
    {"name": "branch", "networks": ["10.0.0.0/24"]},
)
EVERY_PLACE = [
    *HISTORY,
    login("by-hand", 110, ip="10.0.0.9"),
    login("branch", 120, scope="branch"),
    login("no-site", 130, scope=None),
    login("no-address", 140, ip=None, src_endpoint=None),
    login("v6", 150, ip="fd00::1"),
    login("v6-outside", 160, ip="2001:db8::1"),
    login("freed", 9300),
]
EVERY_STATEMENT = [
    *SEGMENTS,
    leased(5, 9200, 9400, None),
    leased(6, 9200, 9200, A),
    leased(1, 0, 9000, A, scope="branch"),
    leased(7, 0, 9000, A, ip="10.0.0.9"),
    leased(8, 0, 9000, A, kind="heartbeat"),
    leased(9, 0, 9000, A, ip="fd00::1"),
]


def settings_of(lake: Lake) -> Settings:
    rules = with_rules(lake.settings).alerts.rules
    return load(home=lake.settings.home, alerts={"bundled": False, "rules": rules}, scopes=SITES)


def backtested(
    settings: Settings, lake: Callable[[], Lake], small: int
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The result but for its name, and the rows that led to it, in order."""
    run = begin_backtest(settings, wish(settings, ["login_failed", "guessing"], "login_failed"))
    work = Backtest(settings, lake, run, small=small)
    result = summarise(work, work.through(lambda _: None), PackStore(store_folder(settings)))
    folder = backtest_folder(settings) / run.id
    rows = {
        "findings": read(work.finding_files()),
        "attributed": read([folder / "attributed" / name for name in run.attributed or ()]),
        "alerts": kept_alerts(folder),
    }
    work.finish()
    return {name: value for name, value in result.items() if name != "id"}, rows


def read(files: list[Path]) -> list[dict[str, Any]]:
    rows = [row for file in files for row in pq.read_table(file).to_pylist()]
    return sorted(rows, key=lambda row: (row["pack"], row["finding_id"]))


def nowhere() -> Lake:
    raise AssertionError("Spark was asked for")


@pytest.mark.full
def test_without_spark_it_comes_to_the_same(lake: Lake) -> None:
    settings = settings_of(lake)
    insert(lake, EVENT, EVERY_PLACE[:7])
    insert(lake, EVENT, EVERY_PLACE[7:])
    insert(lake, DHCP_SEGMENT, EVERY_STATEMENT)
    over_spark, spark_rows = backtested(settings, lambda: Lake(lake.spark, settings), small=0)
    plain, plain_rows = backtested(settings, nowhere, SMALL_ROWS)
    assert len(plain_rows["attributed"]) == 2 * len(
        {r["finding_id"] for r in plain_rows["findings"]}
    )
    statuses = {row["holder"]["status"] for row in plain_rows["attributed"]}
    assert statuses == {"leased", "none", "outside", "static", "unknown"}
    for name, rows in spark_rows.items():
        assert plain_rows[name] == rows, name
    assert plain == over_spark


def test_a_rule_says_how_many_events_it_looked_at(tmp_path: Path) -> None:
    settings = with_rules(load(home=tmp_path))
    root = settings.lake_root
    assert isinstance(root, Path)
    twice = login("twice", 20) | {"duplicate_of": "one:0"}
    rows = [login("one", 10, status_id=1), twice, login("after", 9_000_000)]
    append_rows(root, EVENT, rows)
    append_rows(root, DHCP_SEGMENT, SEGMENTS)
    for until, events in ((at(100), 1), (at(5), 0)):
        chosen = select_rules(settings, ["guessing", "login_failed"])
        asked = BacktestRequest(("both",), chosen, at(-100), until)
        work = Backtest(settings, nowhere, begin_backtest(settings, asked))
        packs = PackStore(store_folder(settings))
        result = summarise(work, work.through(lambda _: None), packs)
        # A correlation looks at what the rules look at that it counts.
        told = {rule["id"]: rule["events"] for rule in result["sides"]["new"]["rules"]}
        assert set(told.values()) == {events}
        assert len(told) == 2


@pytest.mark.full
def test_imported_lines_of_leases_are_left_to_spark(lake: Lake) -> None:
    settings = settings_of(lake)
    old = login("old", 200, mode="import", received_at=at(86_400))
    insert(lake, EVENT, [old])
    insert(lake, DHCP_SEGMENT, SEGMENTS)
    plain, _ = backtested(settings, nowhere, SMALL_ROWS)
    assert plain["sides"]["new"]["imported_findings"] == 1
    insert(lake, EVENT, [login("dhcp", 100, mode="import", class_uid=4004, source="dhcpd")])
    with pytest.raises(AssertionError, match="Spark was asked for"):
        backtested(settings, nowhere, SMALL_ROWS)


def test_what_is_large_or_a_query_is_left_to_spark(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    log = settings.lake_root / EVENT.path / "_delta_log"
    log.mkdir(parents=True)
    add = '{{"add":{{"path":"{}","size":1,"stats":"{{\\"numRecords\\":{}}}"{}}}}}'
    commits = [
        add.format("a.parquet", 6, "") + "\n",
        add.format("b.parquet", 5, "") + "\n",
        '{"remove":{"path":"a.parquet"}}\n' + add.format("c%20d.parquet", 4, "") + "\n",
        add.format("e.parquet", 1, ',"deletionVector":{"storageType":"u"}') + "\n",
    ]
    for version, text in enumerate(commits):
        (log / f"{version:020d}.json").write_text(text)

    def takes(version: int, most: int = 10, queries: tuple[Query, ...] = ()) -> bool:
        pack = RulePack(queries=queries)
        return PlainHistory(settings, version, 0, most).can_match(at(0), at(60), [pack])

    assert [takes(version) for version in range(4)] == [True, False, True, False]
    assert not takes(2, most=8)
    query = Query(id="q", title="", type="sql", text="")
    assert not takes(2, queries=(query,))
    assert not takes(9), "a version that the log does not tell"
